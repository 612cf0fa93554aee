"""One thread at a time where torch has one of something: its generators, the flags of modules.

Training and dropout passes seed the default generators and set flags of shared modules, and put
both back. Two threads that did so at once would get each other's masks. So whoever does takes its
turn; a run that trains offers it after every step, and threads get it in the order they came.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager


class Turns:
    """A lock that its holder may take again, and may lend to those who wait."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._holder: int | None = None
        self._depth = 0

    def mine(self) -> _Mine:
        """Run a block, or a function, while no other thread runs one."""
        return _Mine(self)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Run a block with others before it: all who waited when it began had a turn."""
        depth, self._depth = self._depth, 1
        self._leave()
        try:
            yield
        finally:
            try:
                self._take_back()
            finally:
                self._depth = depth

    @property
    def wanted(self) -> bool:
        """Whether the turn is this thread's and another waits for it."""
        return bool(self._waiting) and self._holder == threading.get_ident()

    def _take(self) -> None:
        me = threading.get_ident()
        if self._holder == me:
            self._depth += 1
            return
        with self._guard:
            if self._holder is None:
                self._holder, self._depth = me, 1
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append((me, gate))
        try:
            gate.acquire()
        except BaseException:
            # Ctrl-C while it waits, or just when its turn has come.
            with self._guard:
                waits = (me, gate) in self._waiting
                if waits:
                    self._waiting.remove((me, gate))
            if not waits:
                self._leave()
            raise

    def _take_back(self) -> None:
        """Also after Ctrl-C: the blocks around end as those of the thread whose turn it is."""
        interrupted: BaseException | None = None
        while True:
            try:
                self._take()
                break
            except BaseException as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def _leave(self) -> None:
        with self._guard:
            self._depth -= 1
            if self._depth > 0:
                return
            self._holder = None
            if self._waiting:
                self._holder, gate = self._waiting.popleft()
                self._depth = 1
                gate.release()

    def after_fork(self) -> None:
        """In a child process only the thread that forked is left."""
        self._guard = threading.Lock()
        self._waiting.clear()
        if self._holder != threading.get_ident():
            self._holder, self._depth = None, 0


class _Mine(ContextDecorator):
    """See `Turns.mine`. Not made by a generator, which takes twice the time."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        self._turns._take()

    def __exit__(self, *error: object) -> None:
        self._turns._leave()


TURNS = Turns()
"""Of this process."""
os.register_at_fork(after_in_child=TURNS.after_fork)

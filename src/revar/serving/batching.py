"""Requests that share a forward pass.

One thread computes; a pass that takes a moment goes without it. While it computes, examples gather;
what has gathered, up to ``max_batch``, is the next pass. An idle server waits for others only if
some are being read at that moment, and no longer than ``max_wait``: a lone client waits for nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from revar.serving.deciding import Decisions
from revar.serving.limits import Limits
from revar.serving.refusals import busy

_SMOOTH = 0.1
"""Weight of the last pass in the mean time per example."""
_AT_ONCE = 0.002
"""Seconds of a pass that is not worth a thread: waking one costs as much as a small network."""


@dataclass(frozen=True, slots=True)
class _Job:
    x: Tensor
    done: asyncio.Future[Decisions]
    arrived: float


class Batcher:
    """A bounded queue of examples in front of one model.

    Attributes:
        decide: [n, ...] to n decisions; runs in a thread of its own, one call at a time.
        limits: of the batch, the wait and the queue.
        observe: is told of each pass: examples and seconds.
        waiting: examples that wait for a pass.
    """

    def __init__(
        self,
        decide: Callable[[Tensor], Decisions],
        limits: Limits,
        observe: Callable[[int, float], None] = lambda _examples, _seconds: None,
    ) -> None:
        self.decide, self.limits, self.observe = decide, limits, observe
        self.waiting = 0
        self._jobs: deque[_Job] = deque()
        self._coming = 0
        self._closing = False
        self._changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decide")
        self._per_example = 0.01
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; needs a running loop."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Finish everything that was accepted, then stop."""
        self._closing = True
        self._changed.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """A request is being read: an idle server may wait for it."""
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1
            self._changed.set()

    def submit(self, x: Tensor) -> asyncio.Future[Decisions]:
        """The decisions on these examples, when they are made; cancel it to withdraw them.

        Raises:
            Refused: 503, the queue is full or closed.
        """
        if self._closing:
            raise busy("the server is shutting down: ask another one", 5.0)
        if self.waiting + len(x) > self.limits.queue:
            msg = f"{self.waiting} examples are waiting already: try again later"
            raise busy(msg, self.waiting * self._per_example)
        done: asyncio.Future[Decisions] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(x, done, time.monotonic()))
        self.waiting += len(x)
        self._changed.set()
        return done

    async def _run(self) -> None:
        while True:
            while not self._jobs:
                if self._closing:
                    return
                self._changed.clear()
                await self._changed.wait()
            await self._gather()
            await self._compute(self._take())

    async def _gather(self) -> None:
        """Wait for company: until the batch is full, nobody is coming, or for too long."""
        until = self._jobs[0].arrived + self.limits.max_wait
        while self._coming and self.waiting < self.limits.max_batch and not self._closing:
            left = until - time.monotonic()
            if left <= 0:
                return
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                return

    def _take(self) -> list[_Job]:
        """Whole requests, in their order, as many as fit; one that fits nowhere goes alone."""
        taken: list[_Job] = []
        size = 0
        while self._jobs and (not taken or size + len(self._jobs[0].x) <= self.limits.max_batch):
            job = self._jobs.popleft()
            self.waiting -= len(job.x)
            if not job.done.done():
                taken.append(job)
                size += len(job.x)
        return taken

    async def _compute(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            found = await self._pass([job.x for job in jobs])
        except Exception as error:  # whatever it is, the one who asked is told and the next goes on
            if len(jobs) == 1:
                if not jobs[0].done.done():
                    jobs[0].done.set_exception(error)
                return
            # It may be the fault of one of them.
            for job in jobs:
                await self._compute([job])
            return
        start = 0
        for job in jobs:
            if not job.done.done():
                job.done.set_result(found[start : start + len(job.x)])
            start += len(job.x)

    async def _pass(self, parts: list[Tensor]) -> Decisions:
        began = time.monotonic()
        x = parts[0] if len(parts) == 1 else torch.cat(parts)
        if len(x) * self._per_example < _AT_ONCE:
            found = self._sliced(x)
        else:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._thread, self._sliced, x)
        seconds = time.monotonic() - began
        self._per_example += _SMOOTH * (seconds / len(x) - self._per_example)
        self.observe(len(x), seconds)
        return found

    def _sliced(self, x: Tensor) -> Decisions:
        """A request may be longer than a batch."""
        most = self.limits.max_batch
        return Decisions.joined([self.decide(x[i : i + most]) for i in range(0, len(x), most)])

"""Ctrl-C and SIGTERM: finish the step, keep the state, say how to go on."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

_CAUGHT = (signal.SIGINT, signal.SIGTERM)
EARLY = "stopped before its first step, nothing was lost: to go on use --resume"
AT_ONCE = "stopped at once: to go on with what was kept use --resume"


class Stopped(BaseException):
    """Ended at once by a signal; the message is for people.

    Not a KeyboardInterrupt: that typer turns into code 130, whatever the signal was.
    """

    def __init__(self, text: str = "stopped", number: int = signal.SIGINT) -> None:
        super().__init__(text)
        self.exit_code = 128 + number


class Signals:
    """While active, the first signal asks the run to stop after its step, a second ends it at once.

    Before the run has taken its first step there is nothing to keep, and a signal ends it at once
    too. Use with ``with``; the handlers that were there come back.

    Attributes:
        received: the signal, if one came.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._running = False

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _CAUGHT}
        for number in _CAUGHT:
            signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = number
        if not self._running:
            raise Stopped(EARLY, number)
        if again:
            raise Stopped(AT_ONCE, number)

    def stop(self) -> bool:
        """Whether the run should stop now; asked after every step."""
        self._running = True
        return self.received is not None

    @property
    def exit_code(self) -> int:
        """The shell's code for a process ended by the signal."""
        return 128 + (self.received or signal.SIGINT)

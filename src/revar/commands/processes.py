"""Several processes of one command line on this host, which end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn

from revar.errors import InputError
from revar.signals import AT_ONCE, EARLY, Stopped

LOST = 75
"""Exit code of a process that could not go on because another one was lost."""
GRACE = 10.0
"""Seconds the others have to end by themselves after one has failed."""
_ALWAYS, _PER_CORE = 8, 4
"""Processes a host may have in any case, and for each core: far more would fill its memory."""
_LIFELINE = "REVAR_LIFELINE"
"""A pipe that closes when whoever started this process ends."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM)


def rank() -> int:
    """Of this process; 0 if it is alone."""
    return int(os.environ["RANK"]) if count() > 1 else 0


def count() -> int:
    """Of the processes of this job."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_launched() -> bool:
    """Whether `launch` started this process."""
    return _LIFELINE in os.environ


def needs_launch(wanted: int) -> bool:
    """Whether these processes are still to be started.

    Raises:
        InputError: there are others than asked for, or more than a host can hold.
    """
    if wanted < 1:
        raise InputError(f"--processes is {wanted}, it must be at least 1")
    if count() > 1 and wanted not in (1, count()):
        msg = f"--processes is {wanted}, and torchrun has started {count()}: leave it out"
        raise InputError(msg)
    cores = os.cpu_count() or 1
    most = max(_ALWAYS, _PER_CORE * cores)
    if count() == 1 and wanted > most:
        msg = (
            f"--processes is {wanted}, this host with {cores} cores takes at most {most}: "
            "give a number up to that of its GPUs or cores"
        )
        raise InputError(msg)
    return wanted > 1 and count() == 1


def end_with_parent() -> None:
    """Let this process end when the one that launched it does, however that ends."""
    if not is_launched():
        return
    pipe = int(os.environ[_LIFELINE])

    def wait() -> None:
        os.read(pipe, 1)
        os._exit(LOST)

    threading.Thread(target=wait, daemon=True).start()


def leave(code: int) -> NoReturn:
    """End this process of several at once, with all said that was to be said.

    Threads of gloo abort an ordinary exit now and then, after a process was lost and also when all
    has gone well, with another exit code and a line of C++.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@dataclass
class _Forwarding:
    """While active, signals go to the children: they save, and say how to go on."""

    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    complete: bool = False
    early: bool = False
    received: int | None = None

    def __enter__(self) -> _Forwarding:
        self._before = {number: signal.signal(number, self._handle) for number in _FORWARDED}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        if not self.complete:
            # One that is just being started would not hear of it.
            self.early = True
            return
        for child in self.children:
            if child.poll() is None:
                child.send_signal(number)


def launch(wanted: int, arguments: Sequence[str]) -> tuple[int, str | None]:
    """Run ``revar ARGUMENTS`` in several processes; the first one speaks.

    Args:
        wanted: how many processes.
        arguments: of each.

    Returns:
        the exit code, and one line to say if no process has said it.
    """
    cores = max(1, (os.cpu_count() or 1) // wanted)
    reading, writing = os.pipe()
    with TemporaryDirectory(prefix="revar-") as folder, _Forwarding() as signals:
        shared = {
            "OMP_NUM_THREADS": str(cores),
            **os.environ,
            "REVAR_RENDEZVOUS": f"file://{folder}/meeting",
            _LIFELINE: str(reading),
            "WORLD_SIZE": str(wanted),
            "LOCAL_WORLD_SIZE": str(wanted),
        }
        logs = [Path(folder) / f"errors-{number}" for number in range(wanted)]
        for number, log in enumerate(logs):
            with log.open("wb") as errors:
                first = number == 0
                signals.children.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "revar", *arguments],
                        env={**shared, "RANK": str(number), "LOCAL_RANK": str(number)},
                        stdout=None if first else subprocess.DEVNULL,
                        stderr=None if first else errors,
                        pass_fds=[reading],
                        # Signals of the terminal come to us alone, and are handed on once.
                        start_new_session=True,
                    )
                )
        os.close(reading)
        signals.complete = True
        try:
            if signals.early:
                for child in signals.children:
                    child.kill()
            failed = _wait(signals)
        finally:
            os.close(writing)
        said = [log.read_text(errors="replace").strip() for log in logs]
    return _verdict(failed, signals, said)


def _wait(signals: _Forwarding) -> list[int]:
    """Until all have ended; the numbers of those that failed, in the order they did."""
    failed: list[int] = []
    deadline = float("inf")
    while any(child.poll() is None for child in signals.children):
        for number, child in enumerate(signals.children):
            if child.poll() not in (None, 0) and number not in failed:
                failed.append(number)
                # One that was told to stop may be done before the first has saved. One that
                # ended at once leaves others behind that wait for it and hear no signal.
                if signals.received is None or child.returncode in (LOST, -signals.received):
                    deadline = min(deadline, time.monotonic() + GRACE)
        if time.monotonic() > deadline:
            for child in signals.children:
                if child.poll() is None:
                    child.kill()
        time.sleep(0.02)
    failed += [
        number
        for number, child in enumerate(signals.children)
        if child.returncode and number not in failed
    ]
    return failed


def _verdict(
    failed: list[int], signals: _Forwarding, said: Sequence[str]
) -> tuple[int, str | None]:
    codes = [child.returncode for child in signals.children]
    if not failed:
        return 0, None
    if signals.received is not None:
        if codes[0] < 0 or codes[0] == LOST:
            early = signals.early or -signals.received in codes
            raise Stopped(EARLY if early else AT_ONCE, signals.received)
        return 128 + signals.received, None
    if codes[0] > 0 and codes[0] != LOST:
        return codes[0], None
    causes = [number for number in failed if codes[number] != LOST]
    if not causes:
        return 1, "a process hangs, and the others gave up waiting for it"
    number = causes[0]
    last = said[number].splitlines()[-1] if said[number] else "it said nothing"
    if codes[number] == 2:
        return 2, last.removeprefix("error: ")
    if codes[number] < 0:
        how = f"was killed ({signal.Signals(-codes[number]).name})"
    else:
        how = f"ended with code {codes[number]} ({last})"
    return 1, f"process {number} of {len(codes)} {how}, so all were stopped"

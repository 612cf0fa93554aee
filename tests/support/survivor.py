"""Train in forked processes that are killed, and compare what is left.

Run as a script, so that the forks come from a process with one thread and everything imported.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SETTINGS = {"batch_size": "32", "test_passes": "3"}
LAST = 6
"""Renames at the end of a run: its metrics, each with the manifest before and after it."""


def differences(a: Path, b: Path) -> list[str]:
    """Files of two finished runs that are not the same, the clock left out."""
    names = {str(p.relative_to(f)) for f in (a, b) for p in f.rglob("*") if p.is_file()}
    # The manifest follows from the rest; the lock is empty; provenance has the date.
    names -= {"manifest.json", ".lock", "provenance.json"}
    found = []
    for name in sorted(names):
        if not (a / name).exists() or not (b / name).exists():
            found.append(f"{name} is in one of them only")
        elif name == "log.jsonl":
            if log_without_clock(a / name) != log_without_clock(b / name):
                found.append(name)
        elif (a / name).read_bytes() != (b / name).read_bytes():
            found.append(name)
    return found


def log_without_clock(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def in_fork(work: Callable[[], None]) -> int:
    """Do something in a child process; its number."""
    number = os.fork()
    if number:
        return number
    try:
        work()
        os._exit(0)
    except BaseException as error:  # whatever it was, this process must end here
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)


def end_of(number: int) -> int:
    """How a child ended: its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def kill_at_rename(count: int, *, after: bool) -> None:
    """Let this process kill itself before or after its n-th rename."""
    original = Path.replace
    seen = 0

    def replace(self: Path, target: Any) -> Path:
        nonlocal seen
        seen += 1
        if seen == count and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(self, target)
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    Path.replace = replace  # type: ignore[method-assign, assignment]


def renames_of(work: Callable[[], None]) -> int:
    """How many files take their names in it."""
    original, seen = Path.replace, 0

    def replace(self: Path, target: Any) -> Path:
        nonlocal seen
        seen += 1
        return original(self, target)

    Path.replace = replace  # type: ignore[method-assign, assignment]
    try:
        work()
    finally:
        Path.replace = original  # type: ignore[method-assign]
    return seen


def main(root: Path, kills: int) -> dict[str, Any]:
    import torch

    from revar.commands.train import train
    from support.problems import blobs

    torch.set_num_threads(1)
    (x, y), (x_test, y_test) = blobs(), blobs(90, seed=1)
    data = root / "data.npz"
    np.savez(data, x=x, y=y, x_test=x_test, y_test=y_test)
    draw = random.Random(0)
    report: dict[str, Any] = {
        "kills": 0, "rename_kills": 0, "finished_before": 0, "resumes": 0, "wrong": [],
    }  # fmt: skip

    def run(out: Path, method: str, epochs: int) -> None:
        train(str(data), out, method=method, epochs=epochs, settings=SETTINGS, resume=True)

    def check(out: Path, reference: Path, method: str, epochs: int, what: str) -> None:
        code = end_of(in_fork(lambda: run(out, method, epochs)))
        report["resumes"] += 1
        wrong = differences(reference, out) if code == 0 else [f"resume ended with {code}"]
        if wrong:
            report["wrong"].append(f"{what}: {wrong}")

    # Warm, then time, an uninterrupted run.
    run(root / "warm", "revar", 2)
    began = time.monotonic()
    run(root / "reference", "revar", 8)
    duration = time.monotonic() - began
    for number in range(kills):
        out = root / f"killed-{number}"
        delay = draw.uniform(0.0, 1.1 * duration)
        while True:
            child = in_fork(lambda out=out: run(out, "revar", 8))  # type: ignore[misc]
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
            if end_of(child) == -signal.SIGKILL:
                break
            # On a busy machine the reference took long, and the kill came too late.
            report["finished_before"] += 1
            shutil.rmtree(out)
            delay *= 0.7
        report["kills"] += 1
        check(out, root / "reference", "revar", 8, f"killed at a random moment ({number})")

    total = renames_of(lambda: run(root / "short", "erm", 2))
    report["renames"] = total
    # Every second one, now before and now after it; of the last ones, where a run becomes
    # finished, each before and after; and one beyond.
    early = [(1 + 2 * n, bool(n % 2)) for n in range((total - LAST) // 2)]
    late = [(count, after) for count in range(total - LAST, total + 1) for after in (False, True)]
    for number, (count, after) in enumerate([*early, *late, (total + 1, False)]):
        out = root / f"renamed-{number}"

        def work(out: Path = out, count: int = count, after: bool = after) -> None:
            kill_at_rename(count, after=after)
            run(out, "erm", 2)

        report["rename_kills"] += end_of(in_fork(work)) == -signal.SIGKILL
        when = "after" if after else "before"
        check(out, root / "short", "erm", 2, f"killed {when} rename {count}")
    return report


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))

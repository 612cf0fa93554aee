"""Jobs side by side, each worker a process of its own, and what a job that fails has to say."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

import torch

from revar.errors import InputError

ATTEMPTS = 3
"""How often a job is begun whose worker dies."""
DIED = f"its worker died {ATTEMPTS} times (killed, or memory?)"
JobT = TypeVar("JobT", bound=Hashable)
ToldT = TypeVar("ToldT")


def run_all(
    jobs: Sequence[JobT],
    work: Callable[[JobT], ToldT],
    workers: int,
    tell: Callable[[ToldT], None],
    died: Callable[[JobT], ToldT],
    start: Callable[[], None],
) -> None:
    """Run all; each worker is a pool of its own, so that one that dies dies alone.

    Args:
        jobs: in the order in which they begin, all different.
        work: what a worker does with a job.
        workers: how many.
        tell: is told of each one.
        died: what is told of a job whose workers died.
        start: what a worker does first.
    """

    def seat() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=start)

    seats = [seat() for _ in range(min(workers, len(jobs)))]
    waiting, free = list(jobs), list(range(len(seats)))
    begun = dict.fromkeys(jobs, 0)
    running: dict[Future[ToldT], tuple[int, JobT]] = {}
    try:
        while waiting or running:
            while waiting and free:
                job, place = waiting.pop(0), free.pop(0)
                begun[job] += 1
                running[seats[place].submit(work, job)] = place, job
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                place, job = running.pop(done)
                free.append(place)
                try:
                    tell(done.result())
                except BrokenProcessPool:
                    seats[place].shutdown(wait=False)
                    seats[place] = seat()
                    if begun[job] < ATTEMPTS:
                        waiting.insert(0, job)
                        continue
                    tell(died(job))
    finally:
        for one in seats:
            one.shutdown(wait=False, cancel_futures=True)


def in_one_line(error: Exception) -> str:
    """Why a job failed; what users did wrong needs no kind of error."""
    kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())}"[:500]


def let_go() -> None:
    """Give back what a job held on the device: others train beside it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

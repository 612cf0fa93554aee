"""Who trains the missing cells: this process, a pool of processes, or a Ray cluster."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, Protocol

from revar.errors import InputError
from revar.tables.cell import Cell

ATTEMPTS = 3
"""How often a cell is begun whose worker dies."""
REACHED = 10.0
"""Seconds within which the address of a cluster must answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a cell.

    Attributes:
        cell: it.
        reason: why it failed, in one line; ``None`` where it is finished.
    """

    cell: Cell
    reason: str | None = None


Tell = Callable[[Outcome], None]


class Executor(Protocol):
    """Trains cells and tells of each one."""

    def run(self, cells: Sequence[Cell], root: Path, device: str, tell: Tell) -> None:
        """Train all of them; one that fails does not stop the others."""


def train_cell(cell: Cell, root: Path, device: str, *, alone: bool = True) -> Outcome:
    """Train one cell in this process, and say what became of it.

    Args:
        cell: to train.
        root: of the store.
        device: as users name it.
        alone: with all threads; else with one, because others train beside it.
    """
    import torch

    from revar.devices import choose
    from revar.tables.store import CellStore

    if not alone:
        torch.set_num_threads(1)
    try:
        CellStore(root).train(cell, device=choose(device))
    except InputError as error:
        return Outcome(cell, " ".join(str(error).split()))
    except Exception as error:
        return Outcome(cell, f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Outcome(cell)


@dataclass(frozen=True, slots=True)
class Here:
    """One after the other, in this process."""

    def run(self, cells: Sequence[Cell], root: Path, device: str, tell: Tell) -> None:
        """See `Executor`."""
        for cell in cells:
            tell(train_cell(cell, root, device))


@dataclass(frozen=True, slots=True)
class Local:
    """A pool of processes.

    Attributes:
        workers: how many.
    """

    workers: int

    def run(self, cells: Sequence[Cell], root: Path, device: str, tell: Tell) -> None:
        """A worker that is killed breaks the pool: a new one takes up what is not finished."""
        timed = [cell for cell in cells if cell.timed]
        if self.workers > 1 and timed:
            self.run([cell for cell in cells if not cell.timed], root, device, tell)
            Local(1).run(timed, root, device, tell)
            return
        left = dict.fromkeys(cells, 0)
        while left:
            try:
                self._once(left, root, device, tell)
            except BrokenProcessPool:
                for cell in [cell for cell, begun in left.items() if begun >= ATTEMPTS]:
                    del left[cell]
                    tell(Outcome(cell, f"its worker died {ATTEMPTS} times (killed, or memory?)"))

    def _once(self, left: dict[Cell, int], root: Path, device: str, tell: Tell) -> None:
        context = get_context("spawn")
        with ProcessPoolExecutor(self.workers, context, initializer=_end_with_parent) as pool:
            waiting = list(left)
            running: dict[Future[Outcome], Cell] = {}
            # No more than there are workers, to know which cells a broken pool was at.
            while waiting or running:
                while waiting and len(running) < self.workers:
                    cell = waiting.pop(0)
                    left[cell] += 1
                    job = pool.submit(train_cell, cell, root, device, alone=self.workers == 1)
                    running[job] = cell
                for job in wait(running, return_when=FIRST_COMPLETED).done:
                    outcome = job.result()
                    del left[running.pop(job)]
                    tell(outcome)


@dataclass(frozen=True, slots=True)
class Ray:
    """A Ray cluster: each cell a task that is tried again where its worker dies.

    Attributes:
        address: of a cluster, or none: one is started on this machine.
        gpus: share of a GPU for each cell.
        cpus: for each cell.
    """

    address: str | None = None
    gpus: float = 0.0
    cpus: float = 1.0

    def run(self, cells: Sequence[Cell], root: Path, device: str, tell: Tell) -> None:
        """The store must be a folder that all machines of the cluster share.

        Raises:
            InputError: there is no cluster at the address.
        """
        ray = _ray()
        started = not ray.is_initialized()
        if started:
            # Ray reads the variable by itself, and would wait for minutes.
            address = self.address or os.environ.get("RAY_ADDRESS")
            _require_reached(address)
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError) as error:
                why = (str(error) or type(error).__name__).splitlines()[0]
                raise InputError(f'no Ray cluster at address "{address}": {why}') from error
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=ATTEMPTS - 1)(
            train_cell
        )
        try:
            together = [cell for cell in cells if not cell.timed]
            for some in (together, *([cell] for cell in cells if cell.timed)):
                self._all(ray, task, some, root, device, tell)
        finally:
            if started:
                ray.shutdown()

    def _all(
        self, ray: Any, task: Any, cells: Sequence[Cell], root: Path, device: str, tell: Tell
    ) -> None:
        running = {task.remote(cell, root.resolve(), device, alone=False): cell for cell in cells}
        while running:
            (job, *_), _ = ray.wait(list(running), num_returns=1)
            cell = running.pop(job)
            try:
                tell(ray.get(job))
            except ray.exceptions.RayError as error:
                tell(Outcome(cell, f"Ray: {str(error).splitlines()[0]}"))


def _end_with_parent() -> None:
    """Let a worker of a pool end when the process that made the pool is killed."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        # A pipe, which closes however the parent ends.
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _require_reached(address: str | None) -> None:
    """Refuse HOST:PORT where nothing listens: Ray itself would wait for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED).close()
    except (OSError, OverflowError, ValueError) as error:
        msg = f'no Ray cluster at address "{address}": {error}; start one with "ray start --head"'
        raise InputError(msg) from error


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise InputError('--executor ray needs Ray: pip install "revar[ray]"') from error
    return ray

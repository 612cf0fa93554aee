"""``revar paper NAME``, ``pack`` and ``merge``"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from revar.devices import choose
from revar.errors import InputError, unknown
from revar.published import PublishedTable, published
from revar.report import tables as report
from revar.tables.catalogue import TABLES, left_out, tables_at
from revar.tables.executors import Executor, Here, Local, Outcome, Ray
from revar.tables.places import scale_of
from revar.tables.run import Answered, answer_tables

EXECUTORS = ("here", "local", "ray")
MEMORY_OF_A_RUN = 8 * 2**30
"""Bytes of a GPU that one run is taken to need: fifteen side by side took less of an H200."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Tables, answered and written.

    Attributes:
        tables: with the paper's own beside each, where it has one.
        folder: they were written to.
        failures: reasons of cells that failed, each once.
        left_out: why places have no columns at this scale, by their names.
    """

    tables: list[tuple[Answered, PublishedTable | None]]
    folder: Path
    failures: list[str]
    left_out: dict[str, str]

    def records(self) -> list[dict[str, Any]]:
        """Every place of every table, for machines."""
        return [
            line
            for one, paper in self.tables
            for line in report.records(one.grid, one.answers, paper, one.grid.stands_for)
        ]


def run_tables(
    names: Sequence[str],
    scale: str,
    out: Path,
    *,
    seeds: int | None = None,
    executor: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    device: str = "auto",
    tell: Callable[[int, int, Outcome | None], None] | None = None,
) -> Answers:
    """Train the missing cells of tables and write what they say.

    Args:
        names: of ``revar list tables``, or ``all``.
        scale: ``smoke``, ``small`` or ``paper``.
        out: a folder; its cells are shared by all tables.
        seeds: how many, if not the scale's own.
        executor: ``here``, ``local``, ``ray``, or ``none`` to train nothing.
        workers: runs at once of ``local``, or of ``ray`` on one GPU.
        address: of a Ray cluster.
        device: to train on.
        tell: is told of progress.

    Raises:
        InputError: a name that is none, a table without columns at this scale, or an address
            that nobody asks.
    """
    size = scale_of(scale, seeds)
    chosen = tables_at(names, size)
    who = _executor(executor or ("here" if scale == "smoke" else "local"), workers, address, device)
    answered = answer_tables(chosen, size, out / "cells", who, device=device, tell=tell)
    tables = [(one, paper_table(one.grid.name)) for one in answered if one.grid.columns]
    for one, paper in tables:
        report.write_table(out / "tables", one.grid, one.answers, paper, one.grid.stands_for)
    failures = report.failures([one.answers for one in answered])
    without = left_out(TABLES if "all" in names else chosen, size)
    return Answers(tables, out / "tables", failures, without)


def _executor(name: str, workers: int | None, address: str | None, device: str) -> Executor | None:
    if workers is not None and workers < 1:
        raise InputError(f"--workers must be at least 1, it is {workers}")
    if address is not None and name != "ray":
        msg = f'--address is "{address}", but --executor is {name}: only ray takes an address'
        raise InputError(msg)
    on_gpu = choose(device).type == "cuda"
    if name == "none":
        return None
    if name == "here":
        return Here()
    if name == "local":
        return Local(workers or runs_at_once(device))
    if name == "ray":
        return Ray(address, gpus=1 / (workers or runs_at_once(device)) if on_gpu else 0.0)
    raise unknown("executor", name, [*EXECUTORS, "none"])


def runs_at_once(device: str) -> int:
    """As many as there are cores, and on a GPU no more than its free memory holds."""
    cores, where = os.cpu_count() or 1, choose(device)
    if where.type != "cuda":
        return cores
    free, _ = torch.cuda.mem_get_info(where)
    return max(1, min(cores, free // MEMORY_OF_A_RUN))


def paper_table(name: str) -> PublishedTable | None:
    """What the paper prints under the name of a grid, if it prints anything."""
    try:
        return published(name)
    except InputError:
        return None

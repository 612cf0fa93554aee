"""Watching a run: a progress bar for people, a log for machines."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from revar.totals import EpochRecord
from revar.training import Observer

_REFRESH = 0.5
"""Seconds between two readings of the running figures."""


class Silent:
    """Watches nothing."""

    def started(self, *, step: int, total: int, epochs: int) -> None:
        """Nothing."""

    def stepped(self, step: int, figures: Callable[[], dict[str, float]]) -> None:
        """Nothing."""

    def finished_epoch(self, record: EpochRecord) -> None:
        """Nothing."""


class Bar:
    """A progress bar with loss, accuracy, meta-loss, weights and time left; use with ``with``.

    Where nobody can see a bar move, ten lines are printed instead.
    """

    def __init__(self, console: Console, label: str) -> None:
        self._console = console
        self._label = label
        self._epochs = 0
        self._total = 1
        self._task: TaskID | None = None
        self._read_at = 0.0
        self._progress = Progress(
            # Eighty columns, meta-loss, weights and all.
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[figures]}", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def started(self, *, step: int, total: int, epochs: int) -> None:
        """Show the bar, where the run stands already."""
        self._epochs, self._total = epochs, max(total, 1)
        self._task = self._progress.add_task(self._label, total=total, completed=step, figures="")

    def stepped(self, step: int, figures: Callable[[], dict[str, float]]) -> None:
        """Move on; read the figures now and then."""
        assert self._task is not None
        now = time.monotonic()
        if now - self._read_at < _REFRESH and step < self._total:
            return
        self._read_at = now
        epoch = min(self._epochs, step * self._epochs // self._total + 1)
        text = f"{epoch}/{self._epochs} {describe(figures())}"
        self._progress.update(self._task, completed=step, figures=text.rstrip())

    def finished_epoch(self, record: EpochRecord) -> None:
        """What the whole epoch came to; a line now and then, where there is no bar."""
        figures = {k: v for k, v in asdict(record).items() if v is not None}
        text = f"{record.epoch}/{self._epochs} {describe(figures)}"
        if self._console.is_terminal:
            assert self._task is not None
            self._progress.update(self._task, completed=record.step, figures=text)
            return
        tenth = -(-self._epochs // 10)
        if record.epoch % tenth == 0 or record.epoch == self._epochs:
            self._console.print(f"{self._label} epoch {text}", highlight=False)


def describe(figures: dict[str, float]) -> str:
    """Running figures in one short line.

    >>> describe({"loss": 0.5, "accuracy": 0.9, "weight_mean": 1.0, "weight_spread": 0.25})
    'loss 0.500 acc 90.0% w 1.00±0.25'
    """
    text = f"loss {figures['loss']:.3f}" if "loss" in figures else ""
    if "accuracy" in figures:
        text += f" acc {figures['accuracy']:.1%}"
    if "meta_loss" in figures:
        text += f" meta {figures['meta_loss']:.3f}"
    if "weight_mean" in figures:
        text += f" w {figures['weight_mean']:.2f}±{figures['weight_spread']:.2f}"
    return text


class Log:
    """``log.jsonl``: one line an epoch, flushed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def started(self, *, step: int, total: int, epochs: int) -> None:
        """Nothing: the folder may not be there yet."""

    def stepped(self, step: int, figures: Callable[[], dict[str, float]]) -> None:
        """Nothing."""

    def finished_epoch(self, record: EpochRecord) -> None:
        """Append a line; an epoch that was logged and then trained again is logged once."""
        lines = self._path.read_text().splitlines(keepends=True) if self._path.exists() else []
        kept = [line for line in lines if _epoch_of(line) < record.epoch]
        if len(kept) < len(lines):
            beside = self._path.with_name(f".{self._path.name}.new")
            beside.write_text("".join(kept))
            beside.replace(self._path)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(record)) + "\n")
            file.flush()


def _epoch_of(line: str) -> float:
    """The epoch a line speaks of; beyond all epochs for a line that was cut off."""
    try:
        return float(json.loads(line)["epoch"]) if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf


class Both:
    """Two observers at once."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._observers = (first, second)

    def started(self, *, step: int, total: int, epochs: int) -> None:
        """Tell both."""
        for observer in self._observers:
            observer.started(step=step, total=total, epochs=epochs)

    def stepped(self, step: int, figures: Callable[[], dict[str, float]]) -> None:
        """Tell both."""
        for observer in self._observers:
            observer.stepped(step, figures)

    def finished_epoch(self, record: EpochRecord) -> None:
        """Tell both."""
        for observer in self._observers:
            observer.finished_epoch(record)

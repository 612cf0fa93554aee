"""Finished cells on disk: what was asked, what was found, and the predictions it came from.

cells/<digest>/cell.json          what was asked, and the recipe
/metrics.json       every figure of every set
/scores.json        what the tune split decided
/predictions/       one file a set
/log.jsonl, provenance.json
cells/<digest>.run/               the run folder while it trains
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from revar import fields
from revar.errors import InputError
from revar.evaluation import evaluate
from revar.keeping import train_into
from revar.predictions import Predictions
from revar.run import LOG, RunFolder
from revar.scores.learned import Fitted
from revar.tables.cell import Cell
from revar.tables.sources import source_of
from revar.training import Observer

ASKED, METRICS, SCORES = "cell.json", "metrics.json", "scores.json"
AGAIN = "remove its folder to have it trained again"
KEPT_SETS = ("meta", "tune")
"""Sets of a run that a finished cell keeps beside its test sets: what calibrators learn from."""
_T = TypeVar("_T")


class NoPredictionsError(InputError):
    """A cell that came without its predictions was asked for more than its figures."""


@dataclass(frozen=True)
class Finished:
    """A finished cell.

    Attributes:
        path: its folder.
    """

    path: Path

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Figures by set, as `revar.evaluation.evaluate` gives them, and the time it took."""
        return self.read(METRICS)

    @cached_property
    def fitted(self) -> Fitted:
        """What the tune split decided."""
        found = self.read(SCORES)
        try:
            return fields.from_json(Fitted, found)
        except (InputError, TypeError, AttributeError) as error:
            raise self._damaged(SCORES, str(error)) from error

    @cached_property
    def seed(self) -> int:
        """Of data draws and run."""
        found = self.read(ASKED).get("seed")
        if not isinstance(found, int):
            raise self._damaged(ASKED, "it has no seed")
        return found

    @property
    def has_predictions(self) -> bool:
        """Whether it has any; one that was packed without them has none."""
        return any((self.path / "predictions").glob("*.safetensors"))

    def entry(self, kind: type[_T], *names: str) -> _T:
        """What ``metrics.json`` holds under names, one within the other.

        Args:
            kind: what it must be.
            names: a set first.

        Raises:
            InputError: it is not there, or something else.
        """
        found = self._under(names)
        if not isinstance(found, kind):
            raise self._damaged(METRICS, f"it has no {'/'.join(names)}")
        return found

    def number(self, *names: str) -> float:
        """A figure of ``metrics.json``; NaN where it is undefined.

        Raises:
            InputError: it is not there, or no number.
        """
        found = self._under(names)
        if found is not None and not isinstance(found, int | float):
            raise self._damaged(METRICS, f"{'/'.join(names)} is no number")
        return math.nan if found is None else float(found)

    def predictions(self, name: str) -> Predictions:
        """On one set.

        Raises:
            NoPredictionsError: it came without any.
            InputError: there are none on this set, or they are damaged.
        """
        if not self.has_predictions:
            raise NoPredictionsError(
                f'cell "{self.path.name}" has no predictions: merge a file that has them, or have '
                "it trained again, with another executor than none"
            )
        file = self.path / "predictions" / f"{name}.safetensors"
        if not file.exists():
            msg = f'cell "{self.path.name}" has no predictions on "{name}"'
            raise InputError(f"{msg}; {AGAIN}")
        return Predictions.from_bytes(file.read_bytes(), str(file))

    def log(self, name: str) -> list[float]:
        """One column of the log, by epoch.

        Raises:
            InputError: the log is damaged, or has no such column.
        """
        try:
            lines = (self.path / LOG).read_text(encoding="utf-8").splitlines()
            found = [float(json.loads(line)[name]) for line in lines]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(LOG, f"{type(error).__name__}: {error}") from error
        if not found:
            raise self._damaged(LOG, "it is empty")
        return found

    def read(self, name: str) -> dict[str, Any]:
        """One of its JSON files.

        Raises:
            InputError: it is damaged, or not there.
        """
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._damaged(name, str(error)) from error
        if not isinstance(found, dict):
            raise self._damaged(name, "it is no JSON object")
        return found

    def _under(self, names: tuple[str, ...]) -> Any:
        found: Any = self.metrics
        for name in names:
            if not isinstance(found, dict) or name not in found:
                raise self._damaged(METRICS, f"it has no {'/'.join(names)}")
            found = found[name]
        return found

    def _damaged(self, name: str, why: str) -> InputError:
        return InputError(f'"{self.path / name}" cannot be read: {why}; {AGAIN}')


@dataclass(frozen=True)
class CellStore:
    """A folder of cells."""

    root: Path

    def path(self, cell: Cell) -> Path:
        """Where a cell is, or will be."""
        return self.root / cell.digest

    def find(self, cell: Cell) -> Finished | None:
        """The finished cell, if it is."""
        path = self.path(cell)
        return Finished(path) if (path / ASKED).exists() else None

    def train(
        self,
        cell: Cell,
        *,
        device: torch.device,
        observer: Observer | None = None,
        keep_weights: bool = False,
    ) -> Finished:
        """Train what is missing of a cell; a killed one goes on from its last epoch.

        One that is finished and came without predictions is trained again, and stays as it is
        until that is done.

        Raises:
            InputError: it cannot be trained as asked.
        """
        found = self.find(cell)
        if found is not None and found.has_predictions:
            return found
        self.root.mkdir(parents=True, exist_ok=True)
        run = RunFolder(self.root / f"{cell.digest}.run")
        recipe = cell.recipe()
        source = source_of(cell, recipe)
        asked = json.dumps(cell.to_json(), sort_keys=True)
        train_into(
            run, recipe, source, {"cell": asked}, resume=True, device=device, observer=observer
        )
        return self._finish(cell, run, keep_weights=keep_weights)

    def _finish(self, cell: Cell, run: RunFolder, *, keep_weights: bool) -> Finished:
        """Keep what tables need; the folder appears under its name when it is whole."""
        beside = self.root / f".{cell.digest}.new"
        shutil.rmtree(beside, ignore_errors=True)
        (beside / "predictions").mkdir(parents=True)
        names = run.prediction_names()
        kept = [name for name in names if name != "train" and name != "unlabelled"]
        metrics = {}
        for name in kept:
            found = run.predictions(name)
            (beside / "predictions" / f"{name}.safetensors").write_bytes(found.to_bytes())
            if name not in KEPT_SETS and found.labels is not None:
                metrics[name] = evaluate(found, run.fitted())
        _write(beside / METRICS, metrics)
        _write(beside / SCORES, fields.to_json(run.fitted()))
        for name in (LOG, "provenance.json"):
            shutil.copy(run.path / name, beside / name)
        recipe = run.recipe()
        if keep_weights:
            shutil.copytree(run.path, beside / "run")
        _write(beside / ASKED, {**cell.to_json(), "recipe": recipe})
        path, before = self.path(cell), self.root / f".{cell.digest}.old"
        shutil.rmtree(before, ignore_errors=True)
        if path.exists():
            path.rename(before)
        beside.replace(path)
        shutil.rmtree(before, ignore_errors=True)
        shutil.rmtree(run.path)
        return Finished(path)


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")

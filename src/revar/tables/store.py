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
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

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

KEPT_SETS = ("meta", "tune")
"""Sets of a run that a finished cell keeps beside its test sets: what calibrators learn from."""


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
        found: dict[str, Any] = self._json("metrics.json")
        return found

    @cached_property
    def fitted(self) -> Fitted:
        """What the tune split decided."""
        return fields.from_json(Fitted, self._json("scores.json"))

    @cached_property
    def asked(self) -> dict[str, Any]:
        """What ``cell.json`` holds."""
        found: dict[str, Any] = self._json("cell.json")
        return found

    def predictions(self, name: str) -> Predictions:
        """On one set.

        Raises:
            InputError: there are none, or they are damaged.
        """
        file = self.path / "predictions" / f"{name}.safetensors"
        if not file.exists():
            raise InputError(f'cell "{self.path.name}" has no predictions on "{name}"')
        return Predictions.from_bytes(file.read_bytes(), str(file))

    def log(self, name: str) -> list[float]:
        """One column of the log, by epoch."""
        lines = (self.path / LOG).read_text(encoding="utf-8").splitlines()
        return [float(json.loads(line)[name]) for line in lines]

    def _json(self, name: str) -> Any:
        file = self.path / name
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            msg = f'"{file}" cannot be read: {error}; remove its folder to have it trained again'
            raise InputError(msg) from error


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
        return Finished(path) if (path / "cell.json").exists() else None

    def train(
        self,
        cell: Cell,
        *,
        device: torch.device,
        observer: Observer | None = None,
        keep_weights: bool = False,
    ) -> Finished:
        """Train what is missing of a cell; a killed one goes on from its last epoch.

        Raises:
            InputError: it cannot be trained as asked.
        """
        found = self.find(cell)
        if found is not None:
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
        _write(beside / "metrics.json", metrics)
        _write(beside / "scores.json", fields.to_json(run.fitted()))
        for name in (LOG, "provenance.json"):
            shutil.copy(run.path / name, beside / name)
        recipe = run.recipe()
        if keep_weights:
            shutil.copytree(run.path, beside / "run")
        _write(beside / "cell.json", {**cell.to_json(), "recipe": recipe})
        beside.replace(self.path(cell))
        shutil.rmtree(run.path)
        return Finished(self.path(cell))


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")

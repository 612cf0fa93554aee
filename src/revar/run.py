"""A run is a folder.

    recipe.json              what was chosen, the data it was trained on
    model.json               classes, what one example looks like
    scores.json              what the tune split decided: orientation, fusion, default score
    threshold.json           if one was set
    weights.safetensors      f, g and the normalisation
    optimiser.safetensors    both optimisers and the random generators at the end
    state.json               where training stood then
    fingerprints.safetensors which examples served as what
    predictions/             one file a split, the training points' U-Scores and weights too
    metrics.csv              every figure of every labelled set
    log.jsonl                one line an epoch
    provenance.json          versions, hardware, date, command

While it trains, the last whole checkpoint lies in ``checkpoint-<epoch>/``.
"""

from __future__ import annotations

import csv
import io
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from revar import __version__, fields
from revar.checkpoint import progress_of, restore, weights_of
from revar.data.frames import FrameInputs
from revar.data.inputs import ArrayInputs, Inputs
from revar.data.labels import Classes
from revar.errors import InputError
from revar.evaluation import evaluate, rows
from revar.files import (
    read_json,
    read_tensors,
    write_atomically,
    write_json,
    write_tensors,
    write_text,
)
from revar.fitting import build_networks
from revar.model import Model
from revar.predictions import Predictions
from revar.recipe import Recipe
from revar.scores.learned import Fitted
from revar.selection import Threshold
from revar.splits import Fingerprint
from revar.training import TrainingState
from revar.types import Task

FORMAT = 1
"""Raised when a folder written now could not be read by an older version."""
_INPUTS: dict[str, type[Inputs]] = {"array": ArrayInputs, "frame": FrameInputs}


@dataclass
class RunFolder:
    """A run on disk.

    Attributes:
        path: the folder.
    """

    path: Path

    # While training -------------------------------------------------------------------------

    def begin(self, recipe: Recipe, data: dict[str, Any], *, resume: bool) -> None:
        """Make the folder, or check that it holds the same run.

        Args:
            recipe: resolved.
            data: where the data came from and its fingerprint.
            resume: go on with an unfinished run of the same recipe and data.

        Raises:
            InputError: the folder is in use, or holds another run.
        """
        chosen = {"format": FORMAT, **recipe.to_json(), "data": data}
        if (self.path / "recipe.json").exists():
            if not resume:
                raise InputError(
                    f'"{self.path}" holds a run already: use --resume or another --out'
                )
            there = read_json(self.path / "recipe.json")
            difference = _first_difference(there, chosen)
            if difference:
                raise InputError(f'"{self.path}" holds another run: {difference}')
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f'"{self.path}" exists and is not empty: choose another folder')
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "provenance.json", provenance())
        write_json(self.path / "recipe.json", chosen)

    @property
    def finished(self) -> bool:
        """Whether training and everything after it is done."""
        return (self.path / "metrics.csv").exists()

    def _checkpoints(self) -> list[Path]:
        return sorted(self.path.glob("checkpoint-*"))

    def save_checkpoint(self, state: TrainingState) -> None:
        """Keep this state; the one before goes when this one is whole."""
        older = self._checkpoints()
        target = self.path / f"checkpoint-{state.epoch:06d}"
        beside = self.path / f".{target.name}.new"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        _write_state(beside, state)
        beside.replace(target)
        for path in older:
            if path != target:
                shutil.rmtree(path)

    def load_checkpoint(self, state: TrainingState) -> bool:
        """Bring a new state to the last checkpoint; whether there was one."""
        found = self._checkpoints()
        if not found:
            return False
        last = found[-1]
        weights = read_tensors(last / "weights.safetensors")
        tensors = read_tensors(last / "optimiser.safetensors")
        restore(state, weights, tensors, read_json(last / "state.json"))
        return True

    # When training is done ------------------------------------------------------------------

    def write(self, model: Model) -> None:
        """Write a trained model; its metrics come last and mark the run as finished."""
        last = self._checkpoints()
        if last:
            for name in ("optimiser.safetensors", "state.json"):
                write_atomically(self.path / name, partial(shutil.copyfile, last[-1] / name))
        weights = {k: v.detach().cpu() for k, v in model.networks.state_dict().items()}
        write_tensors(self.path / "weights.safetensors", weights)
        described = {name: fields.to_json(getattr(model, name)) for name in ("inputs", "task")}
        described["classes"] = list(model.classes.values)
        write_json(self.path / "model.json", described)
        write_json(self.path / "scores.json", fields.to_json(model.fitted))
        self.write_decisions(model)
        (self.path / "predictions").mkdir(exist_ok=True)
        for name, predictions in model.predictions.items():
            self.write_predictions(name, predictions)
        figures = [
            row
            for name, predictions in model.predictions.items()
            for row in rows(name, evaluate(predictions, model.fitted))
        ]
        self.write_metrics(figures)
        for path in last:
            shutil.rmtree(path)

    def write_decisions(self, model: Model) -> None:
        """What may change after training: the threshold, and what examples were used for."""
        prints = {
            name: torch.from_numpy(print_.rows) for name, print_ in model.fingerprints.items()
        }
        write_tensors(self.path / "fingerprints.safetensors", prints)
        if model.threshold is not None:
            write_json(self.path / "threshold.json", fields.to_json(model.threshold))

    def write_predictions(self, name: str, predictions: Predictions) -> None:
        """One file a set."""
        (self.path / "predictions").mkdir(exist_ok=True)
        write_atomically(self._predictions_path(name), predictions.save)

    def write_metrics(self, table: Iterable[tuple[str, str, str, float | None]]) -> None:
        """``metrics.csv``; figures of sets written before stay."""
        new = [[split, score, metric, _cell(value)] for split, score, metric, value in table]
        path = self.path / "metrics.csv"
        old: list[list[str]] = []
        if path.exists():
            replaced = {row[0] for row in new}
            with path.open(newline="", encoding="utf-8") as file:
                old = [row for row in list(csv.reader(file))[1:] if row[0] not in replaced]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["split", "score", "metric", "value"])
        writer.writerows(old + new)
        write_text(path, text.getvalue())

    # Afterwards -----------------------------------------------------------------------------

    def _predictions_path(self, name: str) -> Path:
        return self.path / "predictions" / f"{name}.safetensors"

    def predictions(self, name: str) -> Predictions:
        """The predictions on one set.

        Raises:
            InputError: the run has none of that name.
        """
        return Predictions.load(self._predictions_path(name))

    def prediction_names(self) -> list[str]:
        """The sets there are predictions for."""
        return sorted(path.stem for path in (self.path / "predictions").glob("*.safetensors"))

    def recipe(self) -> dict[str, Any]:
        """What ``recipe.json`` holds.

        Raises:
            InputError: this folder is no run.
        """
        if not (self.path / "recipe.json").exists():
            raise InputError(f'"{self.path}" is no run: it has no recipe.json')
        data: dict[str, Any] = read_json(self.path / "recipe.json")
        if data.get("format") != FORMAT:
            msg = f'"{self.path}" has format {data.get("format")}, this version reads {FORMAT}'
            raise InputError(msg)
        return data

    def fitted(self) -> Fitted:
        """What the tune split decided."""
        return fields.from_json(Fitted, read_json(self.path / "scores.json"))

    def load(self, *, device: torch.device, module: nn.Module | None = None) -> Model:
        """The trained model.

        Args:
            device: to put it on.
            module: the network it was trained with, where that was the user's own.

        Raises:
            InputError: no finished run, damaged, or a custom network is missing.
        """
        chosen = self.recipe()
        if not self.finished:
            raise InputError(f'"{self.path}" is unfinished: train it with --resume first')
        for key in ("format", "data"):
            chosen.pop(key)
        recipe = Recipe.from_json(chosen)
        if recipe.backbone == "custom" and module is None:
            msg = f'"{self.path}" was trained with a network of your own: give it as backbone='
            raise InputError(msg)
        described = read_json(self.path / "model.json")
        task = fields.from_json(Task, described["task"])
        networks = build_networks(recipe, task, torch.zeros(2, *task.input_shape), module, device)
        try:
            networks.load_state_dict(read_tensors(self.path / "weights.safetensors"))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise InputError(f'the weights in "{self.path}" do not fit: {reason}') from error
        tensors = read_tensors(self.path / "fingerprints.safetensors")
        threshold = self.path / "threshold.json"
        return Model(
            recipe=recipe,
            task=task,
            classes=Classes(tuple(described["classes"])),
            inputs=fields.from_json(_INPUTS[described["inputs"]["kind"]], described["inputs"]),
            networks=networks,
            fitted=self.fitted(),
            device=device,
            fingerprints={k: Fingerprint.of_rows(v.numpy()) for k, v in tensors.items()},
            threshold=fields.from_json(Threshold, read_json(threshold))
            if threshold.exists()
            else None,
        )


def _write_state(folder: Path, state: TrainingState) -> None:
    tensors, plain = progress_of(state)
    write_tensors(folder / "weights.safetensors", weights_of(state))
    write_tensors(folder / "optimiser.safetensors", tensors)
    write_json(folder / "state.json", plain)


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value)


def _first_difference(there: dict[str, Any], here: dict[str, Any], path: str = "") -> str:
    """The first field two recipes differ in, as a sentence, or nothing."""
    for key in sorted({*there, *here}):
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found = _first_difference(old, new, f"{path}{key}.")
            if found:
                return found
        elif old != new:
            return f"its {path}{key} is {old!r}, not {new!r}"
    return ""


def provenance() -> dict[str, Any]:
    """Versions, hardware, date and command."""
    cuda = torch.cuda.is_available()
    return {
        "revar": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": torch.cuda.get_device_name() if cuda else platform.processor(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }

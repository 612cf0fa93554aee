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
    manifest.json            a checksum of each of these

While it trains, the last whole checkpoint lies in ``checkpoint-<step>-<epoch>/``.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import nn

from revar import fields
from revar.checkpoint import progress_of, restore, weights_of
from revar.data.frames import FrameInputs
from revar.data.inputs import ArrayInputs, Inputs
from revar.data.labels import Classes
from revar.errors import InputError
from revar.evaluation import evaluate, rows
from revar.fitting import build_networks
from revar.methods.base import Method
from revar.model import Model
from revar.predictions import Predictions
from revar.provenance import provenance
from revar.recipe import Recipe, completed, first_difference, is_registered
from revar.scores.learned import Fitted
from revar.selection import Threshold
from revar.splits import Fingerprint
from revar.store import MANIFEST, Store
from revar.stored_predictions import StoredPredictions
from revar.training import TrainingState
from revar.types import Task

FORMAT = 3
"""Raised when a folder written now could not be read by an older version."""
LOG = "log.jsonl"
ARRAYS = "arrays"
"""What a run says of its data that was trained from Python."""
_INPUTS: dict[str, type[Inputs]] = {"array": ArrayInputs, "frame": FrameInputs}
_PREDICTIONS = "predictions"
_EARLY = {".lock", MANIFEST, "provenance.json"}
"""What may lie in the folder of a run that was killed before it had a recipe."""


@dataclass
class RunFolder:
    """A run on disk.

    Attributes:
        path: the folder.
    """

    path: Path
    _lock: FileLock | None = field(default=None, repr=False)

    @property
    def store(self) -> Store:
        """Its files, checked."""
        return Store(self.path)

    # While training -------------------------------------------------------------------------

    def begin(self, recipe: Recipe, data: dict[str, Any], *, resume: bool) -> None:
        """Make the folder, or check that it holds the same run; then it is ours until `end`.

        Args:
            recipe: resolved.
            data: where the data came from and its fingerprint.
            resume: go on with an unfinished run of the same recipe and data.

        Raises:
            InputError: the folder is in use, or holds another run.
        """
        if (self.path / "recipe.json").exists() and not resume:
            raise InputError(f'"{self.path}" holds a run already: choose another folder')
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f'cannot make the folder "{self.path}": {error.strerror}'
            raise InputError(msg) from error
        self._acquire()
        # The file, not the manifest: that names a file a moment before it is there.
        if (self.path / "recipe.json").exists():
            self.check_same(recipe, data)
            return
        strange = {path.name for path in self.path.iterdir() if path.suffix != ".new"} - _EARLY
        if strange:
            raise InputError(f'"{self.path}" exists and is not empty: choose another folder')
        self.store.write_json("provenance.json", provenance())
        self.store.write_json("recipe.json", _chosen(recipe, data))

    def discard(self) -> None:
        """Take back what was written since `begin` made the folder, and nothing of anybody else."""
        self.store.tidy()
        for name in (*self.store.names(), MANIFEST):
            (self.path / name).unlink(missing_ok=True)
        below = self.path / _PREDICTIONS
        if below.is_dir() and not any(below.iterdir()):
            below.rmdir()

    def check_same(self, recipe: Recipe, data: dict[str, Any]) -> None:
        """Refuse to go on with a run of another recipe or on other data.

        Raises:
            InputError: naming the first field that differs.
        """
        there = self.store.read_json("recipe.json")
        here = _chosen(recipe, _as_old(data, there["data"]))
        difference = first_difference(completed(there), here)
        if difference:
            msg = f'"{self.path}" holds another run: {difference}; choose another folder'
            raise InputError(msg)

    def _acquire(self, seconds: float = 0.0) -> None:
        lock = FileLock(self.path / ".lock", timeout=seconds)
        try:
            lock.acquire()
        except Timeout as error:
            msg = f'"{self.path}" is in use by another process: wait for it or use another folder'
            raise InputError(msg) from error
        except OSError as error:
            raise InputError(f'cannot write "{self.path}": {error.strerror}') from error
        self._lock = lock

    @contextmanager
    def held(self, seconds: float = 10.0) -> Iterator[None]:
        """Have the folder to oneself for a short while, waiting for others that do the same.

        Raises:
            InputError: somebody else keeps it.
        """
        self._acquire(seconds)
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Let others have the folder; a process that dies does this too."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def finished(self) -> bool:
        """Whether training and everything after it is done."""
        if "metrics.csv" not in self.store.names():
            return False
        # A name is listed just before its file takes its place, and checkpoints go after that:
        # without either the run was finished and has lost the file.
        return (self.path / "metrics.csv").exists() or not self._checkpoints()

    def _checkpoints(self) -> list[Path]:
        return sorted(self.path.glob("checkpoint-*"))

    def save_checkpoint(self, state: TrainingState) -> None:
        """Keep this state; the one before goes when this one is whole.

        Raises:
            InputError: it cannot be written; the one before is still there.
        """
        older = self._checkpoints()
        # Both: after the last step of an epoch its books are still open, then they are closed.
        target = self.path / f"checkpoint-{state.step:09d}-{state.epoch:06d}"
        if target.exists():
            return
        beside = self.path / f".{target.name}.new"
        shutil.rmtree(beside, ignore_errors=True)
        try:
            beside.mkdir()
            tensors, plain = progress_of(state)
            store = Store(beside)
            store.write_tensors("weights.safetensors", weights_of(state))
            store.write_tensors("optimiser.safetensors", tensors)
            store.write_json("state.json", plain)
        except (InputError, OSError) as error:
            shutil.rmtree(beside, ignore_errors=True)
            kept = "the last checkpoint is intact" if older else "there is no checkpoint yet"
            raise InputError(f"{error}; {kept}, make room and use --resume") from error
        beside.replace(target)
        for path in older:
            shutil.rmtree(path)

    def load_checkpoint(self, state: TrainingState) -> bool:
        """Bring a new state to the last checkpoint; whether there was one."""
        found = self._checkpoints()
        if not found:
            return False
        store = Store(found[-1])
        weights = store.read_tensors("weights.safetensors")
        tensors = store.read_tensors("optimiser.safetensors")
        restore(state, weights, tensors, store.read_json("state.json"))
        return True

    # When training is done ------------------------------------------------------------------

    def write(self, model: Model) -> None:
        """Write a trained model; its metrics come last and mark the run as finished."""
        store, last = self.store, self._checkpoints()
        if last:
            for name in ("optimiser.safetensors", "state.json"):
                store.write(name, Store(last[-1]).read(name))
        weights = {k: v.detach().cpu() for k, v in model.networks.trained_state().items()}
        store.write_tensors("weights.safetensors", weights)
        described = {name: fields.to_json(getattr(model, name)) for name in ("inputs", "task")}
        described["classes"] = list(model.classes.values)
        store.write_json("model.json", described)
        store.write_json("scores.json", fields.to_json(model.fitted))
        self.write_decisions(model)
        for name, predictions in model.predictions.items():
            self.write_predictions(name, predictions)
        if (self.path / LOG).exists():
            store.adopt(LOG)
        figures = [
            row
            for name, predictions in model.predictions.items()
            if predictions.labels is not None
            for row in rows(name, evaluate(predictions, model.fitted))
        ]
        self.write_metrics(figures)
        self.clear_checkpoints()

    def clear_checkpoints(self) -> None:
        """Remove what a finished run needs no more."""
        for path in (*self._checkpoints(), *self.path.glob(".checkpoint-*.new")):
            shutil.rmtree(path)

    def write_decisions(self, model: Model) -> None:
        """What may change after training: the threshold, and what examples were used for."""
        prints = {
            name: torch.from_numpy(print_.rows) for name, print_ in model.fingerprints.items()
        }
        self.store.write_tensors("fingerprints.safetensors", prints)
        if model.threshold is not None:
            self.store.write_json("threshold.json", fields.to_json(model.threshold))

    def write_predictions(self, name: str, predictions: Predictions) -> None:
        """One file a set, which says what the set is."""
        self.store.write(_predictions_file(name), replace(predictions, split=name).to_bytes())

    def write_metrics(self, table: Iterable[tuple[str, str, str, float | None]]) -> None:
        """``metrics.csv``; figures of sets written before stay."""
        new = [[split, score, metric, _cell(value)] for split, score, metric, value in table]
        old: list[list[str]] = []
        if self.finished:
            replaced = {row[0] for row in new}
            text = self.store.read("metrics.csv").decode()
            old = [row for row in list(csv.reader(io.StringIO(text)))[1:] if row[0] not in replaced]
        written = io.StringIO()
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(["split", "score", "metric", "value"])
        writer.writerows(old + new)
        self.store.write("metrics.csv", written.getvalue().encode())

    # Afterwards -----------------------------------------------------------------------------

    def predictions(self, name: str) -> Predictions:
        """The predictions on one set.

        Raises:
            InputError: the run has none of that name, or they are damaged.
        """
        file = _predictions_file(name)
        found = Predictions.from_bytes(self.store.read(file), str(self.path / file))
        # A file of an older version does not say it.
        return replace(found, split=name)

    def prediction_names(self) -> list[str]:
        """The sets there are predictions for."""
        folder, suffix = f"{_PREDICTIONS}/", ".safetensors"
        listed = [name for name in self.store.names() if name.startswith(folder)]
        return sorted(name.removeprefix(folder).removesuffix(suffix) for name in listed)

    def recipe(self) -> dict[str, Any]:
        """What ``recipe.json`` holds.

        Raises:
            InputError: this folder is no run.
        """
        if not (self.path / "recipe.json").exists():
            raise InputError(f'"{self.path}" is no run: it has no recipe.json')
        data: dict[str, Any] = self.store.read_json("recipe.json")
        if data.get("format") != FORMAT:
            msg = f'"{self.path}" has format {data.get("format")}, this version reads {FORMAT}'
            raise InputError(msg)
        return data

    def fitted(self) -> Fitted:
        """What the tune split decided."""
        return fields.from_json(Fitted, self.store.read_json("scores.json"))

    def load(
        self,
        *,
        device: torch.device,
        module: nn.Module | None = None,
        method: type[Method] | None = None,
    ) -> Model:
        """The trained model.

        Args:
            device: to put it on.
            module: the network it was trained with, where that was the user's own.
            method: the class of its method, likewise.

        Raises:
            InputError: no finished run, damaged, or a network or method of one's own is missing.
        """
        chosen = self.recipe()
        if not self.finished:
            way = "train it with --resume first"
            if chosen["data"].get("spec") == ARRAYS:
                way = "its save was interrupted, save it again to another folder"
            raise InputError(f'"{self.path}" is unfinished: {way}')
        for key in ("format", "data"):
            chosen.pop(key)
        name = chosen["method"]["name"]
        if method is None and not is_registered(name):
            msg = f'"{self.path}" was trained with a method of your own, {name}: give its class as '
            raise InputError(f"{msg}SelectiveClassifier.load(..., method={name})")
        recipe = Recipe.from_json(chosen, method)
        if recipe.backbone == "custom" and module is None:
            msg = f'"{self.path}" was trained with a network of your own: give it as backbone='
            raise InputError(msg)
        store = self.store
        described = store.read_json("model.json")
        task = fields.from_json(Task, described["task"])
        networks = build_networks(recipe, task, torch.zeros(2, *task.input_shape), module, device)
        try:
            networks.load_state_dict(store.read_tensors("weights.safetensors"))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise InputError(f'the weights in "{self.path}" do not fit: {reason}') from error
        tensors = store.read_tensors("fingerprints.safetensors")
        threshold = None
        if "threshold.json" in store.names():
            threshold = fields.from_json(Threshold, store.read_json("threshold.json"))
        return Model(
            recipe=recipe,
            task=task,
            classes=Classes(tuple(described["classes"])),
            inputs=fields.from_json(_INPUTS[described["inputs"]["kind"]], described["inputs"]),
            networks=networks,
            fitted=self.fitted(),
            device=device,
            fingerprints={k: Fingerprint.of_rows(v.numpy()) for k, v in tensors.items()},
            predictions=StoredPredictions(RunFolder(self.path.absolute())),
            threshold=threshold,
        )


def _chosen(recipe: Recipe, data: dict[str, Any]) -> dict[str, Any]:
    return {"format": FORMAT, **recipe.to_json(), "data": data}


def _as_old(data: dict[str, Any], there: dict[str, Any]) -> dict[str, Any]:
    """What is told of the data, without what a run that is older than it does not tell."""
    return {key: value for key, value in data.items() if key in there}


def _predictions_file(name: str) -> str:
    return f"{_PREDICTIONS}/{name}.safetensors"


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value)

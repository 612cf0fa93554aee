"""Training into a run folder: checkpoints as it goes, and going on where it stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revar.data.source import Source
from revar.errors import InputError
from revar.fitting import fit_prepared
from revar.parallel import world
from revar.preparation import Prepared, prepare
from revar.progress import Both, Log, Silent
from revar.recipe import Recipe
from revar.run import LOG, RunFolder
from revar.splits import Fingerprint
from revar.training import Observer, TrainingState


class _Keeper:
    """Keeps the checkpoints of a run in its folder, which is made when training can start."""

    def __init__(self, folder: RunFolder, described: dict[str, Any], *, resume: bool) -> None:
        self._folder, self._described, self._resume = folder, described, resume

    def begin(self, data: Prepared, state: TrainingState) -> None:
        self._folder.begin(data.recipe, self._described, resume=self._resume)
        self._folder.load_checkpoint(state)

    def save(self, state: TrainingState) -> None:
        self._folder.save_checkpoint(state)


def train_into(
    folder: RunFolder,
    recipe: Recipe,
    source: Source,
    given: Mapping[str, Any],
    *,
    resume: bool,
    device: torch.device,
    observer: Observer | None = None,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Train on a source and write the run; a finished one is checked and left alone.

    Where several processes train together, all come here and the first one writes.

    Args:
        folder: of the run.
        recipe: what is chosen.
        source: raw data.
        given: how the data was asked for; with its fingerprints it is kept with the recipe, and
            another is refused on resuming.
        resume: go on with an unfinished run.
        device: to train on.
        observer: is told of every step.
        stop: is asked after every step.

    Raises:
        InputError: with one line that says what to change.
        InterruptedRun: ``stop`` said so.
        LostProcess: another process died; what it had kept is there to be resumed.
    """
    prepared = prepare(recipe, source, device)
    described = _describe(prepared, given)
    if world().once(lambda: described) != described:
        raise InputError(
            f"process {world().rank} reads other data than process 0: give all the same"
        )
    if world().once(lambda: resume and _checked(folder, prepared, described)):
        return
    keeper = _Keeper(folder, described, resume=resume)
    watchers: Observer = Silent()
    if world().first:
        watchers = Both(observer or Silent(), Log(folder.path / LOG))
    try:
        model = fit_prepared(prepared, device=device, observer=watchers, keeper=keeper, stop=stop)
        if world().first:
            folder.write(model)
    finally:
        folder.end()


def _checked(folder: RunFolder, prepared: Prepared, described: dict[str, Any]) -> bool:
    """Whether the run is finished, and all of it is there."""
    if not folder.finished:
        return False
    folder.check_same(prepared.recipe, described)
    folder.store.verify()
    # Only there if the run was killed at its last file, or between that and this.
    folder.store.tidy()
    folder.clear_checkpoints()
    return True


def _describe(prepared: Prepared, given: Mapping[str, Any]) -> dict[str, Any]:
    """Where the data came from and what exactly it was, to refuse other data on resume."""
    digests = {name: print_.digest for name, print_ in prepared.fingerprints.items()}
    sums = {name: int(torch.from_numpy(split.y).sum()) for name, split in prepared.splits.items()}
    # Which label each row has, in their order; sums alone are what older runs have.
    everything = {**prepared.splits, **prepared.tests}
    labels = {name: _digest(split.y) for name, split in everything.items()}
    unlabelled = prepared.unlabelled
    return {
        **given, "fingerprints": digests, "label_sums": sums, "labels": labels,
        "unlabelled_rows": Fingerprint.of(unlabelled).digest if len(unlabelled) else None,
        "classes": list(prepared.classes.names),
    }  # fmt: skip


def _digest(labels: NDArray[np.int64]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(labels).tobytes(), digest_size=16).hexdigest()

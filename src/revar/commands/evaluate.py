"""``revar evaluate``"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from revar.commands.reading import reading_for
from revar.data.source import evaluation_part, load_source
from revar.devices import choose
from revar.errors import InputError
from revar.evaluation import evaluate as figures_of
from revar.evaluation import rows
from revar.predictions import Predictions
from revar.run import RunFolder

_NEAR = 0.02
"""Of the largest logit: how far those of the same example may be apart."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of one set.

    Attributes:
        name: of the set.
        figures: see `revar.evaluation.evaluate`.
        predictions: they were computed from.
        note: under which other name the run has them, or why it has not recorded them.
    """

    name: str
    figures: dict[str, Any]
    predictions: Predictions
    note: str = ""


def evaluate(
    run: str | Path,
    *,
    on: str | None = None,
    target: str | None = None,
    skip_unreadable: bool = False,
    device: str = "auto",
) -> Evaluation:
    """Figures of a run on its own test split, or on other labelled data.

    Args:
        run: the run folder.
        on: labelled data, as for training; its test part is taken where it has one.
        target: the column of labels of a CSV file; the one of training unless given.
        skip_unreadable: go on without images that cannot be read, and count them.
        device: ``auto``, ``cpu``, ``cuda``, ...

    Raises:
        InputError: no test split and none given, or data that served another purpose.
    """
    folder = RunFolder(Path(run))
    if on is None:
        # First whether this is a run at all, and one this version reads.
        folder.recipe()
        if not folder.finished:
            raise InputError(f'"{run}" is unfinished: train it with --resume first')
        if "test" not in folder.prediction_names():
            raise InputError(f'"{run}" was trained without a test split: give one with --on')
        predictions = folder.predictions("test")
        return Evaluation("test", figures_of(predictions, folder.fitted()), predictions)
    model = folder.load(device=choose(device))
    reading = reading_for(folder, model, target=target, skip_unreadable=skip_unreadable)
    source = load_source(on, reading)
    part = evaluation_part(source)
    predictions = model.predict(part.x, part.y)
    known = len(model.fingerprints)
    model.claim(part.x, "test")
    seen = len(model.fingerprints) == known
    result = figures_of(predictions, model.fitted)
    name, note = _plain(Path(on).stem), ""
    try:
        with folder.held():
            name, stem = _free_name(folder, on, predictions, seen=seen), name
            if name != stem:
                note = f'the set "{stem}" of the run is other data and stays: this one is "{name}"'
            predictions = replace(predictions, split=f"on-{name}")
            folder.write_predictions(f"on-{name}", predictions)
            folder.write_metrics(rows(f"on-{name}", result))
            folder.write_decisions(model)
    except InputError as error:
        # The figures are right all the same: a run may lie where this user cannot write.
        note = f"not recorded in the run: {error}"
    return Evaluation(name, result, predictions, note)


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def _free_name(folder: RunFolder, on: str, predictions: Predictions, *, seen: bool) -> str:
    """What to call a set in the run: by its file, or further names where that is of other data."""
    path, there = Path(on), folder.prediction_names()
    stem = _plain(path.stem)
    names = [stem]
    if path.exists() and path.resolve().parent.name:
        names.append(_plain(f"{path.resolve().parent.name}-{path.stem}"))
    numbered = (f"{stem}-{number}" for number in count(2))
    for name in chain(names, numbered):
        stored = f"on-{name}"
        if stored not in there or (seen and _same(folder.predictions(stored), predictions)):
            return name
    raise AssertionError


def _same(old: Predictions, new: Predictions) -> bool:
    """Whether the same examples were predicted; a GPU and a CPU differ in the last digits."""
    if old.labels is None or new.labels is None or not np.array_equal(old.labels, new.labels):
        return False
    near = _NEAR * np.abs(new.logits).max(initial=0.0)
    return bool(np.allclose(old.logits, new.logits, rtol=0.0, atol=near, equal_nan=True))

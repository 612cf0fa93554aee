"""``revar evaluate``"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from revar.commands.reading import reading_for
from revar.data.source import evaluation_part, load_source
from revar.devices import choose
from revar.errors import InputError
from revar.evaluation import evaluate as figures_of
from revar.evaluation import rows
from revar.predictions import Predictions
from revar.run import RunFolder


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of one set.

    Attributes:
        name: of the set.
        figures: see `revar.evaluation.evaluate`.
        predictions: they were computed from.
        note: why they were not recorded in the run, if they were not.
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
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in Path(on).stem)
    predictions = replace(model.predict(part.x, part.y), split=f"on-{name}")
    model.claim(part.x, "test")
    result = figures_of(predictions, model.fitted)
    note = ""
    try:
        with folder.held():
            folder.write_predictions(f"on-{name}", predictions)
            folder.write_metrics(rows(f"on-{name}", result))
            folder.write_decisions(model)
    except InputError as error:
        # The figures are right all the same: a run may lie where this user cannot write.
        note = f"not recorded in the run: {error}"
    return Evaluation(name, result, predictions, note)

"""``revar evaluate --calibrator``"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from revar import calibrators
from revar.commands.evaluate import Evaluation, evaluate
from revar.errors import InputError
from revar.evaluation import evaluate as figures_of
from revar.run import RunFolder


def evaluate_calibrated(run: str | Path, name: str, **options: Any) -> Evaluation:
    """Figures of a run with calibrated probabilities, or with scores a calibrator adds.

    The calibrator is fitted on the run's own tune split. The run records its plain figures, as
    without a calibrator. ``fused`` is left out: it was fitted on uncalibrated evidence.

    Args:
        run: the run folder.
        name: a name of ``revar list calibrators``.
        options: as for `revar.commands.evaluate.evaluate`.

    Raises:
        InputError: no such calibrator, no tune split, or data it cannot be used on.
    """
    calibrators.check(name)
    folder = RunFolder(Path(run))
    folder.recipe()  # Where there is no run, this says so.
    # Before anything is predicted: data that was once evaluated on can set no threshold.
    if "tune" not in folder.prediction_names():
        raise InputError(
            f'"{run}" has no tune split to fit a calibrator on: train with --set tune_fraction=0.1'
        )
    plain = evaluate(run, **options)
    calibrator = calibrators.fit(name, folder.predictions("tune"))
    predictions = calibrator.apply(plain.predictions)
    added = [score for score in predictions.scores if score not in plain.predictions.scores]
    fitted = replace(folder.fitted(), fusion=None)
    if added or fitted.default_score == "fused":
        fitted = replace(fitted, default_score=added[0] if added else "softmax")
    figures = figures_of(predictions, fitted)
    return Evaluation(f"{plain.name}, {name}", figures, predictions, plain.note)

"""Scores: predictions to uncertainty, [n] float64, higher is rejected first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from revar.predictions import Predictions
from revar.registry import SCORES, find, load
from revar.scores.learned import Fitted

_FITTED = ("uscore", "fused")


def uncertainty(predictions: Predictions, name: str, fitted: Fitted) -> NDArray[np.float64]:
    """The named score of every example.

    Raises:
        InputError: no such score, or the predictions lack what it needs.
    """
    function = load(find("score", name, SCORES).target)
    result: NDArray[np.float64] = (
        function(predictions, fitted) if name in _FITTED else function(predictions)
    )
    return result


def available(predictions: Predictions, fitted: Fitted) -> tuple[str, ...]:
    """The scores these predictions carry, in the registry's order."""
    lacking: set[str] = set()
    if predictions.dropout_mean is None:
        lacking |= {"dropout_entropy", "dropout_variance", "mutual_information", "mcd"}
    if "uscore" not in predictions.columns:
        lacking.add("uscore")
    if fitted.fusion is None or lacking & set(fitted.fusion.features):
        lacking.add("fused")
    return tuple(entry.name for entry in SCORES if entry.name not in lacking)


def correct(predictions: Predictions, name: str) -> NDArray[np.bool_]:
    """Correctness that goes with a score: of the deterministic argmax, but for ``mcd``."""
    return predictions.correct(by_dropout_mean=name == "mcd")

"""Scores: predictions to uncertainty, [n] float64, higher is rejected first."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError, unknown
from revar.predictions import Predictions
from revar.registry import SCORES, load
from revar.scores.learned import Fitted

_FITTED = ("uscore", "fused")


def uncertainty(predictions: Predictions, name: str, fitted: Fitted) -> NDArray[np.float64]:
    """The named score of every example: of the registry, or one the predictions bring along.

    ``own`` is the one the run's method is published with.

    Raises:
        InputError: no such score, or the predictions lack what it needs.
    """
    name = fitted.named(name)
    targets = {entry.name: entry.target for entry in SCORES}
    if name not in targets:
        if name not in predictions.scores:
            raise unknown("score", name, [*targets, *predictions.scores, "own"])
        return predictions.scores[name].astype(np.float64)
    function = load(targets[name])
    result: NDArray[np.float64] = (
        function(predictions, fitted) if name in _FITTED else function(predictions)
    )
    return result


def available(predictions: Predictions, fitted: Fitted) -> tuple[str, ...]:
    """The scores of these predictions: the registry's, in its order, then those brought along."""
    lacking: set[str] = set()
    if predictions.dropout_mean is None:
        lacking |= {"dropout_entropy", "dropout_variance", "mutual_information", "mcd"}
    if "uscore" not in predictions.columns:
        lacking.add("uscore")
    if fitted.fusion is None or lacking & set(fitted.fusion.features):
        lacking.add("fused")
    registered = [entry.name for entry in SCORES]
    own = [name for name in predictions.scores if name not in registered]
    there = [*(name for name in registered if name not in lacking), *own]
    return (*there, "own") if fitted.own in there else tuple(there)


def correct(predictions: Predictions, name: str, fitted: Fitted) -> NDArray[np.bool_]:
    """Correctness that goes with a score: of the deterministic argmax, but for ``mcd``."""
    return predictions.correct(by_dropout_mean=fitted.named(name) == "mcd")


def answers(
    predictions: Predictions, name: str, fitted: Fitted
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """[n] class numbers to give where a score decides, and [n, C] their probabilities.

    Those whose errors `correct` counts: of the deterministic pass, for ``mcd`` of the mean of the
    passes.

    Raises:
        InputError: the predictions lack what it needs.
    """
    if fitted.named(name) != "mcd":
        return predictions.predicted, predictions.probabilities
    if predictions.dropout_mean is None:
        raise InputError("these predictions hold no dropout passes")
    mean = predictions.dropout_mean.astype(np.float64)
    # Means kept in fewer digits do not quite sum to one.
    return mean.argmax(axis=1), mean / mean.sum(axis=1, keepdims=True)


def answers_by_score(
    predictions: Predictions, names: Iterable[str], fitted: Fitted
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """`answers` of several scores; those of the deterministic pass are computed once."""
    plain = predictions.predicted, predictions.probabilities
    return {
        name: answers(predictions, name, fitted) if fitted.named(name) == "mcd" else plain
        for name in names
    }

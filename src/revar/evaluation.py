"""Predictions to figures: one object per set, the same for people and for machines."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from revar import metrics
from revar.errors import UndefinedMetricWarning
from revar.predictions import Predictions
from revar.scores import available, correct, uncertainty
from revar.scores.learned import Fitted

COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
CURVE_METRICS: dict[str, Callable[[Any, Any], float]] = {
    "auarc": metrics.auarc,
    "aurc": metrics.aurc,
    "e_aurc": metrics.e_aurc,
    "augrc": metrics.augrc,
    "failure_auroc": metrics.failure_auroc,
}


def evaluate(predictions: Predictions, fitted: Fitted) -> dict[str, Any]:
    """All figures of one labelled set, as fractions.

    An undefined figure is ``None`` and has its reason beside it, under ``<figure>_reason``.

    Raises:
        InputError: the set has no labels.
    """
    hits = predictions.correct()
    scores: dict[str, dict[str, Any]] = {}
    for name in available(predictions, fitted):
        values, right = uncertainty(predictions, name, fitted), correct(predictions, name)
        figures: dict[str, Any] = {}
        for metric, function in CURVE_METRICS.items():
            _put(figures, metric, partial(function, values, right))
        figures["accuracy_at_coverage"] = {
            str(coverage): metrics.accuracy_at_coverage(values, right, coverage)
            for coverage in COVERAGES
        }
        scores[name] = figures
    return {
        "n": len(predictions),
        "accuracy": float(hits.mean()),
        "ece": metrics.ece(predictions.probabilities, predictions.labels),
        "default_score": fitted.default_score,
        "scores": scores,
    }


def _put(figures: dict[str, Any], name: str, compute: Callable[[], float]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UndefinedMetricWarning)
        value = compute()
    reasons = [str(w.message) for w in caught if issubclass(w.category, UndefinedMetricWarning)]
    for other in caught:
        if not issubclass(other.category, UndefinedMetricWarning):
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    if math.isfinite(value):
        figures[name] = value
        return
    figures[name] = None
    figures[f"{name}_reason"] = reasons[0] if reasons else "no value on this data"


def rows(split: str, result: dict[str, Any]) -> list[tuple[str, str, str, float | None]]:
    """The figures as (split, score, metric, value), one row each, for ``metrics.csv``."""
    table: list[tuple[str, str, str, float | None]] = [
        (split, "", name, result[name]) for name in ("n", "accuracy", "ece")
    ]
    for score, figures in result["scores"].items():
        table += [(split, score, metric, figures[metric]) for metric in CURVE_METRICS]
        table += [
            (split, score, f"accuracy_at_coverage_{coverage}", value)
            for coverage, value in figures["accuracy_at_coverage"].items()
        ]
    return table

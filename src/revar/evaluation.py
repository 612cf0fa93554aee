"""Predictions to figures: one object per set, the same for people and for machines."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar import metrics
from revar.errors import UndefinedMetricWarning
from revar.predictions import Predictions
from revar.scores import answers_by_score, available, correct, uncertainty
from revar.scores.learned import Fitted

COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RISKS = (0.01, 0.02, 0.05, 0.1, 0.2)
CURVES = ("accuracy_at_coverage", "coverage_at_risk", "selective_ece", "auc_at_coverage")
"""Figures of a score that are tables themselves, by coverage or by risk."""


def evaluate(predictions: Predictions, fitted: Fitted) -> dict[str, Any]:
    """All figures of one labelled set, as fractions.

    An undefined figure is ``None`` and has its reason beside it, under ``<figure>_reason``.
    The AUC at coverage is given for the default score only: with many classes it is slow.

    Raises:
        InputError: the set has no labels.
    """
    hits = predictions.correct()
    probabilities, labels = predictions.probabilities, predictions.labels
    assert labels is not None
    figures: dict[str, Any] = {"n": len(predictions), "accuracy": float(hits.mean())}
    figures.update(_calibration(probabilities, labels))
    # From the logits: a probability may round to zero, its logarithm does not.
    figures["nll"] = -float(predictions.log_probabilities[np.arange(len(labels)), labels].mean())
    figures["default_score"], figures["own_score"] = fitted.default_score, fitted.own
    figures["scores"] = {}
    names = [name for name in available(predictions, fitted) if name != "own"]
    answered = answers_by_score(predictions, names, fitted)
    for name in names:
        values, right = uncertainty(predictions, name, fitted), correct(predictions, name, fitted)
        found = _of_score(values, right)
        # Of the answers whose errors the score is judged by.
        _, given = answered[name]
        curve = metrics.selective_ece(values, given, labels, coverages=COVERAGES)
        found["selective_ece"] = dict(zip(map(str, COVERAGES), curve.tolist(), strict=True))
        if name == fitted.default_score:
            aucs: dict[str, Any] = {}
            found["auc_at_coverage"] = aucs
            for c in COVERAGES:
                compute = partial(metrics.auc_at_coverage, values, given, labels, c)
                _put(aucs, str(c), compute)
        if name == "uscore":
            for kind in ("pearson", "spearman"):
                correlate = partial(
                    metrics.uscore_entropy_correlation, values, probabilities, kind=kind
                )
                _put(found, f"entropy_{kind}", correlate)
        figures["scores"][name] = found
    if fitted.own in figures["scores"]:
        figures["scores"]["own"] = figures["scores"][fitted.own]
    return figures


def _calibration(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float]:
    ece = partial(metrics.ece, probabilities, labels)
    return {
        "ece": ece(),
        "ece_equal_mass": ece(binning="equal_mass"),
        "ece_classwise": ece(kind="classwise"),
        "ece_top_label": ece(kind="top_label"),
        "mce": metrics.mce(probabilities, labels),
        "brier": metrics.brier(probabilities, labels),
    }


def _of_score(values: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with _reasons() as reasons:
        curve = metrics.curve_figures(values, right)
    for name, value in curve.items():
        _keep(figures, name, value, reasons)
    figures["accuracy_at_coverage"] = {
        str(c): metrics.accuracy_at_coverage(values, right, c) for c in COVERAGES
    }
    figures["coverage_at_risk"] = {
        str(r): metrics.coverage_at_risk(values, right, r) for r in RISKS
    }
    return figures


@contextmanager
def _reasons() -> Iterator[list[str]]:
    """Collect why figures are undefined; other warnings go on to whom they concern."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UndefinedMetricWarning)
        yield found
    for warning in caught:
        if issubclass(warning.category, UndefinedMetricWarning):
            found.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def _put(figures: dict[str, Any], name: str, compute: Callable[[], float]) -> None:
    with _reasons() as reasons:
        value = compute()
    _keep(figures, name, value, reasons)


def _keep(figures: dict[str, Any], name: str, value: float, reasons: list[str]) -> None:
    if math.isfinite(value):
        figures[name] = value
        return
    figures[name] = None
    figures[f"{name}_reason"] = reasons[0] if reasons else "no value on this data"


def rows(split: str, result: dict[str, Any]) -> Iterator[tuple[str, str, str, float | None]]:
    """The figures as (split, score, metric, value), one row each, for ``metrics.csv``."""
    for name, value in result.items():
        if name not in ("scores", "default_score", "own_score"):
            yield split, "", name, value
    for score, figures in result["scores"].items():
        for metric, value in figures.items():
            if metric in CURVES:
                for at, one in value.items():
                    if not at.endswith("_reason"):
                        yield split, score, f"{metric}_{at}", one
            elif not metric.endswith("_reason"):
                yield split, score, metric, value

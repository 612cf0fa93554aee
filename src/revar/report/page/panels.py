"""The diagrams of one run on one set, as plain numbers; every figure is one of `revar.metrics`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar import metrics
from revar.evaluation import evaluate
from revar.predictions import Predictions
from revar.report.page.bands import BINS, ECE_GRID, RISK_GRID, bands
from revar.report.page.coding import order_of_rejection
from revar.report.page.content import PageRun, TestSet
from revar.report.page.picks import examples, picks
from revar.scores import answers_by_score, correct, uncertainty
from revar.scores.softmax import softmax_entropy

MOST_GROUPS = 40
_POINTS = 400
_CLOUD = 800
_HISTOGRAM = 36
_SEED = 0


def set_panel(run: PageRun, test: TestSet) -> dict[str, Any]:
    """Everything the page shows of one run on one set."""
    predictions = test.predictions
    labels = predictions.labels
    assert labels is not None
    probabilities = predictions.probabilities
    names = run.scores(predictions)
    values = {name: uncertainty(predictions, name, run.fitted) for name in names}
    right = {name: correct(predictions, name, run.fitted) for name in names}
    answered = answers_by_score(predictions, names, run.fitted)
    given = {name: of.max(axis=1) for name, (_, of) in answered.items()}
    found = bands(values, right, given, probabilities, labels)
    group_names, groups, group_note = _groups(test)
    scores = {}
    for name in names:
        predicted, of = answered[name]
        coded = order_of_rejection(values[name], labels, predicted, len(run.classes), groups)
        scores[name] = {
            **coded,
            "curve": _curve(values[name], right[name]),
            "risk_band": _rounded(found["risk"][name]),
            "ece": _rounded(
                metrics.selective_ece(values[name], of, labels, coverages=ECE_GRID.tolist())
            ),
            "ece_band": _rounded(found["ece"][name]),
            "histogram": _histogram(values[name], right[name]),
            "saved": _saved(run, name, values[name]),
        }
    return {
        "n": len(predictions),
        "fingerprint": test.fingerprint,
        "figures": evaluate(predictions, run.fitted),
        "groups": group_names,
        "group_name": test.group_name,
        "group_note": group_note,
        "note": test.note,
        "scores": scores,
        "risk_grid": RISK_GRID.tolist(),
        "ece_grid": ECE_GRID.tolist(),
        "reliability": _reliability(probabilities, labels, found["reliability"]),
        "cloud": _cloud(predictions, values),
        "gallery": _gallery(run, test),
    }


def _groups(test: TestSet) -> tuple[list[str] | None, NDArray[np.int64] | None, str]:
    """Names and numbers of the groups, or none and why."""
    if test.groups is None:
        return None, None, ""
    names, numbers = np.unique(test.groups, return_inverse=True)
    if len(names) > MOST_GROUPS:
        what = test.group_name or "group"
        note = f'"{what}" has {len(names):,} values, too many to break figures down by.'
        return None, None, note
    return [str(name) for name in names], numbers.astype(np.int64), ""


def _curve(values: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, Any]:
    """Points to draw, denser where few are kept, for there the curve is restless."""
    curve = metrics.risk_coverage_curve(values, right)
    n = len(values)
    places = np.r_[np.geomspace(1, n, _POINTS), np.linspace(1, n, _POINTS)]
    kept = np.unique(np.round(places).astype(np.int64))
    return {"kept": kept.tolist(), "risk": _rounded(curve.risk[kept - 1])}


def _saved(run: PageRun, name: str, values: NDArray[np.float64]) -> int | None:
    """How many of the set the run's own threshold accepts, for the score it belongs to."""
    threshold = run.threshold
    if threshold is None or threshold.threshold is None:
        return None
    chosen = run.fitted.named(threshold.score)
    return int(threshold.accept(values).sum()) if name == chosen else None


def _reliability(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], band: NDArray[np.float64]
) -> dict[str, Any]:
    bins = metrics.reliability(probabilities, labels, n_bins=BINS)
    return {
        "edges": _rounded(bins.edges),
        "weight": bins.weight.tolist(),
        "confidence": _rounded(bins.confidence),
        "accuracy": _rounded(bins.accuracy),
        "band": _rounded(band),
    }


def _histogram(values: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, Any] | None:
    finite = values[np.isfinite(values)]
    if not len(finite) or finite.min() == finite.max():
        return None
    edges = np.histogram_bin_edges(finite, _HISTOGRAM)
    inside = np.clip(values, edges[0], edges[-1])
    return {
        "edges": _rounded(edges),
        "right": np.histogram(inside[right], edges)[0].tolist(),
        "wrong": np.histogram(inside[~right], edges)[0].tolist(),
    }


def _cloud(
    predictions: Predictions, values: dict[str, NDArray[np.float64]]
) -> dict[str, Any] | None:
    """U-Score against entropy, of so many examples as can be told apart."""
    if "uscore" not in values:
        return None
    n = len(predictions)
    rows = np.arange(n)
    if n > _CLOUD:
        rows = np.sort(np.random.default_rng(_SEED).choice(n, _CLOUD, replace=False))
    return {
        "uscore": _rounded(values["uscore"][rows]),
        "entropy": _rounded(softmax_entropy(predictions)[rows]),
        "right": predictions.correct()[rows].astype(int).tolist(),
        "of": n,
    }


def _gallery(run: PageRun, test: TestSet) -> list[dict[str, Any]]:
    if not test.contents:
        return []
    shelves = []
    for shelf in picks(test.predictions, run.fitted):
        rows = [row for row in shelf.rows if row in test.contents]
        shown = examples(rows, test.predictions, run.fitted, shelf.scores)
        shelves.append({"title": shelf.title, "note": shelf.note, "examples": shown})
    return [shelf for shelf in shelves if shelf["examples"]]


def _rounded(values: NDArray[np.float64]) -> Any:
    """Plain numbers for drawing; what is not finite is null."""
    if values.ndim > 1:
        return [_rounded(row) for row in values]
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]

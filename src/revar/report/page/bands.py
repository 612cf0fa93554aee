"""Confidence bands: percentiles over resamples of the examples, one sort a score.

A resample is how often each example was drawn. Ties are taken in every order, as everywhere in
`revar.metrics`: between the ends of two blocks of ties, the expected errors grow linearly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.metrics.arrays import whole_count
from revar.metrics.resampling import draw_counts

Floats = NDArray[np.float64]
RESAMPLES = 200
LEVEL = 0.95
RISK_GRID = np.arange(1, 51) / 50
ECE_GRID = np.arange(2, 21) / 20
BINS = 15
_SEED = 0


@dataclass(frozen=True, slots=True)
class Sorted:
    """One score of one set, sorted.

    Attributes:
        order: [n] the most certain first.
        wrong: [n] 1 for errors, along the order.
        starts: [m] where each block of ties begins along the order.
        ends: [m] where it ends.
    """

    order: NDArray[np.int64]
    wrong: Floats
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def sort(values: Floats, right: NDArray[np.bool_]) -> Sorted:
    """Sort once, for any number of resamples."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return Sorted(order, (~right[order]).astype(np.float64), starts, np.r_[starts[1:], len(values)])


def _kept(coverages: Floats, total: float) -> Floats:
    return np.maximum(np.asarray(whole_count(coverages * total), dtype=np.float64), 1.0)


def risks(score: Sorted, counts: NDArray[np.int32], coverages: Floats) -> Floats:
    """[coverages] selective risk of one resample.

    Args:
        score: sorted.
        counts: [n] how often each example was drawn, along the order.
        coverages: shares to keep.
    """
    upto = np.cumsum(counts)[score.ends - 1]
    errors = np.cumsum(counts * score.wrong)[score.ends - 1]
    kept = _kept(coverages, float(upto[-1]))
    found: Floats = np.interp(kept, np.r_[0.0, upto], np.r_[0.0, errors]) / kept
    return found


def eces(
    score: Sorted,
    counts: NDArray[np.int32],
    confidence: Floats,
    hits: Floats,
    bins: NDArray[np.int64],
    coverages: Floats,
) -> Floats:
    """[coverages] `selective_ece` of one resample; all [n] are along the order."""
    upto = np.cumsum(counts)[score.ends - 1].astype(np.float64)
    kept = _kept(coverages, float(upto[-1]))
    block = np.searchsorted(upto, kept, side="left")
    below = np.r_[0.0, upto][block]
    share = (kept - below) / np.maximum(upto[block] - below, 1.0)
    # Sums in pieces between all borders that matter; a piece is added up once.
    borders = np.unique(np.r_[score.starts[block], score.ends[block], 0])
    last = int(borders[-1])
    piece = np.repeat(np.arange(len(borders) - 1), np.diff(borders))
    key = piece * BINS + bins[:last]
    size = (len(borders) - 1) * BINS

    def summed(weights: Floats) -> Floats:
        pieces = np.bincount(key, weights, minlength=size).reshape(-1, BINS)
        upto_border: Floats = np.concatenate([np.zeros((1, BINS)), np.cumsum(pieces, axis=0)])
        return upto_border

    gap = summed(counts[:last] * (hits[:last] - confidence[:last]))
    first = np.searchsorted(borders, score.starts[block])
    end = np.searchsorted(borders, score.ends[block])
    inside: Floats = gap[first] + share[:, None] * (gap[end] - gap[first])
    total: Floats = np.abs(inside).sum(axis=1) / kept
    return total


def bands(
    scores: Mapping[str, Floats],
    right: Mapping[str, NDArray[np.bool_]],
    given: Mapping[str, Floats],
    probabilities: Floats,
    labels: NDArray[np.int64],
) -> dict[str, Any]:
    """Bands of the curves of all scores of one set, from the same resamples.

    Args:
        scores: name to [n] uncertainty.
        right: name to [n] correctness that goes with it.
        given: name to [n] probability of the answer that goes with it.
        probabilities: [n, C] of the deterministic pass, whose reliability is asked.
        labels: [n]

    Returns:
        ``risk`` and ``ece``: score to [2, coverages] lower and upper ends, on `RISK_GRID` and
        `ECE_GRID`; ``reliability``: [2, BINS] of the accuracy in each bin, NaN where a bin was
        empty in most resamples.
    """
    n = len(labels)
    confidence = probabilities.max(axis=1)
    hits = (probabilities.argmax(axis=1) == labels).astype(np.float64)
    # The edges of `reliability`, compared in the same way.
    edges = np.arange(BINS + 1) / BINS
    inner = edges[1:-1]
    bins = np.searchsorted(inner, confidence, side="left")
    sorted_scores = {name: sort(values, right[name]) for name, values in scores.items()}
    along = {
        name: (sure, 1.0 - s.wrong, np.searchsorted(inner, sure, side="left"))
        for name, s in sorted_scores.items()
        for sure in (given[name][s.order],)
    }
    drawn_risks = {name: np.empty((RESAMPLES, len(RISK_GRID))) for name in scores}
    drawn_eces = {name: np.empty((RESAMPLES, len(ECE_GRID))) for name in scores}
    accuracy = np.full((RESAMPLES, BINS), np.nan)
    generator = np.random.default_rng(_SEED)
    for row in range(RESAMPLES):
        counts = draw_counts(None, n, 1, generator)[0]
        total = np.bincount(bins, counts, minlength=BINS)
        sums = np.bincount(bins, counts * hits, minlength=BINS)
        np.divide(sums, total, out=accuracy[row], where=total > 0)
        for name, score in sorted_scores.items():
            ordered = counts[score.order]
            drawn_risks[name][row] = risks(score, ordered, RISK_GRID)
            drawn_eces[name][row] = eces(score, ordered, *along[name], ECE_GRID)
    return {
        "risk": {name: _ends(values) for name, values in drawn_risks.items()},
        "ece": {name: _ends(values) for name, values in drawn_eces.items()},
        "reliability": _ends(accuracy),
    }


def _ends(drawn: Floats) -> Floats:
    """[2, points] percentiles over resamples; NaN where most of them have no value."""
    ends = np.full((2, drawn.shape[1]), np.nan)
    there = (~np.isnan(drawn)).sum(axis=0) > len(drawn) / 2
    tail = (1.0 - LEVEL) / 2
    ends[:, there] = np.nanquantile(drawn[:, there], [tail, 1.0 - tail], axis=0)
    return ends

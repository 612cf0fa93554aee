"""The threshold for a coverage, and how far the coverage on new data may be from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betaincinv

from revar.errors import InputError
from revar.selection.arguments import number, open_share, vector
from revar.selection.result import Attainable, Threshold


def threshold_for_coverage(
    uncertainty: Any, coverage: float, *, confidence: float = 0.95, score: str = ""
) -> Threshold:
    """The smallest threshold that accepts at least this share of the examples.

    Ties are accepted or rejected together, so the share may be larger than asked.

    The threshold is the k-th smallest of n values, ``k = ceil(coverage n)``. For a continuous
    score the share C of new examples that it accepts follows ``Beta(k, n + 1 - k)``, whatever the
    law of the score. With ties C can only be larger, so the lower end is this law's quantile in
    every case. The upper end is the quantile of ``Beta(b + 1, n - b)``, b the number of values
    <= the threshold: let v be the smallest value whose C is above the end for b = k. If C is
    above its end then the count of values <= v is one that has a chance of at most
    ``(1 - confidence) / 2``, for the threshold is either v, or above v because less than k
    values are <= v.

    Args:
        uncertainty: [n] of calibration examples; no labels are needed.
        coverage: share to accept.
        confidence: of the interval for the coverage on new data, two-sided.
        score: the name of the score, kept with the result.

    Raises:
        InputError: a coverage outside (0, 1], no examples, or NaN.
    """
    if not 0.0 < number(coverage, "coverage") <= 1.0:
        raise InputError(f"coverage is {coverage}, it must be in (0, 1]")
    half = (1.0 - open_share(confidence, "confidence")) / 2.0
    values = vector(uncertainty, "uncertainty")
    n = len(values)
    rank = rank_for(coverage, n)
    at = float(np.partition(values, rank - 1)[rank - 1])
    accepted = int((values <= at).sum())
    low = float(betaincinv(rank, n + 1 - rank, half))
    high = float(betaincinv(accepted + 1, n - accepted, 1.0 - half)) if accepted < n else 1.0
    return Threshold(
        threshold=at,
        coverage=accepted / n,
        coverage_interval=(low, high),
        n=n,
        confidence=confidence,
        procedure="coverage",
        best=Attainable(threshold=at, coverage=accepted / n),
        wanted=float(coverage),
        score=score,
    )


def rank_for(coverage: float, n: int) -> int:
    """How many of n examples a coverage asks for, at least one."""
    # Rounding in coverage * n must not ask for one example more.
    return max(1, int(np.ceil(coverage * n - 1e-9)))

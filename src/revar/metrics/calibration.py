"""Calibration: whether a probability of 0.8 is right eight times in ten."""

from __future__ import annotations

from typing import Any

import numpy as np

from revar.metrics.arrays import as_array


def ece(probabilities: Any, labels: Any, *, n_bins: int = 15) -> float:
    """Expected calibration error of the top class, equal-width bins.

    ``sum_b (n_b / n) |accuracy_b - confidence_b|`` over bins ``(low, high]``; a confidence of
    exactly 0 belongs to the first bin and one of 1 to the last.

    Args:
        probabilities: [n, C], rows of sum one.
        labels: [n] class numbers.
        n_bins: 15 unless told.

    Raises:
        ValueError: wrong shapes, NaN, or rows that are no distribution.

    >>> ece([[0.95, 0.05], [1.0, 0.0]], [0, 1], n_bins=10)  # one bin: |0.5 - 0.975|
    0.475
    """
    p = as_array(probabilities).astype(np.float64)
    y = as_array(labels)
    if p.ndim != 2 or y.shape != (len(p),) or len(p) == 0:
        msg = f"probabilities have shape {p.shape}, labels {y.shape}: [n, C] and [n] needed"
        raise ValueError(msg)
    if np.isnan(p).any():
        rows = np.flatnonzero(np.isnan(p).any(axis=1))
        raise ValueError(f"probabilities are NaN in {len(rows)} rows, first in row {rows[0]}")
    if (p < 0).any() or not np.allclose(p.sum(axis=1), 1.0, atol=1e-4):
        raise ValueError("probabilities must be non-negative with rows of sum one")
    confidence = np.minimum(p.max(axis=1), 1.0)
    hits = (p.argmax(axis=1) == y).astype(np.float64)
    # Compared with the edges themselves: a product such as 0.28 * 25 may round past its edge.
    bins = np.searchsorted(np.arange(1, n_bins) / n_bins, confidence, side="left")
    gap = np.abs(np.bincount(bins, hits - confidence, minlength=n_bins))
    return float(gap.sum() / len(p))

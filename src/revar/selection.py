"""Thresholds: from a wish on held-out data to accept or abstain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from revar.errors import InputError
from revar.metrics.arrays import as_array


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Accept iff ``uncertainty <= threshold``.

    Attributes:
        threshold: on the score.
        coverage: share of the calibration examples that it accepts.
        wanted: the coverage asked for.
        n: calibration examples.
        score: the score it belongs to.
    """

    threshold: float
    coverage: float
    wanted: float
    n: int
    score: str = ""

    @property
    def inclusive(self) -> bool:
        """An uncertainty equal to the threshold is accepted."""
        return True


def threshold_for_coverage(uncertainty: Any, coverage: float, *, score: str = "") -> Threshold:
    """The smallest threshold that accepts at least this share of the examples.

    Ties are accepted or rejected together, so the share may be larger than asked.

    Raises:
        InputError: a coverage outside (0, 1], no examples, or NaN.
    """
    if not 0.0 < coverage <= 1.0:
        raise InputError(f"coverage is {coverage}, it must be in (0, 1]")
    values = as_array(uncertainty).astype(np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise InputError(f"uncertainty has shape {values.shape}: a vector [n], n > 0, is needed")
    if np.isnan(values).any():
        raise InputError(f"uncertainty is NaN in {int(np.isnan(values).sum())} rows")
    values = np.sort(values)
    # Rounding in coverage * n must not ask for one example more.
    needed = max(1, int(np.ceil(coverage * len(values) - 1e-9)))
    at = float(values[needed - 1])
    accepted = int(np.searchsorted(values, at, side="right"))
    return Threshold(
        threshold=at, coverage=accepted / len(values), wanted=coverage, n=len(values), score=score
    )

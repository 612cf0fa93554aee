"""A threshold, what it promises, and with which confidence."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.selection.arguments import vector

EVERYTHING = sys.float_info.max
"""The threshold that accepts every finite uncertainty; infinity has no place in JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainable:
    """A threshold with what is known of it.

    Attributes:
        threshold: accept iff ``uncertainty <= threshold``; ``None`` accepts nothing.
        coverage: share of the calibration examples that it accepts.
        risk: mean loss of these; ``None`` without labels or if there are none.
        risk_bound: the risk on new accepted examples is at most this, with the confidence of the
            `Threshold` it belongs to; ``None`` if nothing is known.
    """

    threshold: float | None
    coverage: float
    risk: float | None = None
    risk_bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Accept iff ``uncertainty <= threshold``.

    Attributes:
        threshold: on the score; ``None`` if no threshold does what was asked for.
        coverage: share of the calibration examples that it accepts; 0 if there is none.
        coverage_interval: the share of new examples it accepts lies in here, with `confidence`.
        n: calibration examples.
        confidence: of the interval, and of the risk's bound; each on its own.
        procedure: how it was found.
        best: the best attainable; this threshold itself, if there is one.
        wanted: the coverage asked for, if one was.
        max_risk: the risk asked for, if one was.
        risk: mean loss of the accepted calibration examples, if labels were used.
        risk_bound: what the risk on new accepted examples is at most, with `confidence`.
        score: the score it belongs to.
        fingerprint: of the calibration data, if known: equal for equal examples in any order.
    """

    threshold: float | None
    coverage: float
    coverage_interval: tuple[float, float]
    n: int
    confidence: float
    procedure: str
    best: Attainable
    wanted: float | None = None
    max_risk: float | None = None
    risk: float | None = None
    risk_bound: float | None = None
    score: str = ""
    fingerprint: str = ""

    @property
    def inclusive(self) -> bool:
        """An uncertainty equal to the threshold is accepted."""
        return True

    def accept(self, uncertainty: Any) -> NDArray[np.bool_]:
        """[n] whether each is accepted; nothing is if there is no threshold.

        Raises:
            InputError: not a vector of numbers, or NaN.
        """
        # In double precision: in single, a threshold just below a value would round to it.
        values = vector(uncertainty, "uncertainty")
        if self.threshold is None:
            return np.zeros(len(values), dtype=bool)
        accepted: NDArray[np.bool_] = values <= self.threshold
        return accepted

    def describe(self) -> str:
        """One line for people."""
        sure = f"with {self.confidence:.4g} confidence on {self.n} examples"
        if self.threshold is None:
            best = self.best
            text = f"no threshold keeps the risk at most {self.max_risk:.4g} {sure}"
            if best.risk_bound is None:
                return text
            return f"{text}; best: coverage {best.coverage:.3f}, risk at most {best.risk_bound:.4g}"
        low, high = self.coverage_interval
        rule = f"accept if uncertainty <= {self.threshold:.6g}"
        if self.threshold == EVERYTHING:
            rule = "accept everything"
        share = f"coverage {self.coverage:.3f} ({low:.3f} to {high:.3f})"
        if self.risk_bound is None:
            return f"{rule}: {share} {sure}"
        return f"{rule}: risk at most {self.risk_bound:.4g}, {share}, {sure}"

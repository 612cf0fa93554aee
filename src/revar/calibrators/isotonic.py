"""Isotonic calibration, each class against the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy.special import log_softmax, softmax

from revar.calibrators.base import Calibrator, finite_logits, tuning_data
from revar.predictions import Predictions

FLOOR = 1e-12
"""Weight of the uncalibrated probability, so that no class has chance zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isotonic(Calibrator):
    """``g_c(p_c) / sum_k g_k(p_k)``, g_c rising (Zadrozny and Elkan 2002).

    g_c is the isotonic regression of "the label is c" on p_c, linear between its breakpoints and
    constant beyond them. The logits become the logs of these shares, after ``e (p_c + e)`` with
    ``e = 1e-12`` is added to g_c(p_c). That keeps every log above that of 1e-24, lets a row whose
    curves are all zero fall back to its uncalibrated probabilities, and decides between classes
    or rows that a flat piece would tie. The predicted class can change.

    A class that the tune split never shows, or shows alone, has no curve to learn: its p_c stays.

    Attributes:
        inputs: for each class the breakpoints in p_c; none where p_c stays.
        outputs: for each class g_c there.
        fitted_on: examples.
    """

    name: ClassVar[str] = "isotonic"
    inputs: tuple[tuple[float, ...], ...]
    outputs: tuple[tuple[float, ...], ...]
    fitted_on: int

    @classmethod
    def fit(cls, predictions: Predictions) -> Self:
        """Fit a curve for each class; see `Calibrator.fit`."""
        from sklearn.isotonic import IsotonicRegression

        logits, labels = tuning_data(predictions)
        p = softmax(logits, axis=1)
        inputs: list[tuple[float, ...]] = []
        outputs: list[tuple[float, ...]] = []
        for c in range(p.shape[1]):
            is_class = (labels == c).astype(np.float64)
            if is_class.all() or not is_class.any():
                inputs.append(())
                outputs.append(())
                continue
            curve = IsotonicRegression(y_min=0.0, y_max=1.0).fit(p[:, c], is_class)
            inputs.append(tuple(curve.X_thresholds_.tolist()))
            outputs.append(tuple(curve.y_thresholds_.tolist()))
        return cls(inputs=tuple(inputs), outputs=tuple(outputs), fitted_on=len(labels))

    def apply(self, predictions: Predictions) -> Predictions:
        """Bend the probabilities, and normalise them."""
        p = softmax(finite_logits(predictions, len(self.inputs)), axis=1)
        bent = p.copy()
        for c, (x, y) in enumerate(zip(self.inputs, self.outputs, strict=True)):
            if x:
                bent[:, c] = np.interp(p[:, c], x, y)
        logits = log_softmax(np.log(bent + FLOOR * (p + FLOOR)), axis=1)
        return replace(predictions, logits=logits)

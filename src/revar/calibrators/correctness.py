"""P(wrong) from how far the top logit stands out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from revar.calibrators.base import Calibrator, Table, finite_logits, tuning_data
from revar.calibrators.likelihood import fit_logistic
from revar.predictions import Predictions

_RIDGE = 1.0
"""On slopes per standard deviation: finite also where the features tell all errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectnessLogistic(Calibrator):
    """Adds the score ``correctness_logistic``, the logit of P(wrong); the logits stay.

    ``intercept + a * top logit + b * (top logit - second logit)``, by logistic regression of
    "the prediction is wrong" with a small ridge on the standardised slopes.

    The ReVaR paper compares with "ProbOut", which it neither defines nor cites. This is our
    reading: Platt's probabilistic output, a logistic map from the top scores to the chance that
    the prediction is right. Whether it is what the authors ran is not known.

    Attributes:
        intercept: of the model.
        top: slope a.
        margin: slope b.
        fitted_on: examples, of which
        errors: were wrong.
        note: why the score is the negative margin, where nothing could be fitted.
    """

    name: ClassVar[str] = "correctness_logistic"
    intercept: float
    top: float
    margin: float
    fitted_on: int
    errors: int
    note: str = ""

    @classmethod
    def fit(cls, predictions: Predictions) -> Self:
        """Fit the model; see `Calibrator.fit`."""
        logits, labels = tuning_data(predictions)
        wrong = (logits.argmax(axis=1) != labels).astype(np.float64)
        n, errors = len(wrong), int(wrong.sum())
        if errors in (0, n):
            note = f"negative margin: {errors} errors among {n} examples leave nothing to learn"
            return cls(intercept=0.0, top=0.0, margin=-1.0, fitted_on=n, errors=errors, note=note)
        features = _features(logits)
        centre, deviation = features.mean(axis=0), features.std(axis=0)
        # A feature that does not vary has a deviation of rounding errors, or none.
        scale = np.where(np.ptp(features, axis=0) > 0, deviation, np.inf)
        intercept, *slopes = fit_logistic((features - centre) / scale, wrong, _RIDGE)
        top, margin = np.array(slopes) / scale
        return cls(
            intercept=float(intercept - top * centre[0] - margin * centre[1]),
            top=float(top),
            margin=float(margin),
            fitted_on=n,
            errors=errors,
        )

    def apply(self, predictions: Predictions) -> Predictions:
        """Add the score."""
        top, margin = _features(finite_logits(predictions)).T
        values = self.intercept + self.top * top + self.margin * margin
        return replace(predictions, scores={**predictions.scores, self.name: values})


def _features(logits: Table) -> Table:
    """[n, 2] top logit, and its distance to the second."""
    second, top = np.partition(logits, -2, axis=1)[:, -2:].T
    return np.stack([top, top - second], axis=1)

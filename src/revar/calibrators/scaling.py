"""Maps of the logits: temperature, vector and matrix scaling, and Platt's sigmoid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy.special import log_softmax

from revar.calibrators.base import Calibrator, Table, Values, finite_logits, tuning_data
from revar.calibrators.likelihood import fit_affine, fit_logistic, spread
from revar.errors import InputError
from revar.predictions import Predictions

_FURTHEST = 1e3
"""The calibrated logits may become this much larger or smaller than one, and no more."""
PENALTY = 1.0
"""Of vector and matrix scaling: precision of a normal prior around the identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature(Calibrator):
    """``z / T`` (Guo et al. 2017): the class stays, and for C = 2 the softmax ranking too.

    The negative log-likelihood is convex in 1/T, so on log T it has one valley, which a bracketed
    root search of its slope always finds. T is kept to [s/1000, 1000 s], s the root mean square
    of the row-centred logits, widened to hold T = 1: data that is all right drives T to zero,
    useless logits drive it to infinity, and beyond these bounds nothing changes any more.

    Attributes:
        temperature: T.
        fitted_on: examples.
        note: which bound T stopped at, if at one.
    """

    name: ClassVar[str] = "temperature"
    temperature: float
    fitted_on: int
    note: str = ""

    @classmethod
    def fit(cls, predictions: Predictions) -> Self:
        """Fit T by maximum likelihood; see `Calibrator.fit`."""
        from scipy.optimize import brentq

        logits, labels = tuning_data(predictions)
        centred = logits - logits.mean(axis=1, keepdims=True)
        chosen = centred[np.arange(len(labels)), labels]

        def slope(log_temperature: float) -> float:
            """Of the likelihood in 1/T: expected minus observed logit; falls as T grows."""
            chances = np.exp(log_softmax(centred * np.exp(-log_temperature), axis=1))
            return float(((chances * centred).sum(axis=1) - chosen).mean())

        # Nothing to gain anywhere: equal logits, or all right beyond what floats can tell.
        if slope(0.0) == 0.0:
            return cls(temperature=1.0, fitted_on=len(labels))
        size = spread(centred)
        low = np.log(min(1.0, size / _FURTHEST))
        high = np.log(max(1.0, size * _FURTHEST))
        if slope(low) <= 0.0:
            note = "every example is right with any certainty: T is at its lower bound"
            return cls(temperature=float(np.exp(low)), fitted_on=len(labels), note=note)
        if slope(high) >= 0.0:
            note = "the logits say nothing about the labels: T is at its upper bound"
            return cls(temperature=float(np.exp(high)), fitted_on=len(labels), note=note)
        found = brentq(slope, low, high, xtol=1e-12, rtol=1e-14, maxiter=500)
        return cls(temperature=float(np.exp(found)), fitted_on=len(labels))

    def apply(self, predictions: Predictions) -> Predictions:
        """Divide the logits by T, the top one of each row taken as zero."""
        logits = finite_logits(predictions)
        # From the top, so that for C = 2 equal differences stay equal: ties are ties as before.
        fallen = logits - logits.max(axis=1, keepdims=True)
        return replace(predictions, logits=fallen / self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector(Calibrator):
    """``a * z + b`` class by class (Guo et al. 2017), the reading of multiclass Platt scaling.

    Minimises ``sum_i NLL_i + r/2 (|a - 1|^2 + |b|^2)``. It can change the predicted class.

    Attributes:
        factors: [C] a.
        offsets: [C] b.
        fitted_on: examples.
    """

    name: ClassVar[str] = "vector"
    factors: tuple[float, ...]
    offsets: tuple[float, ...]
    fitted_on: int

    @classmethod
    def fit(cls, predictions: Predictions, *, penalty: float = PENALTY) -> Self:
        """Fit a and b; see `Calibrator.fit`. ``penalty`` is r, as scikit-learn's ``1 / C``."""
        logits, labels = tuning_data(predictions)
        n_classes = logits.shape[1]

        def mapped(factors: Values) -> Table:
            return logits * factors

        def gradient(residual: Table) -> Values:
            total: Values = (residual * logits).sum(axis=0)
            return total

        factors, offsets = fit_affine(
            labels, np.ones(n_classes), spread(logits), penalty, mapped, gradient
        )
        return cls(
            factors=tuple(factors.tolist()), offsets=tuple(offsets.tolist()), fitted_on=len(labels)
        )

    def apply(self, predictions: Predictions) -> Predictions:
        """Scale and shift each class."""
        logits = finite_logits(predictions, len(self.factors))
        return replace(predictions, logits=logits * np.array(self.factors) + np.array(self.offsets))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix(Calibrator):
    """``A z + b`` (Guo et al. 2017): C^2 + C numbers, which overfit where C is large.

    Minimises ``sum_i NLL_i + r/2 (|A - I|^2 + |b|^2)``. It can change the predicted class.

    Attributes:
        rows: [C, C] A; row c makes the logit of class c.
        offsets: [C] b.
        fitted_on: examples.
    """

    name: ClassVar[str] = "matrix"
    rows: tuple[tuple[float, ...], ...]
    offsets: tuple[float, ...]
    fitted_on: int

    @classmethod
    def fit(cls, predictions: Predictions, *, penalty: float = PENALTY) -> Self:
        """Fit A and b; see `Calibrator.fit`. ``penalty`` is r, as scikit-learn's ``1 / C``."""
        logits, labels = tuning_data(predictions)
        n_classes = logits.shape[1]

        def mapped(flat: Values) -> Table:
            product: Table = logits @ flat.reshape(n_classes, n_classes).T
            return product

        def gradient(residual: Table) -> Values:
            total: Values = (residual.T @ logits).ravel()
            return total

        flat, offsets = fit_affine(
            labels, np.eye(n_classes).ravel(), spread(logits), penalty, mapped, gradient
        )
        rows = flat.reshape(n_classes, n_classes).tolist()
        return cls(
            rows=tuple(tuple(row) for row in rows),
            offsets=tuple(offsets.tolist()),
            fitted_on=len(labels),
        )

    def apply(self, predictions: Predictions) -> Predictions:
        """Mix the logits of each row."""
        logits = finite_logits(predictions, len(self.rows))
        mixed = logits @ np.array(self.rows).T + np.array(self.offsets)
        return replace(predictions, logits=mixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platt(Calibrator):
    """``P(y = 1) = sigma(a s + b)`` of the logit difference ``s = z_1 - z_0`` (Platt 1999).

    Fitted to Platt's targets, (N+ + 1) / (N+ + 2) for examples of class 1 and 1 / (N- + 2) for
    the others, so that a and b stay finite where s separates the classes.

    Attributes:
        slope: a.
        offset: b.
        fitted_on: examples.
        note: why it is the identity, where nothing could be fitted.
    """

    name: ClassVar[str] = "platt"
    slope: float
    offset: float
    fitted_on: int
    note: str = ""

    @classmethod
    def fit(cls, predictions: Predictions) -> Self:
        """Fit a and b; see `Calibrator.fit`. It refuses more than two classes."""
        logits, labels = tuning_data(predictions)
        if logits.shape[1] != 2:
            msg = f"platt is for 2 classes, these logits are of {logits.shape[1]}: use vector"
            raise InputError(msg)
        positives = int(labels.sum())
        difference = logits[:, 1] - logits[:, 0]
        if positives in (0, len(labels)) or np.ptp(difference) == 0:
            note = "identity: one class only, or one logit difference only, shows no slope"
            return cls(slope=1.0, offset=0.0, fitted_on=len(labels), note=note)
        high, low = platt_targets(positives, len(labels) - positives)
        # Centred and scaled for the search; without a ridge that changes nothing else.
        centre = float(difference.mean())
        size = spread(difference - centre)
        scaled = (difference[:, None] - centre) / size
        offset, slope = fit_logistic(scaled, np.where(labels == 1, high, low), ridge=0.0)
        slope /= size
        return cls(slope=float(slope), offset=float(offset - slope * centre), fitted_on=len(labels))

    def apply(self, predictions: Predictions) -> Predictions:
        """Logits (0, a s + b)."""
        logits = finite_logits(predictions, 2)
        mapped = self.slope * (logits[:, 1] - logits[:, 0]) + self.offset
        return replace(predictions, logits=np.stack([np.zeros_like(mapped), mapped], axis=1))


def platt_targets(positives: int, negatives: int) -> tuple[float, float]:
    """Targets of the two classes, each counted with one more example of the other kind.

    >>> platt_targets(3, 1)
    (0.8, 0.3333333333333333)
    """
    return (positives + 1) / (positives + 2), 1 / (negatives + 2)

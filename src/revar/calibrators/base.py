"""What every calibrator is, and what it may be fitted on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError
from revar.predictions import Predictions

Values = NDArray[np.float64]
"""[n]"""
Table = NDArray[np.float64]
"""[n, C]"""
Labels = NDArray[np.int64]
_ALLOWED = ("tune", "")
"""Splits to fit on; arrays of the user's own have no name."""


class Calibrator(ABC):
    """A map of predictions, fitted on the tune split.

    A leaf is a frozen dataclass of numbers and tuples of numbers, so `revar.fields` can write it.
    """

    __slots__ = ()
    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def fit(cls, predictions: Predictions) -> Self:
        """Fit on labelled predictions of the tune split.

        Raises:
            InputError: another split, no labels, no rows, or logits that are not finite.
        """

    @abstractmethod
    def apply(self, predictions: Predictions) -> Predictions:
        """The predictions, calibrated; labels are not looked at.

        Raises:
            InputError: logits that are not finite, or of another number of classes.
        """


def tuning_data(predictions: Predictions) -> tuple[Table, Labels]:
    """[n, C] logits in float64 and [n] labels, if a calibrator may be fitted on them.

    Raises:
        InputError: see `Calibrator.fit`.
    """
    split = predictions.split
    if split not in _ALLOWED:
        msg = f"these are the {split} split and cannot fit a calibrator too: use the tune split"
        raise InputError(msg)
    if predictions.labels is None:
        raise InputError("these predictions have no labels, and a calibrator is fitted to labels")
    logits, labels = finite_logits(predictions), predictions.labels
    if len(logits) == 0:
        raise InputError("there are no rows to fit a calibrator on: train with a tune split")
    n_classes = logits.shape[1]
    if labels.shape != (len(logits),) or labels.min() < 0 or labels.max() >= n_classes:
        msg = f"labels must be {len(logits)} class numbers from 0 to {n_classes - 1}"
        raise InputError(msg)
    return logits, labels


def finite_logits(predictions: Predictions, n_classes: int | None = None) -> Table:
    """[n, C] logits in float64, checked.

    Args:
        predictions: to take them from.
        n_classes: C, where the calibrator was fitted for that many only.

    Raises:
        InputError: not a matrix, NaN or infinite, fewer than two classes, or another number.
    """
    logits = predictions.logits.astype(np.float64)
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError(f"logits have shape {logits.shape}: [n, C] with C >= 2 is needed")
    if n_classes is not None and logits.shape[1] != n_classes:
        msg = f"these logits are of {logits.shape[1]} classes, the calibrator is for {n_classes}"
        raise InputError(msg)
    bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if len(bad):
        raise InputError(f"logits are not finite in {len(bad)} rows, first in row {bad[0]}")
    return logits

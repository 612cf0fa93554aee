"""Scores from T dropout passes (Gal and Ghahramani 2016)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError
from revar.predictions import Predictions


def _needed(values: NDArray[np.floating] | None) -> NDArray[np.float64]:
    if values is None:
        raise InputError("this run has no dropout passes: train it with dropout_rate > 0")
    return values.astype(np.float64)


def dropout_entropy(predictions: Predictions) -> NDArray[np.float64]:
    """Entropy of the mean probabilities, the paper's MCD score."""
    return _needed(predictions.dropout_entropy)


def dropout_variance(predictions: Predictions) -> NDArray[np.float64]:
    """Equation 5: the variance of the probabilities, summed over classes."""
    return _needed(predictions.dropout_variance)


def mutual_information(predictions: Predictions) -> NDArray[np.float64]:
    """Entropy of the mean minus mean of the entropies: what the passes disagree about."""
    expected = _needed(predictions.dropout_expected_entropy)
    # Rounding may take the difference of two equal entropies a hair below zero.
    return np.maximum(dropout_entropy(predictions) - expected, 0.0)

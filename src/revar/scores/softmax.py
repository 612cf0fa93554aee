"""Scores from one pass of the classifier."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from revar.predictions import Predictions


def log_odds(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """[n] ``z_max - logsumexp of the other logits``.

    The log-odds of the top class: monotone in its probability, and unlike it never saturated,
    so that confident predictions do not tie.
    """
    z = logits.astype(np.float64)
    rows = np.arange(len(z))
    where = z.argmax(axis=1)
    top = z[rows, where]
    others = z.copy()
    others[rows, where] = -np.inf
    # By hand: scipy's way to find out what it was given takes longer than a small network.
    highest = others.max(axis=1, keepdims=True)
    highest[~np.isfinite(highest)] = 0.0
    with np.errstate(divide="ignore", over="ignore"):
        rest = np.log(np.exp(others - highest).sum(axis=1)) + highest[:, 0]
    result: NDArray[np.float64] = top - rest
    return result


def softmax(predictions: Predictions) -> NDArray[np.float64]:
    """Softmax response: the negative log-odds of the top class."""
    return -log_odds(predictions.logits)


def softmax_entropy(predictions: Predictions) -> NDArray[np.float64]:
    """``- sum_c p_c log p_c`` in nats."""
    log_p = predictions.log_probabilities
    result: NDArray[np.float64] = -(np.exp(log_p) * log_p).sum(axis=1)
    return result

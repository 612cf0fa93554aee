"""Predictions made up, with known chances of error, and without any network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from revar.predictions import Predictions

Floats = NDArray[np.float64]


def of_logits(logits: Any, **parts: Any) -> Predictions:
    """Predictions of these logits; labels and the rest as given."""
    values = np.asarray(logits)
    return Predictions(index=np.arange(len(values)), logits=values, **parts)


def of_passes(samples: Floats, **parts: Any) -> Predictions:
    """Predictions with everything that [T, n, C] logits of dropout passes have to say."""
    p: Floats = softmax(samples, axis=-1)
    mean = p.mean(axis=0)
    return of_logits(
        parts.pop("logits", samples.mean(axis=0)),
        dropout_mean=mean,
        dropout_variance=((p - mean) ** 2).mean(axis=0).sum(axis=-1),
        dropout_entropy=entropy(mean),
        dropout_expected_entropy=entropy(p).mean(axis=0),
        **parts,
    )


def entropy(p: Floats) -> Floats:
    """In nats, over the last axis."""
    logs = np.log(p, where=p > 0, out=np.zeros_like(p))
    result: Floats = -(p * logs).sum(axis=-1)
    return result


def log_odds(logits: Floats) -> Floats:
    """Log-odds of the top class, by leaving it out of a sorted row."""
    z = np.sort(np.asarray(logits, dtype=np.float64), axis=1)
    result: Floats = z[:, -1] - logsumexp(z[:, :-1], axis=1)
    return result


def with_errors(
    seed: int, n: int, *, evidence: float, noisy_dropout: bool = False, base: float = -0.5
) -> Predictions:
    """Three classes; the logit of P(error) is ``base - 0.7 log-odds + evidence * U-Score``.

    The U-Score is a standard normal independent of the logits. With ``noisy_dropout`` there are
    dropout figures too, which know nothing about errors.
    """
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, 3))
    u = rng.normal(size=n)
    wrong = rng.random(n) < expit(base - 0.7 * log_odds(logits) + evidence * u)
    labels = (logits.argmax(axis=1) + wrong * rng.integers(1, 3, n)) % 3
    parts: dict[str, Any] = {}
    if noisy_dropout:
        parts = {
            "dropout_mean": softmax(logits, axis=1),
            "dropout_variance": rng.random(n),
            "dropout_entropy": rng.random(n),
            "dropout_expected_entropy": np.zeros(n),
        }
    return of_logits(logits, labels=labels, columns={"uscore": u}, **parts)

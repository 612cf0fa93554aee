"""A problem on which plain training memorises, and becomes far too confident."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from revar.data.source import Part, Source
from revar.metrics import ece
from support.problems import blobs, fit

SEEDS = (0, 1, 2)


def _noisy(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Clusters beside 20 inputs that mean nothing, 30 % of the labels drawn anew."""
    generator = np.random.default_rng(1000 + seed)
    x, y = blobs(n, seed=seed)
    x = np.concatenate([x, generator.standard_normal((n, 20))], axis=1)
    drawn = generator.random(n) < 0.3
    return x, np.where(drawn, generator.integers(0, 3, n), y)


@cache
def held_out(method: str) -> NDArray[np.float64]:
    """ECE, accuracy and mean confidence on 2,000 fresh examples, means over the seeds."""
    rows = []
    for seed in SEEDS:
        test = Part(*_noisy(2000, 2 * seed + 1))
        data = Source(Part(*_noisy(400, 2 * seed)), tests={"test": test})
        model = fit(method, data, epochs=30, seed=seed, dropout_rate=0.0, test_passes=0)
        predictions = model.predictions["test"]
        probabilities = softmax(predictions.logits.astype(np.float64), axis=1)
        assert predictions.labels is not None
        hits = probabilities.argmax(axis=1) == predictions.labels
        error = ece(probabilities, predictions.labels)
        rows.append([error, hits.mean(), probabilities.max(axis=1).mean()])
    means: NDArray[np.float64] = np.array(rows).mean(axis=0)
    return means

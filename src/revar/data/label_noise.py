"""Label noise that depends on the input."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import truncnorm


def instance_dependent(
    x: NDArray[np.floating], y: NDArray[np.int64], rate: float, n_classes: int, seed: int
) -> NDArray[np.int64]:
    """Flip labels where the input says so (Xia et al. 2020, algorithm 2).

    Example i is flipped with probability ``q_i``, a normal of mean ``rate`` and deviation 0.1
    truncated to [0, 1]; to which class is drawn from the softmax of ``x_i' W[y_i]`` over the other
    classes, W standard normal. With inputs far from unit scale that draw is all but determined
    by the input.

    Args:
        x: [n, d] inputs, in the scale the noise is to see.
        y: [n] class numbers.
        rate: mean flip rate.
        n_classes: C.
        seed: of the draws.

    Returns:
        [n] noisy class numbers.
    """
    generator = np.random.default_rng(seed)
    low, high = (0 - rate) / 0.1, (1 - rate) / 0.1
    flip_rate = truncnorm.rvs(low, high, loc=rate, scale=0.1, size=len(y), random_state=generator)
    noisy = y.copy()
    for label in range(n_classes):
        rows = np.flatnonzero(y == label)
        towards = generator.standard_normal((x.shape[1], n_classes))
        logits = x[rows] @ towards
        logits[:, label] = -np.inf
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        share = odds / odds.sum(axis=1, keepdims=True)
        flipped = generator.random(len(rows)) < flip_rate[rows]
        for row, probabilities, flip in zip(rows, share, flipped, strict=True):
            if flip:
                noisy[row] = generator.choice(n_classes, p=probabilities)
    return noisy

"""Predicted distributions against those of human labellers, and scores against entropy."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from revar.errors import UndefinedMetricWarning, unknown
from revar.metrics.arrays import distribution_rows, score_vector, weight_vector

_Array = NDArray[np.float64]


def _two_distributions(
    probabilities: Any, human_probabilities: Any, sample_weight: Any
) -> tuple[_Array, _Array, _Array]:
    """Predicted and human rows of sum exactly one, without which KL might be negative."""
    predicted = distribution_rows(probabilities)
    human = distribution_rows(human_probabilities, "human_probabilities")
    if predicted.shape != human.shape:
        msg = (
            f"probabilities have shape {predicted.shape}, human_probabilities {human.shape}: "
            "the same [n, C] needed"
        )
        raise ValueError(msg)
    weight = weight_vector(sample_weight, len(predicted))
    # Examples of weight 0 are left out: theirs may be infinite.
    rows = weight > 0
    predicted, human = predicted[rows], human[rows]
    return (
        predicted / predicted.sum(axis=1, keepdims=True),
        human / human.sum(axis=1, keepdims=True),
        weight[rows],
    )


def label_kl(probabilities: Any, human_probabilities: Any, *, sample_weight: Any = None) -> float:
    """Mean ``KL(human || predicted) = sum_c h_c ln(h_c / p_c)``, in nats.

    The label-uncertainty figure of Tran et al. 2022 (PLEX). Classes that no labeller chose add
    nothing; a class that one chose and that has predicted probability 0 makes it infinite.

    Args:
        probabilities: [n, C] predicted, rows of sum one.
        human_probabilities: [n, C] shares of the labellers' votes, rows of sum one.
        sample_weight: [n] weights.

    Raises:
        ValueError: two shapes, NaN, or rows that are no distribution.
    """
    p, h, weight = _two_distributions(probabilities, human_probabilities, sample_weight)
    chosen = h > 0
    terms = np.zeros_like(h)
    with np.errstate(divide="ignore"):
        terms[chosen] = h[chosen] * (np.log(h[chosen]) - np.log(p[chosen]))
    return float(np.average(terms.sum(axis=1), weights=weight))


def label_js(probabilities: Any, human_probabilities: Any, *, sample_weight: Any = None) -> float:
    """Mean Jensen-Shannon divergence, ``KL(h || m) / 2 + KL(p || m) / 2``, ``m = (h + p) / 2``.

    In nats, from 0 to ln 2, where no class has both; the same with the two exchanged (Lin 1991).

    Args:
        probabilities: [n, C] predicted, rows of sum one.
        human_probabilities: [n, C] shares of the labellers' votes, rows of sum one.
        sample_weight: [n] weights.

    Raises:
        ValueError: two shapes, NaN, or rows that are no distribution.
    """
    p, h, weight = _two_distributions(probabilities, human_probabilities, sample_weight)
    terms = np.zeros_like(p)
    for one in (p, h):
        there = one > 0
        # Against the sum and not its half, which the least of numbers would not survive.
        terms[there] += one[there] * np.log(2.0 * one[there] / (p + h)[there]) / 2.0
    return float(np.average(terms.sum(axis=1), weights=weight))


def _entropy(probabilities: _Array) -> _Array:
    """[n] entropy in nats; rows of the same values in another order have the very same."""
    p = np.sort(probabilities, axis=1)
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    entropy: _Array = -(p * logs).sum(axis=1)
    return entropy


def _middle_ranks(values: _Array, weight: _Array) -> _Array:
    """[n] weight below each value and half of that at it: ranks, but for a constant."""
    _, block = np.unique(values, return_inverse=True)
    mass = np.bincount(block, weight)
    ranks: _Array = (np.cumsum(mass) - mass / 2.0)[block]
    return ranks


def _centred(values: _Array, weight: _Array) -> _Array | None:
    """[n] deviations from the mean, the largest of them 1; None if all values are the same."""
    deviations = values - np.average(values, weights=weight)
    largest = np.abs(deviations).max()
    # Below this only the rounding of the mean and of the values is left.
    if largest <= 1e-13 * np.abs(values).max():
        return None
    scaled: _Array = deviations / largest
    return scaled


def uscore_entropy_correlation(
    uscore: Any,
    probabilities: Any,
    *,
    kind: Literal["pearson", "spearman"] = "pearson",
    sample_weight: Any = None,
) -> float:
    """Correlation of a score with the entropy of the classifier's softmax, from -1 to 1.

    Args:
        uscore: [n] scores of any kind, such as the U-Score.
        probabilities: [n, C] softmax of the classifier, rows of sum one.
        kind: ``pearson``, or ``spearman``: Pearson's of the ranks, tied ones at their middle.
        sample_weight: [n] weights.

    Returns:
        NaN, with an `UndefinedMetricWarning`, where scores or entropies are all the same.

    Raises:
        ValueError: wrong shapes, NaN, rows that are no distribution, or an infinite score,
            which only ranks can take.
    """
    if kind not in ("pearson", "spearman"):
        raise unknown("kind of correlation", kind, ["pearson", "spearman"])
    p = distribution_rows(probabilities)
    scores = score_vector(uscore, "uscore", len(p))
    weight = weight_vector(sample_weight, len(p))
    rows = weight > 0
    pair = {"scores": scores[rows], "entropies": _entropy(p[rows])}
    weight = weight[rows]
    if kind == "spearman":
        pair = {name: _middle_ranks(values, weight) for name, values in pair.items()}
    elif np.isinf(scores).any():
        row = np.flatnonzero(np.isinf(scores))[0]
        raise ValueError(f'uscore is infinite in row {row}: only kind="spearman" can take that')
    centred = []
    for name, values in pair.items():
        deviations = _centred(values, weight)
        if deviations is None:
            msg = f"correlation is undefined: all {name} of {len(weight)} examples are the same"
            warnings.warn(msg, UndefinedMetricWarning, stacklevel=2)
            return float("nan")
        centred.append(deviations)
    x, y = centred
    spread = np.sqrt(np.average(x * x, weights=weight) * np.average(y * y, weights=weight))
    return float(np.clip(np.average(x * y, weights=weight) / spread, -1.0, 1.0))

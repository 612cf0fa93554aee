"""Calibration: whether a probability of 0.8 is right eight times in ten.

All take ``(probabilities, labels)``, [n, C] rows of sum one and [n] class numbers. The confidence
is the largest probability of a row and the predicted class the first that has it. A whole
``sample_weight`` counts as that many equal rows, others make weighted means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from revar.errors import unknown
from revar.metrics.arrays import kept_of_blocks, probability_arguments, score_vector

Binning = Literal["equal_width", "equal_mass"]
Kind = Literal["confidence", "classwise", "top_label"]
_Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reliability:
    """Confidence against accuracy in bins ``(edges[b], edges[b + 1]]``; 0 is in the first.

    Attributes:
        edges: [B + 1] from 0 to 1, never falling. Equal edges enclose an empty bin.
        weight: [B] sum of weights, which without weights is the number of examples.
        confidence: [B] mean confidence, NaN in an empty bin.
        accuracy: [B] share that is right, NaN in an empty bin.
    """

    edges: _Vector
    weight: _Vector
    confidence: _Vector
    accuracy: _Vector


def _edges(confidence: _Vector, weight: _Vector, n_bins: int, binning: str) -> _Vector:
    if binning == "equal_width":
        # Quotients, not multiples of 1 / B: three times 0.2 is more than 0.6.
        return np.arange(n_bins + 1, dtype=np.float64) / n_bins
    values, block = np.unique(confidence[weight > 0], return_inverse=True)
    reached = np.cumsum(np.bincount(block, weight[weight > 0]))
    # The k-th edge is the first value at which k / B of the weight is reached. Sums of real
    # weights are rounded, so what is reached within 1e-9 of a bin counts as reached.
    wanted = np.arange(1, n_bins) - 1e-9
    inner = np.searchsorted(reached / reached[-1] * n_bins, wanted, side="left")
    return np.concatenate([[0.0], values[inner], [1.0]])


def _reliability(
    confidence: _Vector, hits: _Vector, weight: _Vector, n_bins: int, binning: str
) -> Reliability:
    edges = _edges(confidence, weight, n_bins, binning)
    # Compared with the edges themselves: a product such as 0.28 * 25 may round past its edge.
    bins = np.searchsorted(edges[1:-1], confidence, side="left")
    total: _Vector = np.bincount(bins, weight, minlength=n_bins).astype(np.float64)

    def mean(values: _Vector) -> _Vector:
        means = np.full(n_bins, np.nan)
        sums = np.bincount(bins, weight * values, minlength=n_bins)
        np.divide(sums, total, out=means, where=total > 0)
        return means

    return Reliability(edges, total, mean(confidence), mean(hits))


def _gaps(bins: Reliability) -> tuple[_Vector, _Vector]:
    """Share of the weight and |accuracy - confidence| of the bins that are not empty."""
    full = bins.weight > 0
    gap = np.abs(bins.accuracy[full] - bins.confidence[full])
    return bins.weight[full] / bins.weight.sum(), gap


def _error(confidence: _Vector, hits: _Vector, weight: _Vector, n_bins: int, binning: str) -> float:
    share, gap = _gaps(_reliability(confidence, hits, weight, n_bins, binning))
    return float((share * gap).sum())


def _check_bins(n_bins: Any, binning: str) -> None:
    if not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise ValueError(f"n_bins is {n_bins}, it must be a whole number of at least 1")
    if binning not in ("equal_width", "equal_mass"):
        raise unknown("binning", binning, ["equal_width", "equal_mass"])


def reliability(
    probabilities: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    binning: Binning = "equal_width",
    sample_weight: Any = None,
) -> Reliability:
    """Confidence against accuracy of the predicted class, bin by bin, as in a reliability plot.

    Equal-mass bins end at the values of confidence where 1/B, 2/B, ... of the weight is first
    reached. Equal confidences are in one bin, so heavy ties leave later bins empty and the order
    of rows does not matter.

    Args:
        probabilities: [n, C], rows of sum one.
        labels: [n] class numbers.
        n_bins: number B of bins.
        binning: bins of equal width on [0, 1], or of equal weight.
        sample_weight: [n] weights.

    Raises:
        ValueError: wrong shapes, NaN, rows that are no distribution, labels outside 0..C-1.
    """
    _check_bins(n_bins, binning)
    p, y, weight = probability_arguments(probabilities, labels, sample_weight)
    hits = (p.argmax(axis=1) == y).astype(np.float64)
    return _reliability(p.max(axis=1), hits, weight, n_bins, binning)


def ece(
    probabilities: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    binning: Binning = "equal_width",
    kind: Kind = "confidence",
    sample_weight: Any = None,
) -> float:
    """Expected calibration error, ``sum_b (n_b / n) |accuracy_b - confidence_b|``.

    Bins are ``(low, high]``; a confidence of exactly 0 belongs to the first and one of 1 to the
    last. Of ``kind``

    - ``confidence`` (Naeini et al. 2015; Guo et al. 2017): the predicted class;
    - ``classwise`` (Kull et al. 2019): the mean over all C classes c, labels seen or not, of
      the error of ``p_c`` as the probability of ``y = c``;
    - ``top_label`` (Gupta and Ramdas 2022): the error of the confidence among the examples of
      each predicted class, binned there, weighted by their share.

    Args:
        probabilities: [n, C], rows of sum one.
        labels: [n] class numbers.
        n_bins: 15 unless told.
        binning: bins of equal width or equal mass, see `reliability`.
        kind: which probabilities are held against the labels.
        sample_weight: [n] weights.

    Raises:
        ValueError: wrong shapes, NaN, rows that are no distribution, labels outside 0..C-1.

    >>> round(ece([[0.95, 0.05], [1.0, 0.0]], [0, 1], n_bins=10), 12)  # |0.5 - 0.975|
    0.475
    """
    _check_bins(n_bins, binning)
    p, y, weight = probability_arguments(probabilities, labels, sample_weight)
    if kind == "classwise":
        columns = [
            _error(column, (y == c).astype(np.float64), weight, n_bins, binning)
            for c, column in enumerate(p.T)
        ]
        return float(np.mean(columns))
    predicted, confidence = p.argmax(axis=1), p.max(axis=1)
    hits = (predicted == y).astype(np.float64)
    if kind == "confidence":
        return _error(confidence, hits, weight, n_bins, binning)
    if kind != "top_label":
        raise unknown("kind of ECE", kind, ["confidence", "classwise", "top_label"])
    error = 0.0
    for c in np.unique(predicted[weight > 0]):
        rows = predicted == c
        within = _error(confidence[rows], hits[rows], weight[rows], n_bins, binning)
        error += float(weight[rows].sum() / weight.sum()) * within
    return error


def mce(
    probabilities: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    binning: Binning = "equal_width",
    sample_weight: Any = None,
) -> float:
    """Maximum calibration error: the largest ``|accuracy - confidence|`` of a bin not empty.

    Arguments and bins as for `ece`, of the predicted class.
    """
    bins = reliability(
        probabilities, labels, n_bins=n_bins, binning=binning, sample_weight=sample_weight
    )
    return float(_gaps(bins)[1].max())


def selective_ece(
    uncertainty: Any,
    probabilities: Any,
    labels: Any,
    *,
    coverages: Sequence[float] = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    n_bins: int = 15,
    sample_weight: Any = None,
) -> NDArray[np.float64]:
    """`ece` of the softmax confidence among the least uncertain, at several coverages.

    Who is kept is settled by the uncertainty, which need not be a probability; what is
    calibrated is the softmax. Examples tied at the border count with the share of their block
    that is kept (`kept_weights`), so the order of rows does not matter.

    Args:
        uncertainty: [n] scores, higher is rejected first.
        probabilities: [n, C], rows of sum one.
        labels: [n] class numbers.
        coverages: shares to keep, each in (0, 1].
        n_bins: number of bins of equal width.
        sample_weight: [n] weights.

    Returns:
        [len(coverages)] one error for each coverage.

    Raises:
        ValueError: as `ece` does, scores that do not fit, or a coverage outside (0, 1].
    """
    _check_bins(n_bins, "equal_width")
    p, y, weight = probability_arguments(probabilities, labels, sample_weight)
    _, block = np.unique(score_vector(uncertainty, n=len(y)), return_inverse=True)
    confidence = p.max(axis=1)
    hits = (p.argmax(axis=1) == y).astype(np.float64)
    return np.array(
        [
            _error(confidence, hits, kept_of_blocks(block, c, weight), n_bins, "equal_width")
            for c in coverages
        ]
    )


def brier(probabilities: Any, labels: Any, *, sample_weight: Any = None) -> float:
    """Brier score, the mean of ``sum_c (p_c - 1[y = c])^2`` (Brier 1950); from 0 to 2.

    All C classes are summed, so for two classes it is twice the square of ``p_1 - y``.

    Args:
        probabilities: [n, C], rows of sum one.
        labels: [n] class numbers.
        sample_weight: [n] weights.

    >>> brier([[0.5, 0.5], [0.0, 1.0]], [0, 0])  # (1/2 + 2) / 2
    1.25
    """
    p, y, weight = probability_arguments(probabilities, labels, sample_weight)
    p[np.arange(len(y)), y] -= 1.0
    return float(np.average((p * p).sum(axis=1), weights=weight))


def nll(probabilities: Any, labels: Any, *, sample_weight: Any = None) -> float:
    """Negative log-likelihood, the mean of ``-ln p_y``, in nats.

    Infinite where a true class has probability 0: nothing is clipped, since the bound would
    then be the figure. Examples of weight 0 do not count, whatever they are.

    Args:
        probabilities: [n, C], rows of sum one.
        labels: [n] class numbers.
        sample_weight: [n] weights.
    """
    p, y, weight = probability_arguments(probabilities, labels, sample_weight)
    counts = weight > 0
    with np.errstate(divide="ignore"):
        losses = -np.log(p[np.arange(len(y)), y][counts])
    return float(np.average(losses, weights=weight[counts]))

"""Ranking: classes among the kept examples, and strange examples among familiar ones."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from revar.errors import UndefinedMetricWarning, unknown
from revar.metrics.arrays import (
    kept_weights,
    probability_arguments,
    score_vector,
    weight_vector,
)


def rank_auroc(
    scores: NDArray[np.float64], positive: NDArray[np.bool_], weight: NDArray[np.float64]
) -> float:
    """Chance that a positive example has the higher score of a pair, ties counting half.

    Exact: every distinct score is a threshold. Both sides must have weight.

    Args:
        scores: [n], higher for the positive.
        positive: [n] booleans.
        weight: [n] weights; a whole one counts as that many equal rows.
    """
    _, block = np.unique(scores, return_inverse=True)
    positives = np.bincount(block, weight * positive)
    negatives = np.bincount(block, weight * ~positive)
    below = np.r_[0.0, np.cumsum(negatives)[:-1]]
    won = (positives * (below + negatives / 2.0)).sum()
    return float(won / (positives.sum() * negatives.sum()))


def auc_at_coverage(
    uncertainty: Any,
    probabilities: Any,
    labels: Any,
    coverage: float,
    *,
    sample_weight: Any = None,
) -> float:
    """AUROC of the class probabilities among the least uncertain examples.

    With two classes that of ``p_1`` for class 1; with more the mean over the classes of that of
    ``p_c`` for class c against the rest. Examples tied at the border count with the share of
    their block that is kept (`kept_weights`). Rejection changes the balance of classes, so this
    need not rise as coverage falls.

    Args:
        uncertainty: [n] scores, higher is rejected first.
        probabilities: [n, C], rows of sum one.
        labels: [n] class numbers.
        coverage: share to keep, in (0, 1].
        sample_weight: [n] weights.

    Returns:
        NaN, with an `UndefinedMetricWarning`, where a class has no example among the kept.

    Raises:
        ValueError: wrong shapes, NaN, rows that are no distribution, labels outside 0..C-1, or
            a coverage outside (0, 1].
    """
    p, y, weight = probability_arguments(probabilities, labels, sample_weight)
    kept = kept_weights(score_vector(uncertainty, n=len(y)), coverage, weight)
    n_classes = p.shape[1]
    present = np.bincount(y, kept, minlength=n_classes) > 0
    if not present.all() or n_classes == 1:
        number = f"{kept.sum():.10g}"
        if present.sum() == 1:
            why = f"all {number} kept examples are of class {present.argmax()}"
        else:
            why = f"class {present.argmin()} has no examples among the {number} kept"
        msg = f"AUC at coverage {coverage} is undefined: {why}"
        warnings.warn(msg, UndefinedMetricWarning, stacklevel=2)
        return float("nan")
    classes = [1] if n_classes == 2 else range(n_classes)
    return float(np.mean([rank_auroc(p[:, c], y == c, kept) for c in classes]))


def ood_auroc(
    inside: Any, outside: Any, *, inside_weight: Any = None, outside_weight: Any = None
) -> float:
    """Chance that an outside example is more uncertain than an inside one, ties counting half.

    Args:
        inside: [n] uncertainty of familiar examples.
        outside: [m] uncertainty of examples from elsewhere.
        inside_weight: [n] weights.
        outside_weight: [m] weights.

    Raises:
        ValueError: not two vectors, an empty set, NaN, or weights that cannot be used.

    >>> ood_auroc([0.1, 0.2], [0.2, 0.3])  # of four pairs three in order and one tied
    0.875
    """
    a, b = score_vector(inside, "inside"), score_vector(outside, "outside")
    weight = np.r_[
        weight_vector(inside_weight, len(a), "inside_weight"),
        weight_vector(outside_weight, len(b), "outside_weight"),
    ]
    return rank_auroc(np.r_[a, b], np.arange(len(weight)) >= len(a), weight)


def ood_fpr_at_tpr(
    inside: Any,
    outside: Any,
    *,
    tpr: float = 0.95,
    positive: Literal["inside", "outside"] = "inside",
    inside_weight: Any = None,
    outside_weight: Any = None,
) -> float:
    """False positive rate where the true positive rate is first at least ``tpr``.

    With ``positive="inside"`` (Liang et al. 2018, ODIN) the smallest threshold accepts at least
    95 % of the inside examples, uncertainty <= threshold, and the figure is the share of outside
    ones it accepts as well. With ``"outside"`` the largest threshold flags at least 95 % of the
    outside ones, uncertainty >= threshold, and the figure is the share of inside ones flagged.
    Examples at the threshold are on the positive side, all of them; nothing is interpolated.

    Args:
        inside: [n] uncertainty of familiar examples.
        outside: [m] uncertainty of examples from elsewhere.
        tpr: rate to reach, in (0, 1].
        positive: which set is to be found.
        inside_weight: [n] weights.
        outside_weight: [m] weights.

    Raises:
        ValueError: a rate outside (0, 1], not two vectors, an empty set, NaN, or weights that
            cannot be used.
    """
    if not 0.0 < tpr <= 1.0:
        raise ValueError(f"tpr is {tpr}, it must be in (0, 1]")
    if positive not in ("inside", "outside"):
        raise unknown("positive set", positive, ["inside", "outside"])
    found, other = score_vector(inside, "inside"), score_vector(outside, "outside")
    found_weight = weight_vector(inside_weight, len(found), "inside_weight")
    other_weight = weight_vector(outside_weight, len(other), "outside_weight")
    if positive == "outside":
        found, other = -other, -found
        found_weight, other_weight = other_weight, found_weight
    values, block = np.unique(found, return_inverse=True)
    reached = np.cumsum(np.bincount(block, found_weight))
    # 0.07 * 100 is 7.000000000000001, and seven in a hundred are enough.
    enough = (tpr - 1e-12) * reached[-1]
    threshold = values[np.searchsorted(reached, enough, side="left")]
    return float(other_weight[other <= threshold].sum() / other_weight.sum())

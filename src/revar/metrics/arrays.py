"""Arguments of metrics: NumPy or torch in, checked, never guessed at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDED = {"float16": 2e-3, "bfloat16": 1e-2}
"""How far rows of probabilities may be from a sum of one, where numbers have few digits."""


def as_array(values: Any) -> NDArray[Any]:
    """A NumPy array of whatever was given; torch tensors are brought to the host.

    Raises:
        ValueError: values that are masked, or complex.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # NumPy has no bfloat16.
        values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    if np.ma.is_masked(values):
        raise ValueError("some values are masked: leave those rows out")
    array = np.asarray(values)
    if array.dtype.kind == "c":
        raise ValueError("the values are complex: real numbers are needed")
    return array


def selective_arguments(
    uncertainty: Any, correct: Any, sample_weight: Any = None
) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.float64] | None]:
    """[n] uncertainty, [n] correctness and [n] weights, if there are any.

    Raises:
        ValueError: not vectors of one length, NaN, correctness that is neither right nor wrong,
            or weights that cannot be.
    """
    scores = as_array(uncertainty)
    if scores.dtype.kind != "f" or scores.dtype.itemsize < 4:
        scores = scores.astype(np.float64)
    hits = as_array(correct)
    if scores.ndim != 1 or hits.shape != scores.shape:
        msg = f"uncertainty has shape {scores.shape}, correct {hits.shape}: two vectors [n] needed"
        raise ValueError(msg)
    if len(scores) == 0:
        raise ValueError("no examples")
    refuse_nan("uncertainty", scores)
    if hits.dtype != np.bool_:
        if not np.isin(hits, (0, 1)).all():
            raise ValueError("correct must be booleans, or 0 and 1")
        hits = hits.astype(np.bool_)
    return scores, hits, weight_argument(sample_weight, len(scores))


def refuse_nan(name: str, values: NDArray[Any]) -> None:
    """An error that names the rows of [n, ...] values that are NaN."""
    # The smallest of all is NaN if any is, and is found without a second array.
    if len(values) and np.isnan(values.min()):
        rows = np.flatnonzero(np.isnan(values).reshape(len(values), -1).any(axis=1))
        first = ", ".join(str(row) for row in rows[:5])
        more = ", ..." if len(rows) > 5 else ""
        raise ValueError(f"{name} is NaN in {len(rows)} rows: {first}{more}")


def weight_argument(sample_weight: Any, n: int) -> NDArray[np.float64] | None:
    """[n] weights, checked; none where none were given."""
    return None if sample_weight is None else weight_vector(sample_weight, n)


def whole_count(wanted: Any) -> Any:
    """Examples that make up a share of them, rounded down.

    0.7 * 10 is 7.000000000000001 or 6.999999999999999 as the machine likes; both mean 7.
    """
    return np.floor(np.multiply(wanted, 1.0 + 1e-12) + 1e-9)


def balanced_weights(labels: Any, *, sample_weight: Any = None) -> NDArray[np.float64]:
    """[n] weights under which every class weighs the same and the total stays what it was.

    Args:
        labels: [n] of any kind: true classes, or groups.
        sample_weight: [n] weights within the classes.
    """
    _, numbers = np.unique(as_array(labels), return_inverse=True)
    given = weight_argument(sample_weight, len(numbers))
    weights = np.ones(len(numbers)) if given is None else given
    mass = np.bincount(numbers, weights)
    scale = np.divide(
        weights.sum() / (mass > 0).sum(), mass, where=mass > 0, out=np.zeros(len(mass))
    )
    result: NDArray[np.float64] = weights * scale[numbers]
    return result


def score_vector(
    values: Any, name: str = "uncertainty", n: int | None = None
) -> NDArray[np.float64]:
    """[n] scores as float64, at least one and none of them NaN; infinities are in order.

    Raises:
        ValueError: not a vector, not of the length n if one is given, empty, or NaN, with the
            rows.
    """
    scores = as_array(values).astype(np.float64)
    if scores.ndim != 1 or n not in (None, len(scores)):
        wanted = "a vector [n]" if n is None else f"({n},)"
        raise ValueError(f"{name} has shape {scores.shape}: {wanted} needed")
    if len(scores) == 0:
        raise ValueError(f"{name} has no examples")
    refuse_nan(name, scores)
    return scores


def weight_vector(sample_weight: Any, n: int, name: str = "sample_weight") -> NDArray[np.float64]:
    """[n] weights as float64; ones where none are given.

    Raises:
        ValueError: another shape, a negative or non-finite weight, or nothing but zeros.
    """
    if sample_weight is None:
        return np.ones(n)
    weight = as_array(sample_weight).astype(np.float64)
    if weight.shape != (n,):
        raise ValueError(f"{name} has shape {weight.shape}: ({n},) needed")
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(bad) or not weight.any():
        found = f"{weight[bad[0]]} in row {bad[0]}" if len(bad) else "0 in every row"
        msg = f"{name} must be finite and not negative, with a positive sum: it is {found}"
        raise ValueError(msg)
    return weight


def distribution_rows(values: Any, name: str = "probabilities") -> NDArray[np.float64]:
    """[n, C] rows of probabilities as float64; what rounding left above one is one.

    Raises:
        ValueError: not a matrix, empty, NaN, negative, or a row whose sum is off by over 1e-4,
            or by more than halves are rounded.
    """
    rows = as_array(values).astype(np.float64)
    kind = str(getattr(values, "dtype", "")).removeprefix("torch.")
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"{name} have shape {rows.shape}: [n, C] needed")
    refuse_nan(name, rows)
    with np.errstate(invalid="ignore", over="ignore"):
        sums = rows.sum(axis=1)
    bad = np.flatnonzero((rows < 0).any(axis=1) | ~(np.abs(sums - 1.0) <= _ROUNDED.get(kind, 1e-4)))
    if len(bad):
        row = bad[0]
        msg = (
            f"{name} must be non-negative with rows of sum one: row {row} has smallest value "
            f"{rows[row].min():g} and sum {sums[row]:g}; logits need a softmax first"
        )
        raise ValueError(msg)
    return np.minimum(rows, 1.0)


def probability_arguments(
    probabilities: Any, labels: Any, sample_weight: Any = None
) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
    """[n, C] probabilities, [n] class numbers in 0..C-1 and [n] weights.

    Raises:
        ValueError: wrong shapes, NaN, rows that are no distribution, a label that is no class
            number (its value and row are named), or weights that cannot be used.
    """
    p, y = as_array(probabilities), as_array(labels)
    if p.ndim != 2 or y.shape != (len(p),) or p.size == 0:
        msg = f"probabilities have shape {p.shape}, labels {y.shape}: [n, C] and [n] needed"
        hint = ", both columns for two classes" if p.ndim == 1 else ""
        raise ValueError(msg + hint)
    rows = distribution_rows(probabilities)
    n, n_classes = rows.shape
    if y.dtype.kind not in "biuf":
        raise ValueError(f"labels are of type {y.dtype}: class numbers 0..{n_classes - 1} needed")
    bad = np.flatnonzero(~((y >= 0) & (y < n_classes) & (y == np.floor(y))))
    if len(bad):
        value, row = y[bad[0]], bad[0]
        msg = f"label {value} in row {row} is no class number: 0..{n_classes - 1} needed"
        raise ValueError(msg)
    return rows, y.astype(np.intp), weight_vector(sample_weight, n)


def kept_weights(
    uncertainty: Any, coverage: float, sample_weight: Any = None
) -> NDArray[np.float64]:
    """What of each example's weight is kept when only the least uncertain are.

    The kept total is ``floor(coverage * W)``, at least one, for whole weights of sum W (n
    without weights), and ``coverage * W`` for others. Where the border falls within a block of
    equal uncertainty, each of the block keeps the same share, so the order of rows is nothing.

    Args:
        uncertainty: [n] scores, higher is rejected first.
        coverage: share to keep, in (0, 1].
        sample_weight: [n] weights; a whole one counts as that many equal rows.

    Returns:
        [n] weights between 0 and the given ones.

    Raises:
        ValueError: a coverage outside (0, 1], NaN, or weights that cannot be used.

    >>> kept_weights([0.1, 0.2, 0.2, 0.4], 0.5)  # one of the middle two, so half of each
    array([1. , 0.5, 0.5, 0. ])
    """
    scores = score_vector(uncertainty)
    weight = weight_vector(sample_weight, len(scores))
    return kept_of_blocks(np.unique(scores, return_inverse=True)[1], coverage, weight)


def kept_of_blocks(
    block: NDArray[np.intp], coverage: float, weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`kept_weights` of what is sorted already, so that many coverages need one sort.

    Args:
        block: [n] number of the example's block of ties, 0 the least uncertain.
        coverage: share to keep, in (0, 1].
        weight: [n] checked weights.
    """
    if not 0.0 < coverage <= 1.0:
        raise ValueError(f"coverage is {coverage}, it must be in (0, 1]")
    mass = np.bincount(block, weight)
    last = np.cumsum(mass)
    first = np.r_[0.0, last[:-1]]
    if (weight == np.floor(weight)).all():
        total, rounding = max(1.0, float(whole_count(coverage * last[-1]))), 0.0
    else:
        # Sums of real weights are rounded: a border at the end of a block must not slip past it.
        total, rounding = coverage * last[-1], 1e-12 * last[-1]
    inside = np.clip(total - first, 0.0, mass)
    share = np.divide(inside, mass, out=np.zeros(len(mass)), where=mass > 0)
    share[(first > 0) & (first >= total - rounding)] = 0.0
    share[last <= total + rounding] = 1.0
    kept: NDArray[np.float64] = weight * share[block]
    return kept

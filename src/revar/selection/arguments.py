"""Arguments of thresholds, checked."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError
from revar.metrics.arrays import as_array


def vector(values: Any, name: str) -> NDArray[np.float64]:
    """[n] numbers, n > 0, none of them NaN.

    Raises:
        InputError: naming the argument, and the rows that are NaN.
    """
    given = as_array(values)
    if given.ndim != 1 or len(given) == 0:
        raise InputError(f"{name} has shape {given.shape}: a vector [n], n > 0, is needed")
    if given.dtype.kind not in "fiub":
        raise InputError(f"{name} holds {given.dtype}, it must hold numbers")
    numbers = given.astype(np.float64)
    rows = np.flatnonzero(np.isnan(numbers))
    if len(rows):
        named = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        raise InputError(f"{name} is NaN in {len(rows)} rows: {named}")
    return numbers


def same_length(first: NDArray[Any], second: NDArray[Any], name: str) -> None:
    """Refuse two vectors of different lengths.

    Raises:
        InputError: naming both lengths.
    """
    if len(first) != len(second):
        msg = f"uncertainty has {len(first)} rows, {name} {len(second)}: they must be the same"
        raise InputError(msg)


def number(value: Any, name: str) -> float:
    """A number, and no text that looks like one.

    Raises:
        InputError: naming the argument.
    """
    if not isinstance(value, Real):
        raise InputError(f"{name} is {value!r}, it must be a number")
    return float(value)


def open_share(value: float, name: str) -> float:
    """A number strictly between 0 and 1.

    Raises:
        InputError: it is not.
    """
    value = number(value, name)
    if not 0.0 < value < 1.0:
        raise InputError(f"{name} is {value}, it must be in (0, 1)")
    return value


def losses_of(
    correct: Any, loss: Any, bounds: tuple[float, float]
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """[n] losses scaled to [0, 1], an error being 1, and the range they had.

    Raises:
        InputError: not exactly one of the two, correctness that is neither right nor wrong, or a
            loss out of its range.
    """
    if (correct is None) == (loss is None):
        raise InputError("give either correct or loss=, not both and not neither")
    if loss is None:
        hits = vector(correct, "correct")
        if not np.isin(hits, (0.0, 1.0)).all():
            raise InputError("correct must be booleans, or 0 and 1; another loss goes to loss=")
        return 1.0 - hits, (0.0, 1.0)
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError) as error:
        msg = f"bounds is {bounds!r}, it must be two finite numbers (low, high)"
        raise InputError(msg) from error
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(f"bounds is {bounds}, it must be two finite numbers (low, high)")
    values = vector(loss, "loss")
    rows = np.flatnonzero((values < low) | (values > high))
    if len(rows):
        msg = (
            f"loss is {values[rows[0]]:g} in row {rows[0]}, outside its bounds {low:g} to {high:g}"
        )
        raise InputError(f"{msg}: give bounds=(low, high)")
    return (values - low) / (high - low), (float(low), float(high))

"""What the cells of one column of a table are: numbers, categories, or what is neither."""

from __future__ import annotations

from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Complex, Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

TRUTH = {"true": 1, "false": 0}
"""Words that are truth values, in small letters."""
_NUMBERS: tuple[type, ...] = (Real, Decimal, np.bool_)
_NEITHER: tuple[tuple[tuple[type, ...], str, str], ...] = (
    ((date, np.datetime64), "dates", "turn it into numbers, such as days since a start"),
    ((timedelta, np.timedelta64), "durations", "turn it into numbers, such as seconds"),
    ((time,), "times", "turn it into numbers, such as hours"),
    ((Complex, np.complexfloating), "complex numbers", "take real and imaginary parts as columns"),
)
"""Types that are neither, what they are called, and the way out; numbers come before them."""
_PERIODS = ("periods", "turn it into numbers, such as months since a start")


def is_numeric(series: pd.Series) -> bool:
    """Whether the column is of a type of numbers or truth values."""
    import pandas as pd

    return pd.api.types.is_numeric_dtype(series) and not isinstance(
        series.dtype, pd.CategoricalDtype
    )


def holds_numbers(series: pd.Series) -> bool:
    """Whether every cell that is not missing is a number, also in a column of objects."""
    import pandas as pd

    if is_numeric(series):
        return True
    if isinstance(series.dtype, pd.CategoricalDtype):
        return False
    types = _types(series)
    return bool(types) and all(_is_number(kind) for kind in types)


def neither(series: pd.Series) -> tuple[str, str] | None:
    """What a column holds that is no number and no category, and the way out; or none.

    What somebody has made categories of are categories, whatever they were before.
    """
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        return None
    if isinstance(series.dtype, pd.PeriodDtype):
        return _PERIODS
    # A column of one of these types may have no cell that tells.
    known = [series.dtype.type] if series.dtype.kind in "mMc" else _types(series)
    for kind in known:
        if _is_number(kind) or issubclass(kind, str | bytes):
            continue
        if issubclass(kind, pd.Period):
            return _PERIODS
        for types, name, way in _NEITHER:
            if issubclass(kind, types):
                return name, way
        if hasattr(kind, "__len__"):
            return f"cells of type {kind.__name__}", "turn it into columns of numbers or text"
    return None


def to_numbers(name: str, series: pd.Series) -> NDArray[np.float64]:
    """[n] the cells as numbers, NaN where they are missing; words of truth are 0 and 1.

    Args:
        name: of the column.
        series: a column that holds numbers, or did so in training.

    Raises:
        InputError: it holds something else, infinity, or what is too large.
    """
    import pandas as pd

    if series.dtype.kind in "mMc":
        msg = f'column "{name}" has type {series.dtype}: it held numbers in training'
        raise InputError(msg)
    large = f'column "{name}" holds values too large for float32: scale them down'
    try:
        if not is_numeric(series):
            other = neither(series)
            if other is not None:
                raise InputError(f'column "{name}" holds {other[0]}: it held numbers in training')
            # What was true or false in training is a number, and text in a file.
            cells = zip(series, series.isna(), strict=True)
            plain = [None if gap else _plain(value) for value, gap in cells]
            series = pd.Series(plain, dtype=object)
        values = pd.to_numeric(series).to_numpy(dtype=np.float64, na_value=np.nan)
    except OverflowError as error:
        raise InputError(large) from error
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        msg = f'column "{name}" holds text ({error}): it was numeric when the model was trained'
        raise InputError(msg) from error
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise InputError(f'column "{name}" holds infinity, first in row {row}')
    if (np.abs(values) > np.finfo(np.float32).max).any():
        raise InputError(large)
    return values


def _types(series: pd.Series) -> set[type]:
    return set(map(type, series[~series.isna().to_numpy()]))


def _is_number(kind: type) -> bool:
    # NumPy counts its durations among the whole numbers.
    return issubclass(kind, _NUMBERS) and not issubclass(kind, np.timedelta64)


def _plain(value: object) -> object:
    """A cell as pandas reads numbers, which does not know fractions."""
    if isinstance(value, Real | Decimal):
        return float(value)
    return TRUTH.get(str(value).lower(), value)

"""Tables with named columns: numbers, categories and gaps, to rows of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_TRUTH = {"true": 1, "false": 0}
_MOST_CATEGORIES = 64
"""Rarer categories of a column share one place, which unseen ones fall into as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table as fitted on the training rows.

    Attributes:
        name: in the frame.
        median: stands in for a missing number; ``None`` for a column of categories.
        categories: of a column of categories, most frequent first.
        indicator: whether a missing number was seen, and so gets a column of its own.
    """

    name: str
    median: float | None = None
    categories: tuple[str, ...] = ()
    indicator: bool = False

    @property
    def width(self) -> int:
        """Numbers this column becomes; categories have one more place for rare and missing ones."""
        return 1 + self.indicator if self.median is not None else len(self.categories) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameInputs:
    """Columns in their order. NaN means missing: numbers are imputed, with an indicator."""

    columns: tuple[Column, ...]
    kind: Literal["frame"] = "frame"

    @property
    def shape(self) -> tuple[int, ...]:
        """(numbers per row,)"""
        return (sum(column.width for column in self.columns),)

    @property
    def image_shape(self) -> None:
        """Rows are no images."""
        return

    @classmethod
    def fit(cls, frame: pd.DataFrame) -> Self:
        """Learn medians and categories.

        Raises:
            InputError: no columns, or two of one name.
        """
        if frame.shape[1] == 0:
            raise InputError("the table has no columns besides the target")
        names = [str(name) for name in frame.columns]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f'the table has two columns named "{name}"')
        return cls(columns=tuple(_fit_column(str(name), frame[name]) for name in frame.columns))

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """[n, numbers per row] float32; columns the model does not know are ignored.

        Raises:
            InputError: a column is missing, is text where numbers were, or holds infinity.
        """
        if not hasattr(frame, "columns"):
            msg = (
                "the model was trained on a table with named columns: give a pandas frame or a "
                ".csv file that has them"
            )
            raise InputError(msg)
        given = {str(name): name for name in frame.columns}
        missing = [column.name for column in self.columns if column.name not in given]
        if missing:
            msg = f'column "{missing[0]}" is missing: the model needs ' + ", ".join(
                column.name for column in self.columns
            )
            raise InputError(msg)
        parts = [_encode_column(column, frame[given[column.name]]) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def _is_numeric(series: pd.Series) -> bool:
    import pandas as pd

    return pd.api.types.is_numeric_dtype(series) and not isinstance(
        series.dtype, pd.CategoricalDtype
    )


def _numbers(name: str, series: pd.Series) -> NDArray[np.float64]:
    import pandas as pd

    if series.dtype.kind in "mMc":
        msg = f'column "{name}" has type {series.dtype}: it held numbers in training'
        raise InputError(msg)
    if not _is_numeric(series):
        # What was true or false in training is a number, and text in a file.
        series = series.map(lambda value: _TRUTH.get(str(value).lower(), value))
    try:
        values = pd.to_numeric(series).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        msg = f'column "{name}" holds text ({error}): it was numeric when the model was trained'
        raise InputError(msg) from error
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise InputError(f'column "{name}" holds infinity, first in row {row}')
    too_large = np.abs(values) > np.finfo(np.float32).max
    if too_large.any():
        raise InputError(f'column "{name}" holds values too large for float32: scale them down')
    return values


def _text(series: pd.Series) -> list[str | None]:
    gaps = series.isna()
    return [None if gap else _category(value) for value, gap in zip(series, gaps, strict=True)]


def _category(value: object) -> str:
    """1, 1.0 and "1.0" are the same: a gap elsewhere turns whole numbers into floats.

    So are True, "TRUE" and "true": what reads a file makes the first of the others, or does not.
    """
    text = str(value)
    if text.lower() in _TRUTH:
        return text.capitalize()
    whole, _, rest = text.partition(".")
    return whole if rest and not rest.strip("0") and whole.lstrip("-").isdigit() else text


def _fit_column(name: str, series: pd.Series) -> Column:
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(series):
        msg = f'column "{name}" holds dates: turn it into numbers, such as days since a start'
        raise InputError(msg)
    if _is_numeric(series):
        values = _numbers(name, series)
        known = values[~np.isnan(values)]
        median = float(np.median(known)) if len(known) else 0.0
        return Column(name=name, median=median, indicator=len(known) < len(values))
    counts: dict[str, int] = {}
    for value in _text(series):
        if value is not None:
            counts[value] = counts.get(value, 0) + 1
    frequent = sorted(counts, key=lambda value: (-counts[value], value))[:_MOST_CATEGORIES]
    return Column(name=name, categories=tuple(frequent))


def _encode_column(column: Column, series: pd.Series) -> NDArray[np.float64]:
    if column.median is not None:
        values = _numbers(column.name, series)
        gaps = np.isnan(values)
        parts = [np.where(gaps, column.median, values)]
        if column.indicator:
            parts.append(gaps.astype(np.float64))
        return np.stack(parts, axis=1)
    place = {_category(category): k for k, category in enumerate(column.categories)}
    other = len(column.categories)
    codes = [other if value is None else place.get(value, other) for value in _text(series)]
    one_hot: NDArray[np.float64] = np.eye(other + 1)[codes]
    return one_hot

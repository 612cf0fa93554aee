"""Tables with named columns: numbers, categories and gaps, to rows of numbers."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.data.cells import TRUTH, holds_numbers, neither, to_numbers
from revar.data.columns import some_of
from revar.errors import DataWarning, InputError

if TYPE_CHECKING:
    import pandas as pd

_MOST_CATEGORIES = 64
"""Rarer categories of a column share one place, which unseen ones fall into as well."""
_CLOSE, _NOISE = 1e-4, 1e-12
"""Numbers whose spread is a smaller share of the largest lose digits in single precision, and those
below the second in double precision: 0.1 + 0.2 and 0.3 are meant to be the same.
"""
_TWICE = 'the table has two columns named "{}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table as fitted on the training rows.

    Attributes:
        name: in the frame.
        median: stands in for a missing number; ``None`` for a column of categories.
        categories: of a column of categories, most frequent first.
        indicator: whether a missing number was seen, and so gets a column of its own.
        offset: is taken off numbers that lie close together and far from zero, such as seconds
            since 1970: single precision would make one number of them.
    """

    name: str
    median: float | None = None
    categories: tuple[str, ...] = ()
    indicator: bool = False
    offset: float = 0.0

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
        counts = Counter(str(name) for name in frame.columns)
        for name, count in counts.items():
            if count > 1:
                raise InputError(_TWICE.format(name))
        return cls(columns=tuple(_fit_column(str(name), frame[name]) for name in frame.columns))

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """[n, numbers per row] float32; columns the model does not know are ignored.

        Raises:
            InputError: a column is missing or there twice, is text where numbers were, or holds
                infinity.
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
            msg = f'column "{missing[0]}" is missing: the model needs these'
            raise InputError(f"{msg} {some_of(column.name for column in self.columns)}")
        counts = Counter(str(name) for name in frame.columns)
        for column in self.columns:
            if counts[column.name] > 1:
                raise InputError(_TWICE.format(column.name))
        parts = [_encode_column(column, frame[given[column.name]]) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def too_close(known: NDArray[np.float64]) -> bool:
    """Whether single precision would round these by a share of their spread that may tell."""
    if not len(known):
        return False
    largest = float(np.abs(known).max())
    return largest > 0 and _NOISE < float(np.std(known / largest)) < _CLOSE


def _text(series: pd.Series) -> list[str | None]:
    gaps = series.isna()
    return [None if gap else _category(value) for value, gap in zip(series, gaps, strict=True)]


def _category(value: object) -> str:
    """1, 1.0 and "1.0" are the same: a gap elsewhere turns whole numbers into floats.

    So are True, "TRUE" and "true": what reads a file makes the first of the others, or does not.
    """
    text = str(value)
    if text.lower() in TRUTH:
        return text.capitalize()
    whole, _, rest = text.partition(".")
    return whole if rest and not rest.strip("0") and whole.lstrip("-").isdigit() else text


def _fit_column(name: str, series: pd.Series) -> Column:
    other = neither(series)
    if other is not None:
        raise InputError(f'column "{name}" holds {other[0]}: {other[1]}')
    if len(series) and series.isna().all():
        msg = f'column "{name}" is missing in every training row: it tells nothing, leave it out'
        warnings.warn(msg, DataWarning, stacklevel=2)
    if holds_numbers(series):
        values = to_numbers(name, series)
        known = values[~np.isnan(values)]
        median = float(np.median(known)) if len(known) else 0.0
        return Column(
            name=name,
            median=median,
            indicator=len(known) < len(values),
            offset=median if too_close(known) else 0.0,
        )
    counts: dict[str, int] = {}
    for value in _text(series):
        if value is not None:
            counts[value] = counts.get(value, 0) + 1
    frequent = sorted(counts, key=lambda value: (-counts[value], value))[:_MOST_CATEGORIES]
    return Column(name=name, categories=tuple(frequent))


def _encode_column(column: Column, series: pd.Series) -> NDArray[np.float64]:
    if column.median is not None:
        values = to_numbers(column.name, series)
        gaps = np.isnan(values)
        parts = [np.where(gaps, column.median, values) - column.offset]
        if column.indicator:
            parts.append(gaps.astype(np.float64))
        return np.stack(parts, axis=1)
    place = {_category(category): k for k, category in enumerate(column.categories)}
    other = len(column.categories)
    codes = [other if value is None else place.get(value, other) for value in _text(series)]
    one_hot: NDArray[np.float64] = np.eye(other + 1)[codes]
    return one_hot

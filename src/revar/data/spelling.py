"""How the cells of a CSV file are taken: as gaps, as numbers, or as they are written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from revar.data.cells import TRUTH
from revar.data.columns import numbered_rows, row_of, some_of
from revar.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from revar.data.source import Reading

GAPS = (
    "", "?", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan",
    "NULL", "null", "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
)  # fmt: skip
"""What stands for a missing value: the list of pandas, fixed, and a question mark."""
_WHOLE = re.compile(r"[+-]?[0-9]+")
_POINTED = re.compile(r"[+-]?[0-9]+\.0*")
_SCALED = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+")
_LARGEST = 2**63
_WORDS = 3
"""Words read as gaps that a message names."""


def settled(cells: pd.Series, *, text: bool, strip: bool) -> pd.Series:
    """One column: numbers where all cells that are no gaps are some, else text.

    Args:
        cells: as written, without blanks before them, gaps missing.
        text: leave numbers as they are written.
        strip: blanks after a text are no part of it.
    """
    numbers = None if text else _numbers(cells)
    if numbers is not None or not strip:
        return cells if numbers is None else numbers
    bare = cells.str.strip()
    bare = bare.mask(bare.isin(GAPS))
    numbers = None if text else _numbers(bare)
    return bare if numbers is None else numbers


def _numbers(cells: pd.Series) -> pd.Series | None:
    import pandas as pd

    try:
        return pd.to_numeric(cells)
    except (TypeError, ValueError):
        return None


def first_labels(cells: pd.Series, *, numeric: bool) -> NDArray[Any]:
    """[n] labels of a column as written: numbers, unless those would not give them back.

    ``007`` and ``1e3`` are names where nobody else spells the same number, ``1`` and ``1.0`` are
    numbers. Truth values in several spellings are in one.

    Args:
        cells: none missing.
        numeric: numbers wherever they can be.
    """
    texts = [str(cell) for cell in cells.unique()]
    if numeric or not _are_names(texts):
        numbers = _numbers(cells)
        if numbers is not None and numbers.dtype.kind in "biuf":
            return numbers.to_numpy()
    if not numeric and len(texts) > len(TRUTH) and {text.lower() for text in texts} <= set(TRUTH):
        cells = cells.str.capitalize()
    return cells.to_numpy().astype(str)


def _are_names(texts: Iterable[str]) -> bool:
    """Whether whole numbers are spelled as no number of ours would be, each in one way."""
    numbers, differs = [], False
    for text in texts:
        if _WHOLE.fullmatch(text):
            numbers.append(int(text))
            differs |= str(int(text)) != text or abs(int(text)) >= _LARGEST
        elif _POINTED.fullmatch(text):
            numbers.append(int(text.partition(".")[0]))
        elif _SCALED.fullmatch(text) and float(text).is_integer():
            numbers.append(int(float(text)))
            differs = True
        else:
            return False
    return differs and len(set(numbers)) == len(numbers)


def missing_labels(path: Path, target: str, rows: NDArray[np.int64]) -> InputError:
    """The error for labels that are missing, with the words that were taken for gaps.

    Args:
        path: the CSV file.
        target: its column of labels.
        rows: where they are missing.
    """
    wanted, words, first = set(rows.tolist()), Counter[str](), 0
    table = numbered_rows(path)
    place = [name.strip() for name in next(table)[1]].index(target)
    for number, (line, cells) in enumerate(table):
        if number in wanted:
            first = first or line
            words[cells[place].strip() if place < len(cells) else ""] += 1
    del words[""]
    counted = [f'"{word}" ({count})' for word, count in words.most_common()]
    more = ", ..." if len(counted) > _WORDS else ""
    way = "leave those rows out"
    if counted:
        way = (
            f"read as gaps: {', '.join(counted[:_WORDS])}{more}: where that is a class, call it "
            f'otherwise, such as "class {next(iter(words))}", else {way}'
        )
    return InputError(
        f'"{path}": the target "{target}" is missing in {len(rows)} rows, first in line {first}'
        f"{', ' if counted else ': '}{way}"
    )


def check_features(path: Path, frame: pd.DataFrame, reading: Reading) -> None:
    """Refuse what a model cannot take of a table, by file, line, column and value.

    Args:
        path: the CSV file.
        frame: read from it.
        reading: how; where no model is known any number that is not too large will do.

    Raises:
        InputError: a column is missing or holds text where numbers were, or a number is infinite
            or too large.
    """
    names = reading.needed or tuple(frame.columns)
    for name in names:
        if name not in frame.columns:
            msg = f'"{path}": column "{name}" is missing, which the model needs'
            raise InputError(f"{msg}{parted(frame.columns)}{some_of(frame.columns, name)}")
    for name in names:
        column = frame[name]
        if name in reading.text:
            continue
        if column.dtype.kind == "f":
            large = np.abs(column.to_numpy()) > np.finfo(np.float32).max
            if large.any():
                way = "numbers must be finite and fit float32, scale them or leave the cell empty"
                raise _odd(path, name, large, way)
        elif reading.needed and column.dtype.kind not in "biu":
            way = "it held numbers when the model was trained"
            raise_text(path, name, column, way)


def raise_text(path: Path, name: str, column: pd.Series, way: str) -> None:
    """Refuse a cell of text in a column that held numbers; words of truth are numbers."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce").isna() & column.notna()
    odd = numbers & ~column.astype(str).str.lower().isin(TRUTH)
    if odd.any():
        raise _odd(path, name, odd.to_numpy(), way)


def _odd(path: Path, name: str, odd: NDArray[np.bool_], way: str) -> InputError:
    line, cells = row_of(path, int(np.flatnonzero(odd)[0]))
    return InputError(f'"{path}": column "{name}" is "{cells[name]}" in line {line}: {way}')


def refuse_columns(path: Path, frame: pd.DataFrame, option: str, names: Collection[str]) -> None:
    """Refuse columns that a table does not have.

    Raises:
        InputError: naming the first, with what there is, or that it is parted by other signs.
    """
    for name in names:
        if name not in frame.columns:
            msg = f'{option} "{name}" is no column of "{path}"'
            raise InputError(f"{msg}{parted(frame.columns)}{some_of(frame.columns, name)}")


def parted(header: Collection[str]) -> str:
    """What comes before a list of columns: a hint where something else than commas parts them."""
    (first, *others) = header
    sign = next((sign for sign in (";", "\t", "|") if sign in first), None)
    if others or sign is None:
        return ": "
    shown = "tabs" if sign == "\t" else f'"{sign}"'
    return f": its columns are parted by {shown}, save it with commas; "

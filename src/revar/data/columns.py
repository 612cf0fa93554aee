"""Columns of a CSV file as text, without pandas: light enough to count what is there."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError

Text = NDArray[np.str_]
_SHOWN = 8
"""Names of columns that a message lists."""


def some_of(names: Iterable[str], wanted: str = "") -> str:
    """The first names of a table, after the one that a wanted one may have been meant to be.

    >>> some_of(["age", "ward"], "agee")
    'did you mean "age"? columns: age, ward'
    """
    known = list(names)
    close = get_close_matches(wanted, known, n=1, cutoff=0.5)
    # Letters of another size are many differences for a short name.
    close = [name for name in known if name.lower() == wanted.lower()][:1] or close
    hint = f'did you mean "{close[0]}"? ' if close else ""
    more = f", ... ({len(known)} in all)" if len(known) > _SHOWN else ""
    return f"{hint}columns: {', '.join(known[:_SHOWN]) or 'none'}{more}"


def numbered_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows of a CSV file, each with the line it begins in; no empty ones."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows, begins = csv.reader(file, skipinitialspace=True), 1
        for cells in rows:
            if len(cells) > 1 or any(cell.strip() for cell in cells):
                yield begins, cells
            begins = rows.line_num + 1


def row_of(path: Path, number: int) -> tuple[int, dict[str, str]]:
    """The line in which a row of a CSV file begins, and its cells by column, as written."""
    (_, header), (line, cells) = islice(numbered_rows(path), 0, number + 2, number + 1)
    return line, dict(zip((name.strip() for name in header), cells, strict=False))


def header_of(path: Path) -> list[str]:
    """The names of the columns of a CSV file; none where it is empty.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return [name.strip() for name in next((cells for _, cells in numbered_rows(path)), [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f'"{path}" cannot be read as a CSV table: {error}') from error


def refuse_cut_rows(path: Path) -> None:
    """Refuse a table with a row of fewer cells than its header: a file that was cut short.

    Raises:
        InputError: naming the line.
    """
    rows = numbered_rows(path)
    width = len(next(rows, (0, []))[1])
    try:
        cut = next((line for line, cells in rows if len(cells) < width), None)
    except csv.Error:
        # A cell of more than 128 KiB: there is no row of a file cut short after it to tell.
        return
    if cut is not None:
        raise InputError(f'"{path}" is cut short in line {cut}: it has fewer cells than the header')


def read_columns(path: Path, *names: str) -> dict[str, Text]:
    """[rows] of each of these columns, stripped.

    Raises:
        InputError: no such file, a column that is not there, or a row that is cut short.
    """
    values: dict[str, list[str]] = {name: [] for name in names}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = [name.strip() for name in next(rows, [])]
            for name in names:
                if name not in header:
                    has = ", ".join(header) or "nothing"
                    raise InputError(f'"{path}" has no column "{name}" (it has {has})')
            places = [header.index(name) for name in names]
            for row in rows:
                if not row:
                    continue
                if len(row) < len(header):
                    raise InputError(f'"{path}" is cut short in line {rows.line_num}')
                for name, place in zip(names, places, strict=True):
                    values[name].append(row[place].strip())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f'"{path}" cannot be read as a CSV table: {error}') from error
    return {name: np.array(cells, dtype=np.str_) for name, cells in values.items()}


def whole_numbers(path: Path, name: str, cells: Text) -> NDArray[np.int64]:
    """[rows] cells as whole numbers.

    Raises:
        InputError: one of them is none.
    """
    try:
        return cells.astype(np.int64)
    except ValueError as error:
        odd = next(cell for cell in cells.tolist() if not cell.lstrip("-").isdigit())
        raise InputError(f'"{path}": {name} is "{odd}", not a whole number') from error


def read_tabbed(path: Path) -> tuple[Text, Text]:
    """[rows] of the first two columns of a file without a header, parted by tabs.

    Raises:
        InputError: no such file, or a row with fewer.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f'"{path}" cannot be read: {error}') from error
    rows = [line.split("\t")[:2] for line in lines if line.strip()]
    if any(len(row) < 2 for row in rows):
        raise InputError(f'"{path}" has a row without a tab')
    first, second = (np.array([row[k] for row in rows], dtype=np.str_) for k in (0, 1))
    return first, second

"""Columns of a CSV file as text, without pandas: light enough to count what is there."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError

Text = NDArray[np.str_]


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

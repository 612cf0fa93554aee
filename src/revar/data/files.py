"""Archives of arrays and CSV files."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from revar.data.arrays import read_arrays
from revar.data.source import Part, Reading, Source
from revar.data.stored import ImageFiles
from revar.errors import InputError, unknown

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("x", "y", "x_test", "y_test", "x_meta", "y_meta", "x_unlabelled", "groups")
MISSING = "?"
"""A gap in CSV files, besides empty cells and pandas' own list (NA, NaN, ...)."""


def read_npz(path: Path) -> Source:
    """``x``, ``y`` and, where there, the test, meta and unlabelled arrays and ``groups``."""
    arrays = read_arrays(path)
    for key in ("x", "y"):
        if key not in arrays:
            found = ", ".join(arrays) or "nothing"
            raise InputError(f'"{path}" has no array "{key}" (it has {found})')

    for key in arrays:
        # A misspelt split would be left out in silence.
        if key.startswith(("x_", "y_")) and key not in _KEYS:
            raise unknown(f'array of "{path}"', key, _KEYS)
        if key.startswith("y_") and f"x{key[1:]}" not in arrays:
            raise InputError(f'"{path}" has "{key}" but no "x{key[1:]}"')

    def part(suffix: str) -> Part | None:
        if f"x{suffix}" not in arrays:
            return None
        if f"y{suffix}" not in arrays and suffix != "_unlabelled":
            raise InputError(f'"{path}" has "x{suffix}" but no "y{suffix}"')
        x, y = arrays[f"x{suffix}"], arrays.get(f"y{suffix}")
        if x.ndim == 0 or (y is not None and y.ndim == 0):
            raise InputError(f'"{path}": x{suffix} and y{suffix} need a row per example')
        if y is not None and len(x) != len(y):
            raise InputError(f'"{path}": x{suffix} has {len(x)} rows, y{suffix} has {len(y)}')
        return Part(x, y)

    train, test = part(""), part("_test")
    assert train is not None
    groups = arrays.get("groups")
    if groups is not None and len(groups) != len(train):
        raise InputError(f'"{path}": x has {len(train)} rows, groups has {len(groups)}')
    return Source(
        Part(train.x, train.y, groups),
        meta=part("_meta"),
        tests={} if test is None else {"test": test},
        unlabelled=part("_unlabelled"),
    )


def read_frame(path: Path, text: Collection[str] = ()) -> pd.DataFrame:
    """A CSV file; a column is numeric if every cell that is not empty is a number.

    Args:
        path: the file.
        text: columns that are left as they are written: where a model has categories, which
            rows a file happens to have must not say whether "007" is a number.

    Raises:
        InputError: not a table of one width in UTF-8.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(path, dtype=str, na_values=[MISSING], skipinitialspace=True)
    except UnicodeDecodeError as error:
        line = _first_line_not_utf8(path)
        raise InputError(f'"{path}" is not UTF-8 in line {line}: save it as UTF-8') from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f'"{path}" is no CSV table: {reason}') from error
    if not isinstance(frame.index, pd.RangeIndex):
        # pandas would take the first cells for row names and move all others to the left.
        raise InputError(f'"{path}" is no CSV table: its rows have more cells than its header')
    if not len(frame):
        raise InputError(f'"{path}" has no rows below its header')
    # As they are written: pandas renames a column whose name occurs twice.
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = next(row for row in csv.reader(file, skipinitialspace=True) if row)
    names = [name.strip() for name in header]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f'"{path}" has two columns named "{name}"')
    frame.columns = names
    for name in frame.columns:
        if name in text:
            continue
        try:
            frame[name] = pd.to_numeric(frame[name])
        except (TypeError, ValueError):
            continue
    return frame


def _first_line_not_utf8(path: Path) -> int:
    """Pandas decodes cell by cell and does not say where it failed."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.decode(errors="ignore").encode() != line:
                return number
    return 1


def read_csv(path: Path, reading: Reading) -> Source:
    """A table with a column of labels, of numbers and categories or of paths of images."""
    frame = read_frame(path, reading.text)
    columns = ", ".join(frame.columns)
    if reading.target is None:
        raise InputError(f'"{path}" needs --target, the column of labels; columns: {columns}')
    _need_column(path, frame, "--target", reading.target)
    labels = frame[reading.target]
    if labels.isna().any():
        rows = np.flatnonzero(labels.isna().to_numpy())
        msg = (
            f'"{path}": the target "{reading.target}" is missing in {len(rows)} rows, '
            f"first in line {rows[0] + 2}: leave those rows out"
        )
        raise InputError(msg)
    groups = None
    if reading.group is not None:
        _need_column(path, frame, "--group", reading.group)
        column = frame[reading.group]
        # A missing group is a group of its own, not one with all other missing ones.
        groups = np.where(
            column.isna(), [f"row {i}" for i in range(len(frame))], column.astype(str)
        ).astype(str)
    y = _plain(labels)
    if reading.image is not None:
        part = image_column(path, frame, reading, y, groups)
        return Source(part)
    used = [name for name in (reading.target, reading.group) if name is not None]
    return Source(Part(frame.drop(columns=used), y, groups))


def image_column(
    path: Path,
    frame: pd.DataFrame,
    reading: Reading,
    y: NDArray[Any] | None = None,
    groups: NDArray[Any] | None = None,
) -> Part:
    """The images a table names, their paths relative to the table."""
    from revar.data.folders import common_shape, keep_readable

    assert reading.image is not None
    _need_column(path, frame, "--image", reading.image)
    cells = frame[reading.image]
    if cells.isna().any():
        line = int(np.flatnonzero(cells.isna().to_numpy())[0]) + 2
        raise InputError(f'"{path}": no image path in line {line}')
    names = [str(cell) for cell in cells]
    files = [path.parent / name for name in names]
    skip = reading.skip_unreadable
    shape = reading.image_shape or common_shape(files, skip=skip)
    whole = Part(ImageFiles(tuple(files), shape), y, groups, tuple(names))
    return keep_readable(whole, reading)


def _need_column(path: Path, frame: pd.DataFrame, option: str, name: str) -> None:
    if name not in frame.columns:
        columns = ", ".join(frame.columns)
        raise InputError(f'{option} "{name}" is no column of "{path}"; columns: {columns}')


def _plain(series: pd.Series) -> NDArray[Any]:
    values = series.to_numpy()
    return values.astype(str) if values.dtype.kind not in "biuf" else values

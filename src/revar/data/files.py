"""Archives of arrays and CSV files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from revar.data.arrays import read_arrays
from revar.data.columns import header_of, refuse_cut_rows, row_of, some_of
from revar.data.source import Part, Reading, Source
from revar.data.spelling import (
    GAPS,
    check_features,
    first_labels,
    missing_labels,
    parted,
    refuse_columns,
    settled,
)
from revar.data.stored import ImageFiles
from revar.errors import InputError, unknown

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("x", "y", "x_test", "y_test", "x_meta", "y_meta", "x_unlabelled", "groups")


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


def read_frame(path: Path, text: Collection[str] = (), *, strip: bool = True) -> pd.DataFrame:
    """A CSV file; a column is numeric if every cell that is not empty is a number.

    Args:
        path: the file.
        text: columns that are left as they are written: where a model has categories, which
            rows a file happens to have must not say whether "007" is a number.
        strip: blanks after a text are no part of it; those before it never are.

    Raises:
        InputError: not a table of one width in UTF-8.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(
            path, dtype=str, na_values=list(GAPS), keep_default_na=False, skipinitialspace=True
        )
    except UnicodeDecodeError as error:
        line = _first_line_not_utf8(path)
        raise InputError(f'"{path}" is not UTF-8 in line {line}: save it as UTF-8') from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f'"{path}" is no CSV table: {reason}') from error
    # As they are written: pandas renames a column whose name occurs twice.
    names = header_of(path)
    if not isinstance(frame.index, pd.RangeIndex):
        # pandas would take the first cells for row names and move all others to the left.
        msg = f'"{path}" is no CSV table: its rows have more cells than its header'
        raise InputError(f"{msg}{parted(names)}{some_of(names)}")
    if not len(frame):
        raise InputError(f'"{path}" has no rows below its header')
    refuse_cut_rows(path)
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f'"{path}" has two columns named "{name}"')
    frame.columns = names
    columns = {name: settled(frame[name], text=name in text, strip=strip) for name in names}
    return pd.DataFrame(columns)


def _first_line_not_utf8(path: Path) -> int:
    """Pandas decodes cell by cell and does not say where it failed."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.decode(errors="ignore").encode() != line:
                return number
    return 1


def read_csv(path: Path, reading: Reading) -> Source:
    """A table with a column of labels, of numbers and categories or of paths of images."""
    target, group = reading.target, reading.group
    as_written = [name for name in (target, reading.image) if name is not None]
    frame = read_frame(path, (*reading.text, *as_written), strip=reading.strip)
    if target is None:
        msg = f'"{path}" needs --target, the column of labels'
        raise InputError(f"{msg}{parted(frame.columns)}{some_of(frame.columns)}")
    refuse_columns(path, frame, "--target", [target])
    refuse_columns(path, frame, "--leave-out", reading.leave_out)
    labels = frame[target]
    if labels.isna().any():
        raise missing_labels(path, target, np.flatnonzero(labels.isna().to_numpy()))
    groups = None
    if group is not None:
        refuse_columns(path, frame, "--group", [group])
        column = frame[group]
        # A missing group is a group of its own, not one with all other missing ones.
        groups = np.where(
            column.isna(), [f"row {i}" for i in range(len(frame))], column.astype(str)
        ).astype(str)
    y = labels.to_numpy().astype(str)
    if target not in reading.text:
        y = first_labels(labels, numeric=reading.numeric_labels)
    if reading.image is not None:
        part = image_column(path, frame, reading, y, groups)
        return Source(part)
    used = [name for name in (target, group, *reading.leave_out) if name is not None]
    features = frame.drop(columns=used)
    check_features(path, features, reading)
    return Source(Part(features, y, groups))


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
    refuse_columns(path, frame, "--image", [reading.image])
    cells = frame[reading.image]
    if cells.isna().any():
        line, _ = row_of(path, int(np.flatnonzero(cells.isna().to_numpy())[0]))
        raise InputError(f'"{path}": no image path in line {line}')
    names = [str(cell) for cell in cells]
    files = [path.parent / name for name in names]
    skip = reading.skip_unreadable
    gone = None if skip else next((i for i, file in enumerate(files) if not file.exists()), None)
    if gone is not None:
        line, _ = row_of(path, gone)
        msg = f'"{path}": the image "{files[gone]}" of line {line} is not there'
        raise InputError(f"{msg}: paths are relative to the table; --skip-unreadable goes on")
    shape = reading.image_shape or common_shape(files, skip=skip)
    whole = Part(ImageFiles(tuple(files), shape), y, groups, tuple(names))
    return keep_readable(whole, reading)

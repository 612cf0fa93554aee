"""Packed images: sheets of tiles with a table of labels, archives of image files, arrays."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.data.arrays import read_arrays
from revar.data.columns import Text, read_columns, whole_numbers
from revar.data.images import decode, header
from revar.errors import InputError

_AT_ONCE = 512
"""Image files held in memory before they are decoded."""


def tiles(path: Path, side: int) -> NDArray[np.uint8]:
    """[n, side, side, 3] the tiles of a picture, row by row; the last ones may be padding."""
    rows, columns = _grid(path, side)
    sheet = decode(path, (3, rows * side, columns * side))
    grid = sheet.reshape(3, rows, side, columns, side)
    return np.ascontiguousarray(grid.transpose(1, 3, 2, 4, 0)).reshape(-1, side, side, 3)


def _grid(path: Path, side: int) -> tuple[int, int]:
    """Rows and columns of tiles, by the header of the picture."""
    if not path.is_file():
        raise InputError(f'"{path}" is missing')
    width, height, _ = header(path)
    if width % side or height % side:
        raise InputError(f'"{path}" of {width}x{height} px does not hold tiles of {side} px')
    return height // side, width // side


def sheet_rows(labels: Path, sheet: str, *columns: str) -> dict[str, Text]:
    """The rows of one sheet in a table of labels, in the order of its tiles.

    Args:
        labels: a CSV with ``file`` (with or without its suffix) and ``index``, and more.
        sheet: the file.
        columns: wanted of it.

    Raises:
        InputError: no such rows, or not one for every tile from the first on.
    """
    return rows_of_sheet(labels, read_columns(labels, "file", "index", *columns), sheet)


def rows_of_sheet(labels: Path, table: Mapping[str, Text], sheet: str) -> dict[str, Text]:
    """The same from a table that was read."""
    mine = (table["file"] == sheet) | (table["file"] == sheet.rpartition(".")[0])
    places = whole_numbers(labels, "index", table["index"][mine])
    order = np.argsort(places, kind="stable")
    if not len(places) or not np.array_equal(places[order], np.arange(len(places))):
        raise InputError(f'"{labels}" has not one row for every tile of "{sheet}"')
    return {name: cells[mine][order] for name, cells in table.items()}


def sheet_tiles(path: Path, side: int, n: int) -> NDArray[np.uint8]:
    """[n, side, side, 3] the first n tiles.

    Raises:
        InputError: there is no such file, or it holds fewer.
    """
    require_tiles(path, side, n)
    return tiles(path, side)[:n]


def require_tiles(path: Path, side: int, n: int) -> None:
    """Refuse a sheet that is missing or too small; it is not decoded.

    Raises:
        InputError: there is no such file, or it holds fewer than n tiles.
    """
    rows, columns = _grid(path, side)
    room = rows * columns
    if room < n:
        raise InputError(f'"{path}" has {room} tiles, its labels are {n}')


def archived_images(
    path: Path, shape: tuple[int, ...], wanted: Callable[[str], bool] = bool
) -> tuple[list[str], NDArray[np.uint8]]:
    """Images of a tar archive, compressed or not: names, and [n, height, width, channels].

    Args:
        path: of the archive.
        shape: (channels, height, width) to read them at.
        wanted: which of the names to read; all unless told.

    Raises:
        InputError: it is no archive, or damaged.
    """
    names: list[str] = []
    images: list[NDArray[np.uint8]] = []
    waiting: list[bytes] = []

    def read(content: bytes) -> NDArray[np.uint8]:
        return np.moveaxis(decode(path, shape, content), 0, -1)

    try:
        with tarfile.open(path) as archive, ThreadPoolExecutor() as pool:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is None or not wanted(member.name):
                    continue
                names.append(member.name)
                waiting.append(file.read())
                if len(waiting) == _AT_ONCE:
                    images += pool.map(read, waiting)
                    waiting.clear()
            images += pool.map(read, waiting)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError(f'"{path}" cannot be read as an archive: {error}') from error
    if not images:
        raise InputError(f'"{path}" holds none of the images')
    return names, np.stack(images)


def labelled_arrays(path: Path) -> dict[str, tuple[NDArray[Any], NDArray[np.int64]]]:
    """Images and labels by part of an ``.npz`` whose arrays say in their names which they are.

    An array of images has ``train`` or ``test`` in its name and three axes or more, that of its
    labels one axis.

    Raises:
        InputError: a part has not one array of each, or of different lengths.
    """
    arrays = read_arrays(path)
    found = {}
    for part in ("train", "test"):
        mine = [array for name, array in arrays.items() if part in name.lower()]
        x = [array for array in mine if array.ndim >= 3]
        y = [array for array in mine if array.ndim == 1]
        if len(x) != 1 or len(y) != 1 or len(x[0]) != len(y[0]):
            has = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            msg = (
                f'"{path}" has not one array of images and one of labels for {part} (it has {has})'
            )
            raise InputError(msg)
        found[part] = (x[0], y[0].astype(np.int64))
    return found

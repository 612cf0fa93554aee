"""Image files: folders with one folder per class, tables of paths, or any images to predict on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from revar.data.images import SUFFIXES, decode, header
from revar.data.source import Part, Reading, Source
from revar.data.stored import ImageFiles
from revar.errors import DataWarning, InputError

_T = TypeVar("_T")
LARGEST_SIDE = 224
"""Images of mixed or larger sizes are resized to at most this."""


def read_class_folders(root: Path, reading: Reading) -> Source:
    """``root/<class>/<image>``, or the same under ``root/train``, ``root/meta``, ``root/test``.

    Raises:
        InputError: no classes, or an unreadable image.
    """
    if (root / "train").is_dir():
        listed = {
            name: _list_classes(root / name)
            for name in ("train", "meta", "test")
            if (root / name).is_dir()
        }
    else:
        listed = {"train": _list_classes(root)}
    everything = [path for files in listed.values() for path, _ in files]
    shape = reading.image_shape or common_shape(everything, skip=reading.skip_unreadable)

    def part(name: str) -> Part | None:
        if name not in listed:
            return None
        paths = [path for path, _ in listed[name]]
        whole = Part(
            ImageFiles(tuple(paths), shape),
            np.asarray([label for _, label in listed[name]]),
            names=tuple(str(path.relative_to(root)) for path in paths),
        )
        return keep_readable(whole, reading)

    train, test = part("train"), part("test")
    assert train is not None
    return Source(train, part("meta"), {} if test is None else {"test": test})


def image_files(root: Path) -> list[Path]:
    """The images below a folder, or the file itself, in the order of their paths."""
    if root.is_file():
        return [root]
    found = (path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES)
    return sorted(path for path in found if path.is_file())


def _list_classes(root: Path) -> list[tuple[Path, str]]:
    classes = sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] != ".")
    listed = [(file, folder.name) for folder in classes for file in image_files(folder)]
    if not listed:
        raise InputError(f'"{root}" has no images in class folders: expected <class>/<image>')
    return listed


def common_shape(paths: Sequence[Path], *, skip: bool = False) -> tuple[int, int, int]:
    """(channels, height, width) to read these images at.

    One size up to 224 px is kept; mixed or larger ones become squares of the median side, at
    most 224. Greyscale only if all of them are.

    Args:
        paths: of the images.
        skip: leave files out that are no images.
    """
    sizes = []
    for seen in _each(paths, header):
        if not isinstance(seen, InputError):
            sizes.append(seen)
        elif not skip:
            raise seen
    if not sizes:
        raise InputError(f'none of {len(paths)} files can be read, "{paths[0]}" being the first')
    channels = 1 if all(grey for _, _, grey in sizes) else 3
    if len({(width, height) for width, height, _ in sizes}) == 1:
        width, height, _ = sizes[0]
        if max(width, height) <= LARGEST_SIDE:
            return channels, height, width
    side = min(LARGEST_SIDE, int(np.median([min(width, height) for width, height, _ in sizes])))
    return channels, side, side


def _each(paths: Sequence[Path], read: Callable[[Path], _T]) -> list[_T | InputError]:
    """What a function makes of every file, or what is wrong with it; several at once."""

    def attempt(path: Path) -> _T | InputError:
        try:
            return read(path)
        except InputError as error:
            return error

    with ThreadPoolExecutor() as pool:
        return list(pool.map(attempt, paths))


def keep_readable(part: Part, reading: Reading) -> Part:
    """The part without images that cannot be read, if that is asked for; they are counted."""
    if not reading.skip_unreadable or not isinstance(part.x, ImageFiles):
        return part
    files = part.x
    seen = _each(files.paths, lambda path: decode(path, files.image_shape) is not None)
    bad = np.array([isinstance(each, InputError) for each in seen])
    rows = np.flatnonzero(~bad)
    if bad.any():
        first = files.paths[int(bad.argmax())]
        msg = f'{bad.sum()} unreadable images were skipped, the first is "{first}"'
        warnings.warn(msg, DataWarning, stacklevel=2)
    if not len(rows):
        raise InputError(f'none of {len(part)} images can be read, "{files.paths[0]}" the first')
    return part.take(rows)

"""Image files: folders with one folder per class, tables of paths, or any images to predict on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from revar.data.images import decode, header, largest_of_sixteen, pages
from revar.data.listing import classes_below, parts_of
from revar.data.source import Part, Reading, Source
from revar.data.stored import ImageFiles
from revar.errors import DataWarning, InputError

_T = TypeVar("_T")
LARGEST_SIDE = 224
"""Images of mixed or larger sizes are resized to at most this."""
_MAYBE_SIXTEEN = (".png", ".tif", ".tiff", ".pgm")
_SAMPLE = 16
_FAR_BELOW = 2**14
"""Sixteen bits whose values stay below this hold those of a camera of fewer, most likely."""


def read_class_folders(root: Path, reading: Reading) -> Source:
    """``root/<class>/<image>``, or the same under ``root/train``, ``root/meta``, ``root/test``.

    Raises:
        InputError: no classes, or folders that may be parts, or an unreadable image.
    """
    listed = {name: classes_below(folder) for name, folder in parts_of(root).items()}
    everything = [path for files in listed.values() for path, _ in files]
    shape = reading.image_shape or common_shape(everything, skip=reading.skip_unreadable)
    _warn_of_losses(everything)

    def part(name: str) -> Part | None:
        if name not in listed:
            return None
        paths = [path for path, _ in listed[name]]
        whole = Part(
            ImageFiles(tuple(paths), shape),
            np.asarray([label for _, label in listed[name]]),
            names=tuple(str(path.relative_to(root)) for path in paths),
        )
        return _kept(whole, reading)

    train, test = part("train"), part("test")
    assert train is not None
    return Source(train, part("meta"), {} if test is None else {"test": test})


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
    """The part without images that cannot be read, if that is asked for; they are counted.

    What is lost of the others is said.
    """
    if isinstance(part.x, ImageFiles):
        _warn_of_losses(part.x.paths)
    return _kept(part, reading)


def _kept(part: Part, reading: Reading) -> Part:
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


def _warn_of_losses(paths: Sequence[Path]) -> None:
    """Say it where sixteen bits are hardly used, by a sample, and where pages are left out."""
    deep = [path for path in paths if path.suffix.lower() in _MAYBE_SIXTEEN]
    sample = deep[:: -(-len(deep) // _SAMPLE) or 1]
    found = [
        (value, path)
        for value, path in zip(_each(sample, largest_of_sixteen), sample, strict=True)
        if isinstance(value, int)
    ]
    # One dark picture is no sign of another scale.
    if found and max(found)[0] < _FAR_BELOW:
        value, path = max(found)
        msg = (
            f'"{path}" has 16 bits, its largest value is {value}, and {value // 256 + 1} levels of '
            "grey are left: scale such images to 0..65535, or save them with 8 bits"
        )
        warnings.warn(msg, DataWarning, stacklevel=3)
    tiffs = [path for path in paths if path.suffix.lower() in (".tif", ".tiff")]
    several = [
        (n, path)
        for n, path in zip(_each(tiffs, pages), tiffs, strict=True)
        if isinstance(n, int) and n > 1
    ]
    if several:
        n, path = several[0]
        msg = (
            f'"{path}" has {n} pages, and of such a file the first alone is read: '
            "save every page as a file of its own"
        )
        warnings.warn(msg, DataWarning, stacklevel=3)

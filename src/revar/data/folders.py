"""Image files: folders with one folder per class, or any images to predict on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.data.source import Part, Source
from revar.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
LARGEST_SIDE = 224
"""Images of mixed or larger sizes are resized to at most this."""


def read_class_folders(root: Path, shape: tuple[int, ...] | None = None) -> Source:
    """``root/<class>/<image>``, or the same under ``root/train``, ``root/meta``, ``root/test``.

    Args:
        root: the folder.
        shape: (channels, height, width) to read at; `common_shape` of the files if not given.

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
    settled = shape or common_shape([path for files in listed.values() for path, _ in files])

    def part(name: str) -> Part | None:
        if name not in listed:
            return None
        paths = [path for path, _ in listed[name]]
        labels = np.asarray([label for _, label in listed[name]])
        names = tuple(str(path.relative_to(root)) for path in paths)
        return Part(read_images(paths, settled), labels, None, names)

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


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        msg = 'image files need the extra "vision": pip install "revar[vision]"'
        raise InputError(msg) from error
    return Image


def _open(path: Path) -> Any:
    image_module = _pillow()
    image = None
    try:
        image = image_module.open(path)
        image.load()
    except Exception as error:  # each format fails in its own way
        if image is not None:
            image.close()
        raise InputError(f'"{path}" cannot be read as an image: {error}') from error
    return image


def common_shape(paths: Sequence[Path]) -> tuple[int, int, int]:
    """(channels, height, width) to read these images at.

    One size up to 224 px is kept; mixed or larger ones become squares of the median side, at
    most 224. Greyscale only if all of them are.
    """
    sizes, grey = [], True
    for path in paths:
        with _open(path) as image:
            sizes.append(image.size)
            grey = grey and image.mode in ("1", "L", "I", "I;16", "F")
    channels = 1 if grey else 3
    if len(set(sizes)) == 1:
        width, height = sizes[0]
        if max(width, height) <= LARGEST_SIDE:
            return channels, height, width
    side = min(LARGEST_SIDE, int(np.median([min(size) for size in sizes])))
    return channels, side, side


def read_images(paths: Sequence[Path], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """[n, channels, height, width] uint8, resized where needed."""
    image_module = _pillow()
    channels, height, width = shape
    images = np.empty((len(paths), *shape), dtype=np.uint8)
    for i, path in enumerate(paths):
        with _open(path) as image:
            if image.mode.startswith("I;16"):
                # Pillow clips sixteen bits to eight; they are to be scaled.
                image = image_module.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            converted = image.convert("L" if channels == 1 else "RGB")
            if converted.size != (width, height):
                converted = converted.resize((width, height), image_module.Resampling.BILINEAR)
            pixels = np.asarray(converted)
        images[i] = pixels if channels == 1 else np.moveaxis(pixels, -1, 0)
    return images

"""Image files to read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def pixels(
    height: int, width: int, channels: int | None = None, seed: int = 0
) -> NDArray[np.uint8]:
    """[height, width] or [height, width, channels] of random bytes."""
    shape = (height, width) if channels is None else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(
    path: Path, values: NDArray[Any], *, orientation: int | None = None, **options: Any
) -> NDArray[Any]:
    """Write a picture, with the folders above it; gives the pixels back.

    ``orientation`` is the tag that a camera leaves.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if orientation is not None:
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = orientation
    Image.fromarray(values).save(path, **options)
    return values


def damaged(path: Path) -> Path:
    """Write something under the name of a picture that is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    return path

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


def save(path: Path, values: NDArray[Any], **options: Any) -> NDArray[Any]:
    """Write a picture, with the folders above it; gives the pixels back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path, **options)
    return values

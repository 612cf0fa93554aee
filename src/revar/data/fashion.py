"""Fashion-MNIST (Xiao et al. 2017), from its own files."""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from revar.data.published import published
from revar.data.source import Part, Source
from revar.errors import InputError

_BYTES = 8
"""How an idx file calls unsigned bytes."""


def fashion_mnist() -> Source:
    """60,000 images to train on and 10,000 to test on, [n, 28, 28] of bytes."""
    train, test = (_part(prefix) for prefix in ("train", "t10k"))
    return Source(train, tests={"test": test})


def _part(prefix: str) -> Part:
    images, labels = (
        published("fashion-mnist", f"fashion_mnist/{name}.gz", f"fashion_mnist/{name}")
        for name in (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
    )
    return Part(read_idx(images), read_idx(labels).astype(np.int64))


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of an idx file of bytes, compressed or not.

    Raises:
        InputError: it is none, or damaged.
    """
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f'"{path}" cannot be read: {error}') from error
    dimensions = content[3] if content[:3] == bytes((0, 0, _BYTES)) and len(content) > 3 else 0
    start = 4 + 4 * dimensions
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    if not shape or len(content) != start + prod(shape):
        raise InputError(f'"{path}" is no idx file of bytes, or cut short')
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)

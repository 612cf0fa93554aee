"""Idx files of bytes, in which Fashion-MNIST (Xiao et al. 2017) and MNIST are published."""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from revar.data.source import Source, load_source
from revar.errors import InputError

_BYTES = 8
"""How an idx file calls unsigned bytes."""


def fashion_mnist() -> Source:
    """60,000 images to train on and 10,000 to test on, [n, 28, 28] of bytes."""
    return load_source("fashion-mnist")


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

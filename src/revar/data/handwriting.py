"""MNIST and USPS: digits of two places, alone and from one to the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from revar.data.fashion import read_idx
from revar.data.packed import labelled_arrays
from revar.data.published import published
from revar.data.source import Part, Source
from revar.errors import InputError
from revar.library.specs import Found

_TEST = "digits/mnist-t10k"


def idx_files(found: Found) -> Source:
    """The idx files of the form's parts, each ``<prefix>-images`` and ``<prefix>-labels``."""
    parts = {name: _idx(found, prefix) for name, prefix in found.form.parts.items()}
    if "train" not in parts:
        return Source(parts["test"])
    return Source(parts["train"], tests={"test": parts["test"]})


def _idx(found: Found, prefix: str) -> Part:
    images, labels = (
        published(found.spec.name, f"{prefix}-{kind}.gz", f"{prefix}-{kind}")
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    x, y = read_idx(images), read_idx(labels)
    if len(x) != len(y):
        raise InputError(f'"{images}" has {len(x)} images, its labels are {len(y)}')
    return Part(x, y.astype(np.int64))


def usps(found: Found) -> Source:
    """[n, 16, 16] of bytes from one archive of arrays."""
    arrays = labelled_arrays(found.path)
    return Source(Part(*arrays["train"]), tests={"test": Part(*arrays["test"])})


def usps_to_mnist(found: Found) -> Source:
    """USPS, and the test images of MNIST at its size as the domain ``mnist``."""
    source = usps(found)
    mnist = _idx(found, _TEST)
    shrunk = resized(mnist.x, source.train.x.shape[-1])
    return Source(source.train, tests={**source.tests, "mnist": Part(shrunk, mnist.y)})


def resized(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """[n, side, side] by the mean over the area that a new pixel covers."""
    old = images.shape[-1]
    edges = np.linspace(0, old, side + 1)
    start, end = np.arange(old), np.arange(1, old + 1)
    # [side, old] how much of each old pixel a new one covers.
    cover = np.minimum(edges[1:, None], end) - np.maximum(edges[:-1, None], start)
    weights = np.clip(cover, 0, None) * side / old
    shrunk: NDArray[np.float64] = weights @ images.astype(np.float64) @ weights.T
    return np.round(shrunk).astype(np.uint8)

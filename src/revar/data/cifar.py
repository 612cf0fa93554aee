"""CIFAR-10, and CIFAR-10N: its training images with labels as people gave them.

Wei et al. (2022) had every training image labelled by three people: ``random1`` to ``random3``
are one answer each (17 to 18 % wrong), ``aggregate`` the majority (9 %), ``worst`` a wrong answer
wherever there is one (40 %). Test labels are the clean ones.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from revar.data.files import read_arrays
from revar.data.images import decode, header
from revar.data.published import published
from revar.data.source import Part, Source
from revar.errors import InputError

Human = Literal["aggregate", "random1", "random2", "random3", "worst"]
_ARRAYS: dict[Human, str] = {
    "aggregate": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worst": "worse_label",
}
_SIDE, _BATCH = 32, 10_000
_BINARY = "cifar-10-batches-bin"


def cifar10() -> Source:
    """50,000 images to train on and 10,000 to test on, [n, 32, 32, 3] of bytes."""
    return _read("cifar10")


def _read(name: str) -> Source:
    folder = published(name, "cifar10", _BINARY)
    read = _binary if folder.name == _BINARY else _tiled
    parts = [read(folder, batch) for batch in range(6)]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts[1:], strict=True))
    return Source(Part(x, y), tests={"test": Part(*parts[0])})


def human_labels(kind: Human, clean: NDArray[np.int64]) -> NDArray[np.int64]:
    """[50000] labels of CIFAR-10N.

    Args:
        kind: which.
        clean: the labels of the training images, to see that both have the same order.

    Raises:
        InputError: the file is not there, or its labels belong to other images.
    """
    path = published(f"cifar10n-{kind}", "cifar_human_labels/cifar10n.npz")
    arrays = read_arrays(path)
    for key in ("clean_label", _ARRAYS[kind]):
        if key not in arrays:
            raise InputError(f'"{path}" has no array "{key}" (it has {", ".join(arrays)})')
    if not np.array_equal(arrays["clean_label"], clean):
        raise InputError(f'"{path}" belongs to training images in another order')
    return arrays[_ARRAYS[kind]].astype(np.int64)


def _cifar10n(kind: Human) -> Source:
    source = _read(f"cifar10n-{kind}")
    assert source.train.y is not None
    noisy = Part(source.train.x, human_labels(kind, source.train.y))
    return Source(noisy, tests=source.tests)


aggregate = partial(_cifar10n, "aggregate")
random1 = partial(_cifar10n, "random1")
random2 = partial(_cifar10n, "random2")
random3 = partial(_cifar10n, "random3")
worst = partial(_cifar10n, "worst")


def _binary(folder: Path, batch: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The test batch (0) or a training batch of the binary version: a label, then the planes."""
    path = folder / (f"data_batch_{batch}.bin" if batch else "test_batch.bin")
    row = 1 + 3 * _SIDE**2
    if not path.is_file() or path.stat().st_size != _BATCH * row:
        raise InputError(f'"{path}" is missing or not a batch of {_BATCH:,} images')
    rows = np.fromfile(path, dtype=np.uint8).reshape(_BATCH, row)
    images = rows[:, 1:].reshape(_BATCH, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), rows[:, 0].astype(np.int64)


def _tiled(folder: Path, batch: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The same from pictures of many tiles, row by row, with the labels in a file of their own."""
    path = folder / (f"train_{batch}.webp" if batch else "test_batch.webp")
    if not path.is_file():
        raise InputError(f'"{path}" is missing')
    labels = read_arrays(folder / "labels.npz")
    y = labels["train"][(batch - 1) * _BATCH : batch * _BATCH] if batch else labels["test"]
    return tiles(path, _SIDE)[: len(y)], y.astype(np.int64)


def tiles(path: Path, side: int) -> NDArray[np.uint8]:
    """[n, side, side, 3] the tiles of a picture, row by row."""
    width, height, _ = header(path)
    sheet = decode(path, (3, height, width))
    grid = sheet.reshape(3, height // side, side, width // side, side)
    return np.ascontiguousarray(grid.transpose(1, 3, 2, 4, 0)).reshape(-1, side, side, 3)

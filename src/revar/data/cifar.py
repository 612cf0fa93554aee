"""CIFAR-10 and -100, and CIFAR-N: their training images with labels as people gave them.

Wei et al. (2022) had every training image of CIFAR-10 labelled by three people: ``random1`` to
``random3`` are one answer each (17 to 18 % wrong), ``aggregate`` the majority (9 %), ``worst`` a
wrong answer wherever there is one (40 %). CIFAR-100 was labelled once (40 % wrong). Test labels
are the clean ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from revar.data.arrays import read_arrays
from revar.data.packed import tiles
from revar.data.pickles import read_batch
from revar.data.published import published
from revar.data.source import Part, Source
from revar.errors import InputError
from revar.library.specs import Found

Human = Literal["aggregate", "random1", "random2", "random3", "worst"]
Images = tuple[NDArray[np.uint8], NDArray[np.int64]]
ARRAYS: dict[Human, str] = {
    "aggregate": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worst": "worse_label",
}
"""What the authors' file calls them."""
_SIDE, _BATCH = 32, 10_000
_ROW = 3 * _SIDE**2


def cifar10_tiled(found: Found) -> Source:
    """50,000 images to train on and 10,000 to test on, [n, 32, 32, 3] of bytes."""
    return _six([_tiled(found.path, batch) for batch in range(6)])


def cifar10_binary(found: Found) -> Source:
    """The same from the binary version."""
    names = ["test_batch.bin", *(f"data_batch_{batch}.bin" for batch in range(1, 6))]
    return _six([_binary(found.path / name, _BATCH, labels=1) for name in names])


def cifar10_python(found: Found) -> Source:
    """The same from the version for Python."""
    names = ["test_batch", *(f"data_batch_{batch}" for batch in range(1, 6))]
    return _six([_python(found.path / name, "labels") for name in names])


def cifar100_binary(found: Found) -> Source:
    """50,000 and 10,000 images of 100 classes; the twenty coarse labels are left alone."""
    train = _binary(found.path / "train.bin", 5 * _BATCH, labels=2)
    test = _binary(found.path / "test.bin", _BATCH, labels=2)
    return Source(Part(*train), tests={"test": Part(*test)})


def cifar100_python(found: Found) -> Source:
    """The same from the version for Python."""
    train, test = (_python(found.path / name, "fine_labels") for name in ("train", "test"))
    return Source(Part(*train), tests={"test": Part(*test)})


def with_human_labels(found: Found) -> Source:
    """The images of the base, its training labels as people gave them."""
    source = _base(found)
    assert source.train.y is not None
    labels = _people(found.path, str(found.spec.options["array"]), source.train.y)
    return replace(source, train=replace(source.train, y=labels))


def with_soft_labels(found: Found) -> Source:
    """The images and labels of the base; `revar.data.soft` has what people said of its tests."""
    return _base(found)


def human_labels(kind: Human, clean: NDArray[np.int64]) -> NDArray[np.int64]:
    """[50000] labels of CIFAR-10N.

    Args:
        kind: which.
        clean: the labels of the training images, to see that both have the same order.

    Raises:
        InputError: the file is not there, or its labels belong to other images.
    """
    path = published(f"cifar10n-{kind}", "cifar_human_labels/cifar10n.npz")
    return _people(path, ARRAYS[kind], clean)


def _people(path: Path, array: str, clean: NDArray[np.int64]) -> NDArray[np.int64]:
    arrays = read_arrays(path)
    for key in ("clean_label", array):
        if key not in arrays:
            raise InputError(f'"{path}" has no array "{key}" (it has {", ".join(arrays)})')
    if not np.array_equal(arrays["clean_label"], clean):
        raise InputError(f'"{path}" belongs to training images in another order')
    return arrays[array].astype(np.int64)


def _base(found: Found) -> Source:
    from revar.data.datasets import dataset_spec, read_dataset

    # Its own message would name another data set than the one that was asked for.
    spec = replace(dataset_spec(found.spec.base), name=found.spec.name)
    return read_dataset(spec)


def _six(batches: list[Images]) -> Source:
    x, y = (np.concatenate(arrays) for arrays in zip(*batches[1:], strict=True))
    return Source(Part(x, y), tests={"test": Part(*batches[0])})


def _binary(path: Path, n: int, *, labels: int) -> Images:
    """A batch of the binary version: labels, the last of them the finest, then the planes."""
    row = labels + _ROW
    if not path.is_file() or path.stat().st_size != n * row:
        raise InputError(f'"{path}" is missing or not a batch of {n:,} images')
    rows = np.fromfile(path, dtype=np.uint8).reshape(n, row)
    return _planes(rows[:, labels:]), rows[:, labels - 1].astype(np.int64)


def _python(path: Path, labels: str) -> Images:
    """A batch of the version for Python: a dictionary with rows of planes and their labels."""
    batch: dict[str, Any] = read_batch(path)
    data, y = batch.get("data"), np.asarray(batch.get(labels, []))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (len(y), _ROW):
        raise InputError(f'"{path}" is no batch of CIFAR: expected "data" and "{labels}"')
    return _planes(data), y.astype(np.int64)


def _planes(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    images = rows.reshape(len(rows), 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images)


def _tiled(folder: Path, batch: int) -> Images:
    """The test batch (0) or a training batch from a picture of many tiles, row by row."""
    path = folder / (f"train_{batch}.webp" if batch else "test_batch.webp")
    if not path.is_file():
        raise InputError(f'"{path}" is missing')
    labels = read_arrays(folder / "labels.npz")
    y = labels["train"][(batch - 1) * _BATCH : batch * _BATCH] if batch else labels["test"]
    return tiles(path, _SIDE)[: len(y)], y.astype(np.int64)

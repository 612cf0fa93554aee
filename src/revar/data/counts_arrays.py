"""How many examples are in files of arrays: CIFAR in its versions, idx files, archives."""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np

from revar.data.arrays import one_array
from revar.data.counts import check_sheet
from revar.data.packed import labelled_arrays
from revar.data.pickles import read_batch
from revar.errors import InputError
from revar.library.specs import Found, Sizes

_BATCH = 10_000
_PIXELS = 3 * 32**2
_MNIST_TEST = "digits/mnist-t10k"
_IDX_START = (0, 0, 8)
"""How an idx file of bytes begins."""


def cifar10_tiled(found: Found) -> Sizes:
    """Lengths of the arrays of ``labels.npz``, whose tiles are there."""
    path = found.path / "labels.npz"
    sizes = {part: len(one_array(path, part)) for part in ("train", "test")}
    sheets = {f"train_{k}.webp": sizes["train"] - (k - 1) * _BATCH for k in range(1, 6)}
    for name, left in {**sheets, "test_batch.webp": sizes["test"]}.items():
        check_sheet(found.path / name, 32, min(max(left, 0), _BATCH))
    return sizes


def cifar10_binary(found: Found) -> Sizes:
    """Rows of its six batches, by the sizes of the files."""
    train = sum(_binary(found.path / f"data_batch_{k}.bin", _BATCH, 1) for k in range(1, 6))
    return {"train": train, "test": _binary(found.path / "test_batch.bin", _BATCH, 1)}


def cifar100_binary(found: Found) -> Sizes:
    """The same of its two files."""
    wanted = {"train": 5 * _BATCH, "test": _BATCH}
    return {part: _binary(found.path / f"{part}.bin", n, 2) for part, n in wanted.items()}


def _binary(path: Path, n: int, labels: int) -> int:
    rows, rest = divmod(path.stat().st_size, labels + _PIXELS) if path.is_file() else (0, 0)
    if rest or rows != n:
        raise InputError(f'"{path}" is missing or not a batch of {n:,} images')
    return rows


def cifar10_python(found: Found) -> Sizes:
    """Labels of its six batches."""
    train = sum(_python(found.path / f"data_batch_{k}", "labels") for k in range(1, 6))
    return {"train": train, "test": _python(found.path / "test_batch", "labels")}


def cifar100_python(found: Found) -> Sizes:
    """Labels of its two files."""
    return {part: _python(found.path / part, "fine_labels") for part in ("train", "test")}


def _python(path: Path, labels: str) -> int:
    batch = read_batch(path)
    n = len(batch.get(labels, []))
    if getattr(batch.get("data"), "shape", None) != (n, _PIXELS):
        raise InputError(f'"{path}" is no batch of CIFAR: expected "data" and "{labels}"')
    return n


def people(found: Found) -> Sizes:
    """The parts of the base, whose training images all have a label of people."""
    for name in ("clean_label", str(found.spec.options["array"])):
        _agree(found, "train", len(one_array(found.path, name)))
    return found.base


def soft(found: Found) -> Sizes:
    """The parts of the base, whose test images all have soft labels."""
    _agree(found, "test", len(np.atleast_1d(one_array(found.path, "counts"))))
    return found.base


def _agree(found: Found, part: str, n: int) -> None:
    if n != found.base[part]:
        msg = f'has labels of {n:,} images, {part} of "{found.spec.base}" has {found.base[part]:,}'
        raise InputError(f'"{found.path}" {msg}')


def idx_files(found: Found) -> Sizes:
    """Lengths of the files of images and labels of each part."""
    return {part: _idx(found.root / prefix) for part, prefix in found.form.parts.items()}


def _idx(prefix: Path) -> int:
    images, labels = (
        _idx_shape(prefix.with_name(f"{prefix.name}-{kind}"))
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    if images[0] != labels[0]:
        raise InputError(f'"{prefix}" has {images[0]} images, its labels are {labels[0]}')
    return images[0]


def _idx_shape(plain: Path) -> list[int]:
    """The shape in the header of an idx file, compressed or not, that is as long as it says."""
    packed = plain.with_name(f"{plain.name}.gz")
    path = packed if packed.is_file() else plain
    if not path.is_file():
        raise InputError(f'"{plain}" is missing, and so is "{packed.name}"')
    try:
        with gzip.open(path) if path == packed else path.open("rb") as file:
            start = file.read(4)
            numbers = file.read(4 * start[3]) if tuple(start[:3]) == _IDX_START else b""
        shape = [int.from_bytes(numbers[at : at + 4], "big") for at in range(0, len(numbers), 4)]
        whole = bool(shape) and _length(path, 4 + len(numbers) + prod(shape))
    except (OSError, EOFError, IndexError, zlib.error) as error:
        raise InputError(f'"{path}" cannot be read: {error}') from error
    if not whole:
        raise InputError(f'"{path}" is no idx file of bytes, or cut short')
    return shape


def _length(path: Path, wanted: int) -> bool:
    """Whether a file has that many bytes, unpacked if it is packed."""
    if path.suffix != ".gz":
        return path.stat().st_size == wanted
    with path.open("rb") as file:
        file.seek(-4, 2)
        said = int.from_bytes(file.read(4), "little")
    # A packed file ends with its length. Only one that was cut or glued together must be unpacked.
    return said == wanted % 2**32 or len(gzip.decompress(path.read_bytes())) == wanted


def usps(found: Found) -> Sizes:
    """Lengths of its arrays."""
    return {part: len(y) for part, (_, y) in labelled_arrays(found.path).items()}


def usps_to_mnist(found: Found) -> Sizes:
    """The same, and the test images of MNIST."""
    return {**usps(found), "mnist": _idx(found.root / _MNIST_TEST)}

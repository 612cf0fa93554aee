"""Stored inputs: a tensor in memory, or files and items that are read when they are needed.

Both answer ``len(x)`` and ``x[rows]``, and give the same values for the same rows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.data.images import decode
from revar.errors import InputError, InputTypeError
from revar.nets.normalise import image_moments

Loader = Literal["auto", "resident", "stream"]
_BLOCK = 1024
"""Rows read at a time when all of them are gone through."""
_SHARE = 0.25
"""Of the free memory that data may fill before it is streamed."""


@cache
def _readers(process: int) -> ThreadPoolExecutor:
    """Threads that decode; by process, because threads do not survive a fork."""
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix=f"decode-{process}")


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Images on disk, decoded when asked for.

    Attributes:
        paths: of the files.
        image_shape: (channels, height, width) they are read at.
        threads: decode several at once; not in the worker processes of a loader.
    """

    paths: tuple[Path, ...]
    image_shape: tuple[int, ...]
    threads: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, channels, height, width], as an array's."""
        return (len(self), *self.image_shape)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Any) -> Tensor:
        """[rows, channels, height, width] uint8."""
        chosen = [self.paths[i] for i in row_numbers(rows, len(self))]
        if not chosen:
            return torch.empty((0, *self.image_shape), dtype=torch.uint8)
        if self.threads and len(chosen) > 1:
            images = list(_readers(os.getpid()).map(self._decode, chosen))
        else:
            images = [self._decode(path) for path in chosen]
        return torch.from_numpy(np.stack(images))

    def _decode(self, path: Path) -> NDArray[np.uint8]:
        return decode(path, self.image_shape)

    def take(self, rows: NDArray[np.int64]) -> ImageFiles:
        """Some of the files."""
        paths = tuple(self.paths[i] for i in rows)
        return ImageFiles(paths, self.image_shape, self.threads)

    def in_worker(self) -> ImageFiles:
        """The same without threads of its own."""
        return ImageFiles(self.paths, self.image_shape, threads=False)


@dataclass(frozen=True, eq=False)
class Items:
    """A map-style dataset, its inputs read when asked for.

    Attributes:
        dataset: gives inputs, or (input, label).
        encode: a stack of its inputs to what is stored.
        rows: of the dataset that belong here.
        shape: [n, ...] of what is stored.
    """

    dataset: Any
    encode: Any
    rows: NDArray[np.int64]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Tensor:
        """[rows, ...] as stored."""
        numbers = [int(self.rows[i]) for i in row_numbers(rows, len(self))]
        # The type of what is stored is known from any example, also where there are no rows.
        read = numbers or [0]
        encoded: Tensor = self.encode(stack([item_input(self.dataset[i]) for i in read], read))
        return encoded[: len(numbers)]

    def take(self, rows: NDArray[np.int64]) -> Items:
        """Some of the items."""
        return Items(self.dataset, self.encode, self.rows[rows], (len(rows), *self.shape[1:]))

    def in_worker(self) -> Items:
        """The same: it has no threads."""
        return self


Lazy = ImageFiles | Items
Stored = Tensor | Lazy


def row_numbers(rows: Any, n: int) -> list[int]:
    """Rows given as a slice, a list, an array or a tensor, as plain numbers."""
    if isinstance(rows, slice):
        return list(range(*rows.indices(n)))
    numbers = np.asarray(rows)
    return (np.flatnonzero(numbers) if numbers.dtype == bool else numbers).tolist()


def item_input(item: Any) -> Any:
    """The input of a dataset's item, which may come with a label."""
    return item[0] if isinstance(item, tuple | list) else item


def stack(items: Sequence[Any], numbers: Sequence[int]) -> Tensor:
    """Inputs of one shape as one tensor.

    Args:
        items: the inputs.
        numbers: of the items in their dataset.

    Raises:
        InputError: they differ, or are no numbers.
    """
    tensors = [_values(item, number) for item, number in zip(items, numbers, strict=True)]
    first = tensors[0].shape
    for number, tensor in zip(numbers, tensors, strict=True):
        if tensor.shape != first:
            msg = (
                f"item {number} has shape {tuple(tensor.shape)}, "
                f"item {numbers[0]} has {tuple(first)}: resize them"
            )
            raise InputError(msg)
    return torch.stack(tensors)


def _values(item: Any, number: int) -> Tensor:
    if isinstance(item, Tensor):
        return item
    try:
        return torch.from_numpy(np.array(item))
    except (TypeError, ValueError, RuntimeError) as error:
        name = "None" if item is None else f"a {type(item).__name__}"
        msg = (
            f"item {number} is {name}, or begins with one: a dataset gives inputs of numbers, or "
            "(input, label)"
        )
        raise InputTypeError(msg) from error


def take(x: Stored, rows: NDArray[np.int64]) -> Stored:
    """Some of the rows."""
    return x[torch.from_numpy(rows)] if isinstance(x, Tensor) else x.take(rows)


def blocks(x: Stored) -> Iterator[Tensor]:
    """All rows in their order, a block at a time."""
    for start in range(0, len(x), _BLOCK):
        yield x[start : start + _BLOCK]


def settle(x: Stored, loader: Loader, device: torch.device) -> Stored:
    """Bring data into memory, unless it is too large or told to stay where it is."""
    if isinstance(x, Tensor) or loader == "stream":
        return x
    if loader == "auto":
        example = x[[0]]
        size = example.numel() * example.element_size() * len(x)
        if size > _SHARE * _free_memory(device):
            return x
    return torch.cat(list(blocks(x)))


def _free_memory(device: torch.device) -> float:
    host = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.type != "cuda":
        return float(host)
    free, _ = torch.cuda.mem_get_info(device)
    return float(min(host, free))


@dataclass(frozen=True, slots=True)
class Scan:
    """What one pass over stored inputs tells.

    Attributes:
        hashes: [n] 64 bits of each row.
        means: [n, channels] mean of each channel of each image; empty for tables.
        squares: [n, channels] sum of squared deviations from it.
    """

    hashes: NDArray[np.int64]
    means: Tensor
    squares: Tensor


def scan(x: Stored) -> Scan:
    """Go through all rows once."""
    hashes: list[int] = []
    moments: list[tuple[Tensor, Tensor]] = []
    for block in blocks(x):
        hashes.extend(_hash(row) for row in block.flatten(1).contiguous().numpy())
        if block.ndim == 4:
            moments.append(image_moments(block))
    nothing = torch.empty(0)
    means, squares = (
        (torch.cat(parts) for parts in zip(*moments, strict=True))
        if moments
        else (
            nothing,
            nothing,
        )
    )
    return Scan(np.array(hashes, dtype=np.int64), means, squares)


def _hash(row: NDArray[Any]) -> int:
    digest = hashlib.blake2b(row.tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)

"""What one example looks like, and how raw inputs become the tensor that is stored.

The description is fitted on the training rows, saved with the run, and refuses other inputs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from revar.data.frames import FrameInputs, too_close
from revar.data.labels import as_labels
from revar.data.stored import ImageFiles, Items, Stored, item_input, stack
from revar.data.tensors import as_array, as_tensor
from revar.errors import DataWarning, InputError, InputTypeError

Rows = NDArray[np.int64]
_WHOLE = (
    "images of whole numbers 0..255: this model was trained on float ones, whose range only you "
    "know; give floats of that range, or train it on images of whole numbers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayInputs:
    """Arrays and tensors: rows of numbers, or images.

    Attributes:
        shape: of one example: (columns,) or (channels, height, width).
        dtype: images of whole numbers 0..255 are stored as they are, all else as float32.
    """

    shape: tuple[int, ...]
    dtype: Literal["uint8", "float32"]
    kind: Literal["array"] = "array"

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(channels, height, width), or none for tables."""
        return self.shape if len(self.shape) == 3 else None

    def encode(self, raw: Any) -> Stored:
        """[n, ...] as stored; files and datasets stay where they are.

        Raises:
            InputError: another shape, NaN or infinity.
        """
        if isinstance(raw, ImageFiles):
            if raw.image_shape != self.shape:
                msg = (
                    f"image files read at {raw.image_shape}: this model was trained on {self.shape}"
                )
                raise InputError(msg)
            if self.dtype != "uint8":
                raise InputError(_WHOLE)
            return raw
        if isinstance(raw, Items):
            return Items(raw.dataset, self._encode_block, raw.rows, (len(raw), *self.shape))
        return self._encode_block(raw.to_numpy() if is_frame(raw) else raw)

    def _encode_block(self, raw: Any) -> Tensor:
        x = as_tensor(raw)
        if x.ndim == 2 and len(self.shape) == 1 and x.shape[1] != self.shape[0]:
            # scikit-learn's words.
            msg = (
                f"X has {x.shape[1]} features, but SelectiveClassifier is expecting "
                f"{self.shape[0]} features as input"
            )
            raise InputError(msg)
        if tuple(x.shape[1:]) != self.shape:
            msg = f"inputs of shape {tuple(x.shape[1:])}: this model was trained on {self.shape}"
            raise InputError(msg)
        if self.dtype == "float32" and x.dtype == torch.uint8 and x.ndim == 4:
            raise InputError(_WHOLE)
        if self.dtype == "uint8" and x.dtype != torch.uint8:
            if x.numel() and (x.min() < 0 or x.max() > 255 or (x != x.round()).any()):
                msg = (
                    f"images with values from {x.min():g} to {x.max():g}: "
                    "this model was trained on whole numbers from 0 to 255"
                )
                raise InputError(msg)
            return x.to(torch.uint8)
        return x.to(getattr(torch, self.dtype))


Inputs = ArrayInputs | FrameInputs


def fit_inputs(raw: Any, rows: Rows) -> Inputs:
    """Describe inputs by their training rows."""
    if is_frame(raw):
        return FrameInputs.fit(raw.iloc[rows])
    if isinstance(raw, ImageFiles):
        return ArrayInputs(shape=raw.image_shape, dtype="uint8")
    x = as_tensor(raw[:1] if isinstance(raw, Items) else raw)
    whole = x.dtype == torch.uint8 or ("int" in str(getattr(raw, "dtype", "")) and _are_bytes(x))
    if x.ndim == 2:
        _warn_of_close_numbers(raw)
    return ArrayInputs(
        shape=tuple(x.shape[1:]), dtype="uint8" if whole and x.ndim == 4 else "float32"
    )


def _are_bytes(x: Tensor) -> bool:
    return x.numel() > 0 and bool(x.min() >= 0) and bool(x.max() <= 255)


def _warn_of_close_numbers(raw: Any) -> None:
    """Say which column single precision would make one number of; frames have an offset."""
    array = raw if isinstance(raw, np.ndarray) else np.empty(0)
    if array.ndim != 2 or array.dtype.itemsize < 8 or array.dtype.kind not in "fiu":
        return
    for j, column in enumerate(array.T):
        if too_close(np.asarray(column, dtype=np.float64)):
            msg = (
                f"column {j} of X lies between {column.min():.10g} and {column.max():.10g}, which "
                "single precision hardly tells apart: take an offset off it, or use a pandas frame"
            )
            warnings.warn(msg, DataWarning, stacklevel=2)


def is_frame(raw: Any) -> bool:
    """Whether this is a pandas frame, without importing pandas."""
    return type(raw).__module__.partition(".")[0] == "pandas" and hasattr(raw, "columns")


def unpack(raw: Any, y: Any = None) -> tuple[Any, Any]:
    """Raw inputs and labels of whatever a user calls a dataset.

    A map-style torch dataset gives inputs or (input, label). Its labels are read once, item by
    item, where none are given; its inputs stay where they are until they are asked for.

    Raises:
        InputError: this is no data, or the dataset is empty.
    """
    x = unpack_inputs(raw)
    if y is None and isinstance(x, Items) and not isinstance(raw, Items):
        first = raw[0]
        if isinstance(first, tuple | list) and len(first) >= 2:
            y = _labels_of(raw, len(x))
    return x, y


def unpack_inputs(raw: Any) -> Any:
    """The inputs alone: labels that a dataset has are not looked at.

    Raises:
        InputError: this is no data, or the dataset is empty.
    """
    if type(raw).__module__.startswith("scipy.sparse"):
        raise InputTypeError("X is sparse: sparse input is not supported, use X.toarray()")
    if isinstance(raw, DataLoader):
        raise InputTypeError("X is a DataLoader, which has an order of its own: give X.dataset")
    if isinstance(raw, Dataset):
        return _items(raw)
    return raw if isinstance(raw, ImageFiles | Items) or is_frame(raw) else as_array(raw)


def _items(dataset: Any) -> Items:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        msg = (
            f"X is a dataset without a length ({type(dataset).__name__}), of which no rows can be "
            "drawn: give one with __len__ and __getitem__, or an array of its items"
        )
        raise InputTypeError(msg)
    n = len(dataset)
    if n == 0:
        raise InputError("the dataset is empty")
    shape = (n, *stack([item_input(dataset[0])], [0]).shape[1:])
    return Items(dataset, _same, np.arange(n), shape)


def _labels_of(dataset: Any, n: int) -> NDArray[Any]:
    return as_labels([_single(dataset[number][1], number) for number in range(n)])


def _single(label: Any, number: int) -> Any:
    """A label as a plain value."""
    if isinstance(label, list | tuple):
        size = len(label)
        label = label[0] if size == 1 else label
    else:
        size = label.numel() if isinstance(label, Tensor) else np.size(label)
    if size != 1:
        msg = (
            f"item {number} has a label of {size} values: one per example is needed, such as the "
            "argmax of one-hot ones"
        )
        raise InputError(msg)
    return label.item() if hasattr(label, "item") else label


def _same(x: Tensor) -> Tensor:
    return x

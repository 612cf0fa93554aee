"""What one example looks like, and how raw inputs become the tensor that is stored.

The description is fitted on the training rows, saved with the run, and refuses other inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.data.frames import FrameInputs
from revar.data.stored import ImageFiles, Items, Stored, item_input, stack
from revar.errors import InputError, InputTypeError

Rows = NDArray[np.int64]
_WHOLE = "images of whole numbers 0..255: this model was trained on float ones, scale them"


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
        x = _as_tensor(raw)
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
    x = _as_tensor(raw[:1] if isinstance(raw, Items) else raw)
    image = x.dtype == torch.uint8 and x.ndim == 4
    return ArrayInputs(shape=tuple(x.shape[1:]), dtype="uint8" if image else "float32")


def is_frame(raw: Any) -> bool:
    """Whether this is a pandas frame, without importing pandas."""
    return type(raw).__module__.partition(".")[0] == "pandas" and hasattr(raw, "columns")


def unpack(raw: Any, y: Any = None) -> tuple[Any, Any]:
    """Raw inputs and labels of whatever a user calls a dataset.

    A map-style torch dataset gives inputs or (input, label). Its labels are read once, item by
    item; its inputs stay where they are until they are asked for.

    Raises:
        InputError: the dataset is empty.
    """
    if type(raw).__module__.startswith("scipy.sparse"):
        raise InputTypeError("X is sparse: sparse input is not supported, use X.toarray()")
    if not isinstance(raw, torch.utils.data.Dataset):
        known = isinstance(raw, np.ndarray | Tensor | ImageFiles | Items) or is_frame(raw)
        return (raw if known else np.asarray(raw)), y
    n = len(raw)  # type: ignore[arg-type]
    if n == 0:
        raise InputError("the dataset is empty")
    first = raw[0]
    labelled = isinstance(first, tuple | list) and len(first) >= 2
    if labelled and y is None:
        y = np.asarray([_scalar(raw[i][1]) for i in range(n)])
    shape = (n, *stack([item_input(first)], [0]).shape[1:])
    return Items(raw, _same, np.arange(n), shape), y


def _same(x: Tensor) -> Tensor:
    return x


def _scalar(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _as_tensor(raw: Any) -> Tensor:
    """Rows [n, d] or images [n, channels, h, w]; finite; an array's values are copied, once."""
    from_torch = isinstance(raw, Tensor)
    given = raw.detach().cpu() if from_torch else _from_numpy(raw)
    x = given
    if x.is_complex():
        msg = "Complex data not supported: take real and imaginary parts of X as columns"
        raise InputError(msg)
    if x.dtype == torch.bool:
        x = x.to(torch.uint8)
    if x.ndim == 3:
        x = x.unsqueeze(1)
    elif x.ndim == 4:
        x = x if _channel_axis(tuple(x.shape), prefer_first=from_torch) == 1 else x.movedim(-1, 1)
    elif x.ndim != 2:
        msg = (
            f"X has shape {tuple(x.shape)}: rows are [n, columns], images [n, h, w], "
            "[n, h, w, channels] or [n, channels, h, w]. Reshape your data"
        )
        raise InputError(msg)
    if x.shape[1:].numel() == 0:
        msg = f"X has 0 feature(s) (shape={tuple(x.shape)}) while a minimum of 1 is required."
        raise InputError(msg)
    if x.dtype != torch.uint8:
        _refuse_gaps(x)
        x = x.to(torch.float32)
        if not torch.isfinite(x).all():
            raise InputError("X holds values too large for float32: scale them down")
    dense = x.contiguous()
    # To move channels or to change the type has made a copy already.
    copied = dense.untyped_storage().data_ptr() != given.untyped_storage().data_ptr()
    return dense if from_torch or copied else dense.clone()


def _from_numpy(raw: Any) -> Tensor:
    """The values of an array, in its own memory where torch can read that."""
    array = np.asarray(raw)
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            odd = _first_odd(array)
            if isinstance(odd, str):
                msg = f"X holds {odd!r}: put text columns in a pandas frame"
                raise InputError(msg) from error
            msg = f"X holds {odd!r}: every argument must be a string or a number"
            raise InputTypeError(msg) from error
    if array.dtype.kind not in "buifc":
        raise InputError(f"X has type {array.dtype}: put text columns in a pandas frame")
    if array.dtype.kind == "u" and array.dtype != np.uint8:
        array = array.astype(np.float64)
    native = array.dtype.newbyteorder("=")
    steps = all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    readable = array.dtype == native and array.flags.writeable and steps
    return torch.from_numpy(array if readable else np.array(array, order="C", dtype=native))


def _first_odd(array: NDArray[Any]) -> Any:
    for value in array.flat:
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return array.flat[0]


def _refuse_gaps(x: Tensor) -> None:
    for what, where, way in (
        ("NaN", torch.isnan, "impute them, or use a pandas frame, where NaN means missing"),
        ("infinity", torch.isinf, "replace it by a finite value"),
    ):
        bad = where(x).flatten(1).any(1)
        if bad.any():
            row = int(bad.nonzero()[0, 0])
            raise InputError(f"X holds {what} in {int(bad.sum())} rows, first in row {row}: {way}")


def _channel_axis(shape: tuple[int, ...], *, prefer_first: bool) -> int:
    """Where the channels of [n, a, b, c] are: 1 or -1.

    An axis of 1, 3 or 4 is the channels where the other is none of these, else the shorter one;
    a tie goes to the container's custom (NumPy: last, torch: first).
    """
    first, last = shape[1], shape[-1]
    usual = (1, 3, 4)
    if (first in usual) != (last in usual):
        return 1 if first in usual else -1
    if first != last:
        return 1 if first < last else -1
    return 1 if prefer_first else -1

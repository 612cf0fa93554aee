"""Arrays, tensors and lists to one tensor of rows or images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.data.stored import stack
from revar.errors import InputError, InputTypeError

_SHAPE = (
    "X has shape {}: rows are [n, columns], images [n, h, w], [n, h, w, channels] or "
    "[n, channels, h, w]. Reshape your data"
)
_COMPLEX = "Complex data not supported: take real and imaginary parts of X as columns"
_LARGE = "X holds values too large for float32: scale them down"


def as_array(raw: Any) -> NDArray[Any] | Tensor:
    """An array or a tensor as it is, anything else as an array.

    Raises:
        InputError: what has no rows, or not the values of all of them.
    """
    if isinstance(raw, Tensor):
        if raw.layout != torch.strided or raw.is_nested:
            way = "X.to_padded_tensor(0)" if raw.is_nested else "X.to_dense()"
            msg = f"X is a sparse or nested tensor: such input is not supported, use {way}"
            raise InputTypeError(msg)
        if raw.is_meta:
            raise InputTypeError('X is on the device "meta", which keeps no values: give them')
        array: NDArray[Any] | Tensor = raw
    else:
        array = raw if isinstance(raw, np.ndarray) else _read(raw)
        if isinstance(array, np.ma.MaskedArray):
            if np.ma.is_masked(array):
                count = int(np.ma.getmaskarray(array).sum())
                msg = (
                    f"X holds {count} masked values: fill them, X.filled(0), "
                    "or use a pandas frame, where NaN means missing"
                )
                raise InputError(msg)
            array = array.data
    if array.ndim == 0:
        raise InputError(_SHAPE.format("()"))
    return array


def _read(raw: Any) -> NDArray[Any] | Tensor:
    if isinstance(raw, list | tuple) and raw and all(isinstance(row, Tensor) for row in raw):
        return stack([row.detach() for row in raw], range(len(raw)))
    if isinstance(raw, str | PathLike):
        msg = f'X is "{raw}", a name rather than data: read it first, as with pandas.read_csv'
        raise InputTypeError(msg)
    if isinstance(raw, Mapping):
        raise InputTypeError(f"X is a {type(raw).__name__}: make a frame, pandas.DataFrame(X)")
    try:
        array = np.asarray(raw)
    except (TypeError, ValueError, RuntimeError) as error:
        ragged = "inhomogeneous" in str(error)
        reason = "rows of different lengths" if ragged else " ".join(str(error).split())
        raise InputError(f"X cannot be read as an array: {reason}") from error
    if array.ndim == 0 and array.dtype.kind == "O":
        name = "None" if raw is None else f"a {type(raw).__name__}"
        way = "give an array, a tensor, a pandas frame or a map-style torch dataset"
        if isinstance(raw, Iterable):
            way = "make a list of it, list(X)"
        raise InputTypeError(f"X is {name}: {way}")
    return array


def as_tensor(raw: Any) -> Tensor:
    """Rows [n, d] or images [n, channels, h, w]; finite; an array's values are copied, once."""
    array = as_array(raw)
    from_torch = isinstance(array, Tensor)
    given = array.detach().cpu() if isinstance(array, Tensor) else _from_numpy(array)
    x = given
    if x.is_complex():
        raise InputError(_COMPLEX)
    if x.dtype == torch.bool:
        x = x.to(torch.uint8)
    if x.ndim == 3:
        x = x.unsqueeze(1)
    elif x.ndim == 4:
        x = x if _channel_axis(tuple(x.shape), prefer_first=from_torch) == 1 else x.movedim(-1, 1)
    elif x.ndim != 2:
        raise InputError(_SHAPE.format(tuple(x.shape)))
    if x.shape[1:].numel() == 0:
        msg = f"X has 0 feature(s) (shape={tuple(x.shape)}) while a minimum of 1 is required."
        raise InputError(msg)
    if x.dtype != torch.uint8:
        _refuse_gaps(x)
        x = x.to(torch.float32)
        if not torch.isfinite(x).all():
            raise InputError(_LARGE)
    dense = x.contiguous()
    # To move channels or to change the type has made a copy already.
    copied = dense.untyped_storage().data_ptr() != given.untyped_storage().data_ptr()
    return dense if from_torch or copied else dense.clone()


def _from_numpy(array: NDArray[Any]) -> Tensor:
    """The values of an array, in its own memory where torch can read that."""
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except OverflowError as error:
            raise InputError(_LARGE) from error
        except (TypeError, ValueError) as error:
            odd = _first_odd(array)
            if isinstance(odd, str):
                msg = f"X holds {odd!r}: put text columns in a pandas frame"
                raise InputError(msg) from error
            msg = f"X holds {odd!r}: every argument must be a string or a number"
            raise InputTypeError(msg) from error
    if array.dtype.kind not in "buifc":
        raise InputError(f"X has type {array.dtype}: put text columns in a pandas frame")
    if array.dtype.kind == "c":
        raise InputError(_COMPLEX)
    wide = array.dtype.kind == "f" and array.dtype.itemsize > 8
    if wide or (array.dtype.kind == "u" and array.dtype != np.uint8):
        # What torch has no type for, or hardly an operation.
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

"""Labels of any kind to class numbers and back."""

from __future__ import annotations

from dataclasses import dataclass
from types import UnionType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from revar.errors import InputError

Label = str | int | float | bool
_PLAIN = (str, bool, np.bool_, int, float, np.number)
_TRUTH = {"0": ("False", "false", "FALSE"), "1": ("True", "true", "TRUE")}
"""Spellings of truth values, by the digit that is one too."""
_ENOUGH = 20
"""Examples from which on a target with hardly a label twice is taken for a mistake."""
_MOST_DISTINCT = 0.75


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of a task in their order; class number k is ``values[k]``."""

    values: tuple[Label, ...]

    @classmethod
    def of(cls, y: ArrayLike) -> Self:
        """The distinct labels of a training set, sorted.

        Raises:
            InputError: fewer than two classes, missing labels, or a continuous target.
        """
        labels = as_labels(y)
        if labels.dtype.kind == "f" and (labels != np.round(labels)).any():
            example = labels[labels != np.round(labels)][0]
            msg = f"y is continuous (it holds {example:g}): a classifier needs a class per example"
            raise InputError(msg)
        values = np.unique(labels)
        if len(values) < 2:
            count = "1 sample" if len(labels) == 1 else f"{len(labels)} samples"
            held = f"{count} of one class, {values[0]}" if len(values) else "no labels"
            raise InputError(f"y holds {held}: at least two classes are needed")
        if len(labels) >= _ENOUGH and len(values) > _MOST_DISTINCT * len(labels):
            msg = (
                f"y has {len(values)} distinct labels in {len(labels)} examples: is it a name or a "
                "measurement rather than a class?"
            )
            raise InputError(msg)
        return cls(tuple(values.tolist()))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def array(self) -> NDArray[Any]:
        """[C] the classes, in the type of the training labels."""
        whole = [value for value in self.values if isinstance(value, int)]
        # Of whole numbers with one of 64 bits NumPy would make floats.
        beyond = bool(whole) and max(whole) > np.iinfo(np.int64).max
        return np.asarray(self.values, dtype=np.uint64 if beyond else None)

    @property
    def names(self) -> tuple[str, ...]:
        """The classes as text."""
        return tuple(str(value) for value in self.values)

    def encode(self, y: ArrayLike) -> NDArray[np.int64]:
        """Labels to class numbers; 1, 1.0 and "1" are the same label, and so are True and "TRUE".

        Raises:
            InputError: a label that is none of the classes.
        """
        labels = as_labels(y)
        numbers = {_key(value): k for k, value in enumerate(self.values)}
        unique, inverse = np.unique(labels, return_inverse=True)
        # A file of text says truth in words, and another in other ones.
        digits = set(numbers) <= set(_TRUTH)
        for digit, words in _TRUTH.items():
            spelled = (digit, *words)
            there = [numbers[text] for text in spelled[not digits :] if text in numbers]
            numbers = {**dict.fromkeys(spelled, there[0]), **numbers} if there else numbers
        missing = [value for value in unique.tolist() if _key(value) not in numbers]
        if missing:
            known = ", ".join(self.names[:8]) + (", ..." if len(self) > 8 else "")
            msg = f"label {missing[0]!r} was not among the training classes ({known})"
            raise InputError(msg)
        table = np.array([numbers[_key(value)] for value in unique.tolist()], dtype=np.int64)
        encoded: NDArray[np.int64] = table[inverse] if len(table) else np.empty(0, dtype=np.int64)
        return encoded

    def decode(self, numbers: NDArray[np.integer]) -> NDArray[Any]:
        """Class numbers to labels, in the type of the training labels."""
        decoded: NDArray[Any] = self.array[numbers]
        return decoded


def _key(value: Label) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def as_labels(y: Any) -> NDArray[Any]:
    """Labels as a flat NumPy array of numbers or text.

    Raises:
        InputError: not one label per example, a missing one, or what is no label.
    """
    return _flat(y, "y", mixed=False)


def as_groups(groups: Any) -> NDArray[Any]:
    """What must not be torn apart, in the same way; numbers among text are text.

    Raises:
        InputError: not one value per example, or a missing one.
    """
    return _flat(groups, "groups", mixed=True)


def _flat(y: Any, name: str, *, mixed: bool) -> NDArray[Any]:
    noun = _noun(name)
    labels = _as_array(y, name)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(f"{name} has shape {labels.shape}: one {noun} per example is needed")
    if labels.dtype.kind == "O":
        missing = np.array([_is_gap(value) for value in labels], dtype=bool)
        if missing.any():
            raise InputError(_missing(missing, name))
        labels = _of_one_kind(labels, name, mixed=mixed)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(_missing(~np.isfinite(labels), name))
    if labels.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} holds complex numbers")
    if labels.dtype.kind not in "biufU":
        raise InputError(f"{name} has type {labels.dtype}: {noun}s are whole numbers or text")
    return labels.astype(np.float64) if labels.dtype == np.longdouble else labels


def _as_array(y: Any, name: str) -> NDArray[Any]:
    """Values in an array, of objects where NumPy would make others of them."""
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        # NumPy has no bfloat16, and some have fewer bits still.
        values: NDArray[Any] = (y.double() if y.is_floating_point() else y).numpy()
        return values
    if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):
        raise InputError(_missing(np.any(np.ma.getmaskarray(y).reshape(len(y), -1), axis=1), name))
    if not isinstance(y, list | tuple):
        return np.asarray(y)
    y = [value.item() if isinstance(value, Tensor) and value.ndim == 0 else value for value in y]
    try:
        labels = np.asarray(y)
    except (ValueError, RuntimeError) as error:
        msg = f"{name} holds lists of different lengths: one {_noun(name)} per example is needed"
        raise InputError(msg) from error
    # A gap or a number among text becomes text, whole numbers of 64 bits are rounded.
    kinds: dict[str, type | UnionType] = {"U": str, "f": float | np.floating}
    kind = kinds.get(labels.dtype.kind)
    if labels.ndim == 1 and kind is not None and not all(isinstance(v, kind) for v in y):
        labels = np.empty(len(y), dtype=object)
        labels[:] = y
    return labels


def _of_one_kind(labels: NDArray[Any], name: str, *, mixed: bool) -> NDArray[Any]:
    """Objects as truth values, whole numbers, numbers or text.

    Raises:
        InputError: some are of another kind than others, or no labels at all.
    """

    def all_are(kind: type | UnionType) -> bool:
        return all(isinstance(value, kind) for value in labels)

    if all_are(bool | np.bool_):
        return labels.astype(bool)
    if all_are(str):
        return labels.astype(str)
    try:
        if all_are(int | np.integer):
            beyond = any(value > np.iinfo(np.int64).max for value in labels)
            return labels.astype(np.uint64 if beyond else np.int64)
        if all_are(int | float | np.number):
            return labels.astype(np.float64)
    except OverflowError as error:
        msg = f"{name} holds whole numbers beyond 64 bits: make text of them"
        raise InputError(msg) from error
    if mixed:
        return np.array([str(value) for value in labels])
    odd = next((value for value in labels if not isinstance(value, _PLAIN)), None)
    if odd is not None:
        msg = f"{name} holds cells of type {type(odd).__name__}"
    else:
        number = next(value for value in labels if not isinstance(value, str))
        text = next(value for value in labels if isinstance(value, str))
        msg = f"{name} holds both {text!r} and {number!r}"
    raise InputError(f"{msg}: labels are all numbers or all text")


def _is_gap(value: Any) -> bool:
    """None, NaN, NaT, and pandas' NA, the only one that cannot be compared."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError, RuntimeError):
        return not hasattr(value, "__len__")


def _missing(where: NDArray[np.bool_], name: str) -> str:
    rows = np.flatnonzero(where)
    count = f"{len(rows)} missing {_noun(name)}s"
    return f"{name} has {count}, the first at row {rows[0]}: leave those rows out"


def _noun(name: str) -> str:
    return "label" if name == "y" else "value"

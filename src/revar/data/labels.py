"""Labels of any kind to class numbers and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from revar.errors import InputError

Label = str | int | float | bool
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
    def names(self) -> tuple[str, ...]:
        """The classes as text."""
        return tuple(str(value) for value in self.values)

    def encode(self, y: ArrayLike) -> NDArray[np.int64]:
        """Labels to class numbers; 1, 1.0 and "1" are the same label.

        Raises:
            InputError: a label that is none of the classes.
        """
        labels = as_labels(y)
        numbers = {_key(value): k for k, value in enumerate(self.values)}
        unique, inverse = np.unique(labels, return_inverse=True)
        if labels.dtype.kind == "b":
            # A file of text says them in words.
            for word in (False, True):
                for text in (str(word), str(word).lower(), str(word).upper()):
                    if text in numbers:
                        numbers.setdefault(_key(word), numbers[text])
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
        decoded: NDArray[Any] = np.asarray(self.values)[numbers]
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
        InputError: not one label per example, or a missing one.
    """
    if hasattr(y, "detach"):
        y = y.detach().cpu().numpy()
    if isinstance(y, list | tuple) and any(v is None or v != v for v in y if _is_plain(v)):
        # Among text numpy would make "nan" of it.
        y = np.asarray(y, dtype=object)
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(f"y has shape {labels.shape}: one label per example is needed")
    if labels.dtype.kind == "O":
        missing = np.array([_is_gap(value) for value in labels], dtype=bool)
        if missing.any():
            raise InputError(_missing(missing))
        if all(isinstance(value, bool | np.bool_) for value in labels):
            return labels.astype(bool)
        if all(isinstance(value, int | np.integer) for value in labels):
            return labels.astype(np.int64)
        if not all(isinstance(value, int | float | np.number) for value in labels):
            return labels.astype(str)
        labels = labels.astype(np.float64)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(_missing(~np.isfinite(labels)))
    if labels.dtype.kind == "c":
        raise InputError("Complex data not supported: y holds complex numbers")
    if labels.dtype.kind not in "biufU":
        raise InputError(f"y has type {labels.dtype}: labels are whole numbers or text")
    return labels


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, float)


def _is_gap(value: Any) -> bool:
    """None, NaN, NaT, and pandas' NA, the only one that cannot be compared."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def _missing(where: NDArray[np.bool_]) -> str:
    rows = np.flatnonzero(where)
    return f"y has {len(rows)} missing labels, the first at row {rows[0]}: leave those rows out"

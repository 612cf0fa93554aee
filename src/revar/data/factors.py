"""How much classes and examples are to count, as users say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from revar.data.labels import Classes
from revar.errors import InputError


def class_factors(wanted: Any, labels: NDArray[Any]) -> Any:
    """As the recipe keeps them: ``balanced``, or a factor per class in the order of the classes.

    Args:
        wanted: none, ``balanced``, or a dictionary from label to factor; 1 for what is not in it.
        labels: of the training set.

    Raises:
        InputError: none of these, a factor that is no number, or two for one class.
    """
    if wanted is None or (isinstance(wanted, str) and wanted == "balanced"):
        return wanted
    if not isinstance(wanted, Mapping):
        raise InputError(f"class_weight is {wanted!r}: None, balanced or a dictionary is needed")
    classes = Classes.of(labels)
    given: dict[int, Any] = {}
    factors = [1.0] * len(classes)
    for label, factor in wanted.items():
        try:
            number = int(classes.encode([label])[0])
        except InputError as error:
            raise InputError(f"class_weight: {error}") from error
        if number in given:
            msg = f"class_weight has two factors for one class, {given[number]!r} and {label!r}"
            raise InputError(f"{msg}: leave one out")
        given[number] = label
        factors[number] = _number(label, factor)
    return tuple(factors)


def _number(label: Any, factor: Any) -> float:
    try:
        if isinstance(factor, str):
            raise TypeError
        return float(factor)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        msg = f"class_weight of {label!r} is {factor!r}: a number is needed"
        raise InputError(msg) from error


def example_weights(given: Any) -> NDArray[np.float64] | None:
    """[n] a weight per example, or none.

    Raises:
        InputError: what holds no numbers, or more than one per example.
    """
    if given is None:
        return None
    if isinstance(given, list | tuple):
        given = [value.item() if _is_single(value) else value for value in given]
    elif isinstance(given, Tensor):
        given = given.detach().cpu().double().numpy()
    if np.ma.is_masked(given):
        raise InputError("sample_weight holds masked values: fill them, or leave those rows out")
    try:
        weights = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        msg = f"sample_weight holds something else than numbers, one per example: {error}"
        raise InputError(" ".join(msg.split())) from error
    if weights.ndim != 1:
        raise InputError(f"sample_weight has shape {weights.shape}: one per example needed")
    return weights


def _is_single(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0

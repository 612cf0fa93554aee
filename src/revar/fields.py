"""Fields of frozen dataclasses: checked when made, read from text, written to JSON.

This is the only room that knows pydantic.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from revar.errors import InputError, unknown

_D = TypeVar("_D")
_ADAPTERS: dict[tuple[Any, str], TypeAdapter[Any]] = {}


def hints(cls: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass, by name."""
    resolved = get_type_hints(cls)
    return {field.name: resolved[field.name] for field in dataclasses.fields(cls) if field.init}


def _adapter(cls: Any, name: str) -> TypeAdapter[Any]:
    if (cls, name) not in _ADAPTERS:
        _ADAPTERS[cls, name] = TypeAdapter(hints(cls)[name])
    return _ADAPTERS[cls, name]


def _wanted(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return "numbers parted by commas"
    options = [arg for arg in get_args(hint) if arg is not type(None)]
    if options and type(None) in get_args(hint):
        return " or ".join(map(_wanted, options)) + " or none"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(
        hint, str(hint)
    )


def check(instance: Any) -> None:
    """Refuse a dataclass one of whose fields has the wrong type.

    Raises:
        InputError: naming the field, its value and what it takes.
    """
    cls = type(instance)
    for name, hint in hints(cls).items():
        value = getattr(instance, name)
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            # A NumPy scalar, as a grid search hands them over.
            value = value.item()
        if dataclasses.is_dataclass(value):
            continue
        try:
            checked = _adapter(cls, name).validate_python(value, strict=True)
        except ValidationError as error:
            msg = f"{cls.__name__}: {name} is {value!r}, it must be {_wanted(hint)}"
            raise InputError(msg) from error
        if isinstance(checked, float) and not math.isfinite(checked):
            raise InputError(f"{cls.__name__}: {name} is {value!r}, it must be a finite number")
        # 1 for a float becomes 1.0, so that equal instances are written alike.
        object.__setattr__(instance, name, checked)


def require(condition: bool, owner: object, name: str, rule: str) -> None:
    """Refuse a field whose value is out of range: what it must do, if the condition is false."""
    if not condition:
        value = getattr(owner, name)
        raise InputError(f"{type(owner).__name__}: {name} is {value!r}, it must {rule}")


def parse(cls: Any, name: str, text: str) -> Any:
    """The value of a field from what a user typed.

    Raises:
        InputError: no such field, or the text is not of its type.
    """
    types = hints(cls)
    if name not in types:
        raise unknown("field", name, types)
    optional = type(None) in get_args(types[name])
    if optional and text.lower() in ("none", "null", ""):
        return None
    several = any(get_origin(arg) is tuple for arg in get_args(types[name])) and "," in text
    try:
        if several:
            return _adapter(cls, name).validate_python(tuple(text.split(",")))
        return _adapter(cls, name).validate_strings(text, strict=False)
    except ValidationError as error:
        msg = f'{cls.__name__}: {name}="{text}", it must be {_wanted(types[name])}'
        raise InputError(msg) from error


def to_json(value: Any) -> Any:
    """A dataclass as plain JSON values, whatever it is made of."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in hints(type(value))}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def from_json(cls: type[_D], data: dict[str, Any]) -> _D:
    """The dataclass that `to_json` wrote; unknown keys are refused.

    Raises:
        InputError: an unknown or missing key, or a value of the wrong type.
    """
    types = hints(cls)
    for key in data:
        if key not in types:
            raise unknown(f"field of {cls.__name__}", key, types)
    values = {}
    for name, value in data.items():
        hint = types[name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            values[name] = from_json(hint, value)
            continue
        try:
            values[name] = _adapter(cls, name).validate_python(value)
        except ValidationError as error:
            msg = f"{cls.__name__}: {name} is {value!r}, it must be {_wanted(hint)}"
            raise InputError(msg) from error
    try:
        return cls(**values)
    except TypeError as error:
        raise InputError(f"{cls.__name__}: {error}") from error

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from revar import fields
from revar.errors import InputError
from revar.methods.erm import ERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A part of another."""

    depth: int = 2
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fields.check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A field of every kind."""

    count: int = 3
    rate: float = 0.5
    limit: float | None = None
    size: int | None = 4
    kind: Literal["plain", "fancy"] = "plain"
    choice: Literal["auto"] | tuple[float, ...] | None = None
    fast: bool = False
    note: str | None = None
    inner: Inner = Inner()

    def __post_init__(self) -> None:
        fields.check(self)
        fields.require(self.count >= 1, self, "count", "be at least 1")


# --- what is refused


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("count", 2.5, "a whole number"),
        ("count", "3", "a whole number"),
        ("count", True, "a whole number"),
        ("count", None, "a whole number"),
        ("rate", "fast", "a number"),
        ("rate", True, "a number"),
        ("limit", "none", "a number or none"),
        ("size", 4.0, "a whole number or none"),
        ("kind", "odd", "one of plain, fancy"),
        ("choice", "automatic", "one of auto or numbers parted by commas or none"),
        ("choice", [1.0, 2.0], "one of auto or numbers parted by commas or none"),
        ("fast", 1, "true or false"),
        ("fast", "true", "true or false"),
        ("note", 3, "text or none"),
    ],
)
def test_a_wrong_type_names_the_field_the_value_and_what_is_wanted(
    name: str, value: Any, wanted: str
) -> None:
    shown = repr(value).replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(InputError, match=rf"^Example: {name} is {shown}, it must be {wanted}$"):
        Example(**{name: value})


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"entropy is (-?inf|nan), it must be a finite number"):
        ERM(entropy=value)


def test_a_value_out_of_range_names_the_rule() -> None:
    with pytest.raises(InputError, match=r"^Example: count is 0, it must be at least 1$"):
        Example(count=0)


# --- what is taken


@pytest.mark.parametrize(
    ("name", "given_", "kept"),
    [
        ("count", np.int64(5), 5),
        ("count", np.uint8(5), 5),
        ("count", np.array(5), 5),
        ("count", torch.tensor(5), 5),
        ("rate", np.float32(0.25), 0.25),
        ("rate", np.float64(0.25), 0.25),
        ("rate", 1, 1.0),
        ("rate", np.int64(1), 1.0),
        ("limit", np.float64(2), 2.0),
        ("fast", np.bool_(True), True),
        ("note", np.str_("hi"), "hi"),
        ("choice", (1, 2), (1.0, 2.0)),
    ],
)
def test_numbers_of_any_make_are_kept_as_plain_ones(name: str, given_: Any, kept: Any) -> None:
    value = getattr(Example(**{name: given_}), name)
    assert value == kept
    if name == "choice":
        assert [type(item) for item in value] == [float, float]
    elif name != "note":
        assert type(value) is type(kept)


def test_a_numpy_number_of_the_wrong_kind_is_still_refused() -> None:
    with pytest.raises(InputError, match=r"count is 2\.5"):
        Example(count=np.float64(2.5))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="count is"):
        Example(count=np.array([1, 2]))  # type: ignore[arg-type]


def test_equal_instances_are_written_alike() -> None:
    one, two = Example(rate=1, limit=np.float64(2)), Example(rate=1.0, limit=2)
    assert one == two
    assert repr(fields.to_json(one)) == repr(fields.to_json(two))


# --- from text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "7", 7),
        ("rate", "0.5", 0.5),
        ("rate", "1e-3", 0.001),
        ("rate", "2", 2.0),
        ("limit", "none", None),
        ("limit", "None", None),
        ("limit", "null", None),
        ("limit", "", None),
        ("limit", "3", 3.0),
        ("size", "12", 12),
        ("kind", "fancy", "fancy"),
        ("choice", "auto", "auto"),
        ("fast", "true", True),
        ("fast", "false", False),
        ("note", "none", None),
        ("note", "hello there", "hello there"),
    ],
)
def test_text_is_read_by_the_type_of_its_field(name: str, text: str, value: Any) -> None:
    got = fields.parse(Example, name, text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("count", "none", "a whole number"),
        ("count", "2.5", "a whole number"),
        ("count", "many", "a whole number"),
        ("rate", "half", "a number"),
        ("rate", "none", "a number"),
        ("size", "4.5", "a whole number or none"),
        ("kind", "Fancy", "one of plain, fancy"),
        ("fast", "perhaps", "true or false"),
    ],
)
def test_text_of_another_type_is_refused(name: str, text: str, wanted: str) -> None:
    with pytest.raises(InputError, match=f'^Example: {name}="{text}", it must be {wanted}$'):
        fields.parse(Example, name, text)


def test_text_for_an_unknown_field_gets_the_nearest() -> None:
    with pytest.raises(InputError, match='unknown field "cuont": did you mean "count"'):
        fields.parse(Example, "cuont", "3")


# --- to and from JSON

EXAMPLES = st.builds(
    Example,
    count=st.integers(1, 100),
    rate=st.floats(allow_nan=False, allow_infinity=False),
    limit=st.none() | st.floats(-1e9, 1e9),
    size=st.none() | st.integers(),
    kind=st.sampled_from(["plain", "fancy"]),
    choice=st.one_of(st.none(), st.just("auto"), st.lists(st.floats(0, 9), max_size=4).map(tuple)),
    fast=st.booleans(),
    note=st.none() | st.text(max_size=8),
    inner=st.builds(
        Inner, depth=st.integers(), names=st.lists(st.text(max_size=3), max_size=3).map(tuple)
    ),
)


@given(EXAMPLES)
def test_what_is_written_is_read_back_equal(example: Example) -> None:
    data = fields.to_json(example)
    assert fields.from_json(Example, data) == example
    assert plain(data)


def plain(value: Any) -> bool:
    """Whether JSON has a word for it."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (bool, int, float, str)


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match='unknown field of Example "cuont": did you mean "count"'):
        fields.from_json(Example, {"cuont": 3})
    with pytest.raises(InputError, match='unknown field of Inner "dept": did you mean "depth"'):
        fields.from_json(Example, {"inner": {"dept": 3}})


def test_a_wrong_value_is_refused_with_what_is_wanted() -> None:
    with pytest.raises(InputError, match="Example: kind is 'odd', it must be one of plain, fancy"):
        fields.from_json(Example, {"kind": "odd"})
    with pytest.raises(InputError, match="Example: count is 0, it must be at least 1"):
        fields.from_json(Example, {"count": 0})


def test_keys_left_out_take_their_defaults_where_there_are_any() -> None:
    assert fields.from_json(Example, {}) == Example()

    @dataclass(frozen=True)
    class Needs:
        name: str

    with pytest.raises(InputError, match=r"Needs: .*missing.*name"):
        fields.from_json(Needs, {})


def test_hints_are_the_fields_in_their_order() -> None:
    assert list(fields.hints(Inner)) == ["depth", "names"]
    assert fields.hints(Inner)["depth"] is int

from __future__ import annotations

import json
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from revar import fields
from revar.data.frames import Column, FrameInputs
from revar.errors import DataWarning, InputError


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [30, 40, 50, 70],
            "pressure": [1.5, np.nan, 2.5, 3.5],
            "ward": ["a", "b", "b", None],
            "smokes": [True, False, True, True],
            "grade": pd.Categorical(
                ["low", "high", "low", "low"], categories=["low", "mid", "high"]
            ),
        }
    )


def column(stored: FrameInputs, encoded: Tensor, name: str) -> list[list[float]]:
    """The numbers that one column of the frame became."""
    start = 0
    for known in stored.columns:
        if known.name == name:
            part: list[list[float]] = encoded[:, start : start + known.width].tolist()
            return part
        start += known.width
    raise AssertionError(name)


def test_columns_are_described_by_kind() -> None:
    assert FrameInputs.fit(frame()).columns == (
        Column(name="age", median=45.0),
        Column(name="pressure", median=2.5, indicator=True),
        Column(name="ward", categories=("b", "a")),
        Column(name="smokes", median=1.0),
        Column(name="grade", categories=("low", "high")),
    )


def test_every_cell_becomes_the_numbers_it_should() -> None:
    stored = FrameInputs.fit(frame())
    encoded = stored.encode(frame())
    assert encoded.dtype == torch.float32
    assert encoded.tolist() == [
        [30, 1.5, 0, 0, 1, 0, 1, 1, 0, 0],
        [40, 2.5, 1, 1, 0, 0, 0, 0, 1, 0],
        [50, 2.5, 0, 1, 0, 0, 1, 1, 0, 0],
        [70, 3.5, 0, 0, 0, 1, 1, 1, 0, 0],
    ]
    assert stored.shape == (10,)
    assert stored.image_shape is None


def test_the_description_survives_json() -> None:
    stored = FrameInputs.fit(frame())
    assert fields.from_json(FrameInputs, fields.to_json(stored)) == stored


def test_gaps_take_the_training_median_not_their_own() -> None:
    stored = FrameInputs.fit(pd.DataFrame({"a": [1.0, np.nan, 3.0, 100.0]}))
    got = stored.encode(pd.DataFrame({"a": [np.nan, 7.0, 9.0]}))
    assert got.tolist() == [[3, 1], [7, 0], [9, 0]]


def test_a_gap_that_training_never_saw_is_imputed_without_an_indicator() -> None:
    stored = FrameInputs.fit(pd.DataFrame({"a": [1.0, 2.0, 9.0]}))
    assert stored.encode(pd.DataFrame({"a": [np.nan, 4.0]})).tolist() == [[2], [4]]


def test_a_column_of_gaps_alone_is_zero_with_an_indicator() -> None:
    with pytest.warns(DataWarning, match='column "a" is missing in every training row'):
        stored = FrameInputs.fit(pd.DataFrame({"a": [np.nan, np.nan]}))
    assert stored.encode(pd.DataFrame({"a": [np.nan, 4.0]})).tolist() == [[0, 1], [4, 0]]


@pytest.mark.parametrize("kind", ["Int64", "Float64", "boolean"])
def test_nullable_columns_are_numbers_with_gaps(kind: str) -> None:
    values = pd.array([1, None, 0, 1], dtype=kind)  # type: ignore[call-overload]
    stored = FrameInputs.fit(pd.DataFrame({"a": values}))
    assert stored.columns == (Column(name="a", median=1.0, indicator=True),)
    assert stored.encode(pd.DataFrame({"a": values})).tolist() == [[1, 0], [1, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize("kind", ["object", "str", "string", "category"])
def test_missing_text_of_any_kind_falls_into_the_other_place(kind: str) -> None:
    values = pd.Series(["x", None, "x", "y"]).astype(kind)  # type: ignore[call-overload]
    stored = FrameInputs.fit(pd.DataFrame({"a": values}))
    assert stored.columns == (Column(name="a", categories=("x", "y")),)
    got = stored.encode(pd.DataFrame({"a": values}))
    assert got.argmax(1).tolist() == [0, 2, 0, 1]
    assert got.sum(1).tolist() == [1, 1, 1, 1]


def test_pandas_own_missing_value_in_a_column_of_objects_is_a_gap() -> None:
    values = pd.Series(["x", pd.NA, "y"], dtype=object)
    stored = FrameInputs.fit(pd.DataFrame({"a": values}))
    assert stored.encode(pd.DataFrame({"a": values})).argmax(1).tolist() == [0, 2, 1]


def test_unseen_categories_fall_into_the_other_place() -> None:
    stored = FrameInputs.fit(pd.DataFrame({"a": ["x", "x", "y"]}))
    got = stored.encode(pd.DataFrame({"a": ["z", "y", "X", ""]}))
    assert got.argmax(1).tolist() == [2, 1, 2, 2]


def test_whole_numbers_are_the_same_category_as_integers_floats_and_text() -> None:
    """A gap turns pandas' integers into floats; that must not make every category unseen."""
    with_gap = pd.DataFrame({"a": pd.Categorical([1, 2, 1, None])})
    without = pd.DataFrame({"a": pd.Categorical([1, 2, 1])})
    for trained, given in ((with_gap, without), (without, with_gap)):
        got = FrameInputs.fit(trained).encode(given).argmax(1).tolist()
        assert got[:3] == [0, 1, 0]
    mixed = FrameInputs.fit(pd.DataFrame({"a": ["1.0", "2", "n/a", "-3.50"]}))
    assert set(mixed.columns[0].categories) == {"1", "2", "n/a", "-3.50"}
    numbers = mixed.encode(pd.DataFrame({"a": [1.0, 2.0, np.nan]})).argmax(1).tolist()
    assert numbers == mixed.encode(pd.DataFrame({"a": ["1", "2.0", None]})).argmax(1).tolist()
    assert numbers[2] == 4
    assert len(set(numbers)) == 3


def test_only_the_most_frequent_categories_have_a_place_of_their_own() -> None:
    often = [f"often {i}" for i in range(64)]
    stored = FrameInputs.fit(pd.DataFrame({"a": [*often, *often, "once", "once too"]}))
    assert stored.shape == (65,)
    assert set(stored.columns[0].categories) == set(often)
    got = stored.encode(pd.DataFrame({"a": ["once", "often 7", "never"]}))
    assert got.argmax(1).tolist() == [64, stored.columns[0].categories.index("often 7"), 64]


def test_the_order_of_categories_does_not_depend_on_the_order_of_rows() -> None:
    one = FrameInputs.fit(pd.DataFrame({"a": ["b", "a", "c", "c"]}))
    assert one == FrameInputs.fit(pd.DataFrame({"a": ["c", "a", "b", "c"]}))
    assert one.columns[0].categories == ("c", "a", "b")


def test_columns_in_another_order_and_columns_too_many_change_nothing() -> None:
    stored = FrameInputs.fit(frame())
    shuffled = frame()[["grade", "smokes", "ward", "age", "pressure"]]
    shuffled.insert(2, "comment", ["x", "y", "z", "w"])
    assert torch.equal(stored.encode(shuffled), stored.encode(frame()))


def test_rows_are_encoded_by_position_whatever_the_index_says() -> None:
    stored = FrameInputs.fit(frame())
    other = frame().set_index(pd.Index([9, 9, 3, -1]))
    assert torch.equal(stored.encode(other), stored.encode(frame()))
    reversed_rows = stored.encode(frame().iloc[::-1])
    assert torch.equal(reversed_rows, stored.encode(frame()).flip(0))


def test_a_missing_column_is_named_with_the_columns_that_are_needed() -> None:
    stored = FrameInputs.fit(frame())
    with pytest.raises(
        InputError, match=r'column "ward" is missing: .*age, pressure, ward, smokes'
    ):
        stored.encode(frame().drop(columns=["ward", "grade"]))


def test_an_array_is_refused_where_names_are_needed() -> None:
    with pytest.raises(InputError, match="give a pandas frame"):
        FrameInputs.fit(frame()).encode(np.zeros((2, 5)))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_is_refused_when_fitted_and_when_encoded(value: float) -> None:
    bad = pd.DataFrame({"a": [1.0, 2.0, value]})
    with pytest.raises(InputError, match='column "a" holds infinity, first in row 2'):
        FrameInputs.fit(bad)
    with pytest.raises(InputError, match='column "a" holds infinity, first in row 2'):
        FrameInputs.fit(bad.iloc[:2]).encode(bad)


def test_values_beyond_float32_are_refused() -> None:
    with pytest.raises(InputError, match='column "a" holds values too large'):
        FrameInputs.fit(pd.DataFrame({"a": [1.0, -1e39]}))


def test_text_in_a_column_of_numbers_is_refused_and_numerals_are_read() -> None:
    stored = FrameInputs.fit(pd.DataFrame({"a": [1.0, 2.0]}))
    assert stored.encode(pd.DataFrame({"a": ["3", "4.5"]})).tolist() == [[3], [4.5]]
    with pytest.raises(InputError, match=r'column "a" holds text .*"?high"?.*it was numeric'):
        stored.encode(pd.DataFrame({"a": ["3", "high"]}))


def test_dates_are_refused_with_a_way_out() -> None:
    with pytest.raises(InputError, match='column "seen" holds dates: turn it into numbers'):
        FrameInputs.fit(pd.DataFrame({"seen": pd.to_datetime(["2020-01-01", "2021-01-01"])}))


def test_tables_without_columns_or_with_two_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="no columns"):
        FrameInputs.fit(pd.DataFrame(index=[0, 1]))
    twice = pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    with pytest.raises(InputError, match='two columns named "a"'):
        FrameInputs.fit(twice)


def test_a_doubled_column_is_refused_when_it_is_needed() -> None:
    stored = FrameInputs.fit(pd.DataFrame({"a": [1.0, 2.0]}))
    two = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "b"])
    assert stored.encode(two).tolist() == [[1]]
    with pytest.raises(InputError, match='two columns named "a"'):
        stored.encode(two.set_axis(["a", "b", "a"], axis=1))


def objects(*values: Any) -> pd.DataFrame:
    """A column of objects, as they are."""
    cells = np.empty(len(values), dtype=object)
    cells[:] = values
    return pd.DataFrame({"a": pd.Series(cells, dtype=object)})


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ((1, 2.5, None), [[1, 0], [2.5, 0], [1.75, 1]]),
        ((Decimal("1.5"), Fraction(1, 2), np.float32(2)), [[1.5], [0.5], [2]]),
        ((True, np.bool_(False), pd.NA), [[1, 0], [0, 0], [0.5, 1]]),
        ((1, pd.NaT, np.nan), [[1, 0], [1, 1], [1, 1]]),
    ],
)
def test_numbers_in_a_column_of_objects_are_numbers(values: Any, numbers: Any) -> None:
    stored = FrameInputs.fit(objects(*values))
    assert stored.encode(objects(*values)).tolist() == numbers
    plain = FrameInputs.fit(pd.DataFrame({"a": [9.0, np.nan]}))
    assert plain.encode(objects(*values))[0].tolist() == [numbers[0][0], 0]


def test_objects_that_no_float_holds_are_refused() -> None:
    with pytest.raises(InputError, match='column "a" holds values too large'):
        FrameInputs.fit(objects(10**400, 1))


def test_text_that_spells_a_gap_is_no_number() -> None:
    with pytest.raises(InputError, match="holds text"):
        FrameInputs.fit(pd.DataFrame({"a": [1.0, 2.0]})).encode(objects("None", "1"))


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ((date(2020, 1, 1), None), "dates: turn it into numbers, such as days"),
        ((pd.Timestamp("2020-01-01"), "b"), "dates: "),
        ((timedelta(1), timedelta(2)), "durations: turn it into numbers, such as seconds"),
        ((np.timedelta64(1, "s"), 1), "durations: "),
        ((pd.Period("2020"), None), "periods: turn it into numbers, such as months"),
        ((time(1), time(2)), "times: "),
        (([1], [2]), "cells of type list: turn it into columns"),
        (({"b": 1}, "c"), "cells of type dict"),
        ((1j, 2), "complex numbers: "),
    ],
)
def test_what_is_neither_number_nor_category_is_refused(values: Any, what: str) -> None:
    with pytest.raises(InputError, match=f'column "a" holds {what}'):
        FrameInputs.fit(objects(*values))
    fitted = FrameInputs.fit(pd.DataFrame({"a": [1.0, 2.0]}))
    with pytest.raises(InputError, match=r'column "a" holds .*: it held numbers in training'):
        fitted.encode(objects(*values))


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (pd.to_timedelta([1, 2]), "durations"),
        (pd.period_range("2020", periods=2), "periods"),
        (np.array(["NaT", "NaT"], dtype="M8[s]"), "dates"),
        (np.array([1j, 2j]), "complex numbers"),
    ],
)
def test_columns_of_such_types_are_refused_as_well(values: Any, what: str) -> None:
    with pytest.raises(InputError, match=f'column "a" holds {what}: '):
        FrameInputs.fit(pd.DataFrame({"a": values}))


def test_a_column_without_a_value_is_said() -> None:
    with pytest.warns(DataWarning, match='column "a" is missing in every training row'):
        stored = FrameInputs.fit(objects(None, None))
    assert stored.encode(objects("b", None)).tolist() == [[1], [1]]


def test_columns_may_be_named_by_numbers() -> None:
    stored = FrameInputs.fit(pd.DataFrame([[1.0, 2.0], [3.0, 4.0]]))
    assert [known.name for known in stored.columns] == ["0", "1"]
    assert stored.encode(pd.DataFrame({1: [7.0], 0: [8.0]})).tolist() == [[8, 7]]
    assert stored.encode(pd.DataFrame({"1": [7.0], "0": [8.0]})).tolist() == [[8, 7]]


def test_no_rows_encode_to_no_rows() -> None:
    stored = FrameInputs.fit(frame())
    assert stored.encode(frame().iloc[:0]).shape == (0, 10)


def test_truth_is_the_same_in_every_spelling() -> None:
    """What reads a file makes truth values of words, or does not."""
    text = pd.DataFrame({"ill": ["TRUE", "FALSE", "TRUE", "maybe"]})
    fitted = FrameInputs.fit(text)
    expected = fitted.encode(text)
    for spelling in (["true", "false", "true", "maybe"], [True, False, True, "maybe"]):
        assert fitted.encode(pd.DataFrame({"ill": spelling})).equal(expected)
    older = FrameInputs(columns=(Column(name="ill", categories=("TRUE", "FALSE")),))
    assert older.encode(text[:2]).tolist() == [[1, 0, 0], [0, 1, 0]]
    numbers = FrameInputs.fit(pd.DataFrame({"ill": [True, False, True]}))
    assert numbers.encode(pd.DataFrame({"ill": ["True", "FALSE"]})).tolist() == [[1], [0]]


@pytest.mark.parametrize("values", [pd.to_datetime(["2020-01-01"]), np.array([1j])])
def test_what_is_no_number_is_not_taken_for_one(values: Any) -> None:
    fitted = FrameInputs.fit(pd.DataFrame({"a": [1.0, 2.0]}))
    with pytest.raises(InputError, match='column "a" has type'):
        fitted.encode(pd.DataFrame({"a": values}))


def test_numbers_that_lie_close_together_and_far_from_zero_keep_their_digits() -> None:
    near = np.linspace(0.0, 20.0, 41)
    gaps = near + 1e9
    gaps[3] = np.nan
    frame = pd.DataFrame({"near": near, "far": near + 1e9, "gaps": gaps, "even": np.full(41, 1e9)})
    inputs = FrameInputs.fit(frame)
    assert [column.offset for column in inputs.columns] == [0.0, 1e9 + 10.0, 1e9 + 10.25, 0.0]
    found = inputs.encode(frame).double().numpy()
    np.testing.assert_allclose(found[:, 1], near - 10.0, atol=1e-5)
    assert found[3, 2] == 0.0
    described = fields.from_json(FrameInputs, json.loads(json.dumps(fields.to_json(inputs))))
    assert described == inputs


def test_what_rounding_makes_of_one_number_is_one_number() -> None:
    frame = pd.DataFrame(
        {"same": [0.1 + 0.2, 0.3] * 10, "other": [1e9 + 0.1 + 0.2, 1e9 + 0.3] * 10}
    )
    inputs = FrameInputs.fit(frame)
    assert [column.offset for column in inputs.columns] == [0.0, 0.0]
    assert (inputs.encode(frame).std(0) == 0).all()


def test_a_description_from_before_there_were_offsets_is_read() -> None:
    inputs = FrameInputs.fit(pd.DataFrame({"near": [1.0, 2.0]}))
    data = fields.to_json(inputs)
    for column in data["columns"]:
        del column["offset"]
    assert fields.from_json(FrameInputs, data) == inputs

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from revar import fields
from revar.data.labels import Classes, as_groups, as_labels
from revar.errors import InputError


@pytest.mark.parametrize(
    ("y", "values"),
    [
        ([3, 1, 3, 7], (1, 3, 7)),
        ([-1, 1], (-1, 1)),
        ([2.0, 0.0, 2.0], (0.0, 2.0)),
        (["dog", "cat", "dog"], ("cat", "dog")),
        ([True, False, True], (False, True)),
        (np.array([5, 200], dtype=np.uint8), (5, 200)),
        (np.array([1.0, 2.0], dtype=np.float32), (1.0, 2.0)),
        (np.array([1, 2], dtype=object), (1, 2)),
        (np.array([1.0, 2.0], dtype=object), (1.0, 2.0)),
        (np.array([True, False], dtype=object), (False, True)),
        (np.array([1, 2**64 - 1], dtype=np.uint64), (1, 2**64 - 1)),
        (np.array([1, 2**64 - 1], dtype=object), (1, 2**64 - 1)),
        ([1, 2**64 - 1], (1, 2**64 - 1)),
        (torch.tensor([1.0, 0.0]).bfloat16(), (0.0, 1.0)),
        ([torch.tensor(1.0, requires_grad=True), torch.tensor(0.0)], (0.0, 1.0)),
        (np.array([1, 2], dtype=np.longdouble), (1.0, 2.0)),
        (pd.Series(["b", "a"]), ("a", "b")),
        (pd.Series(["b", "a"], dtype="category"), ("a", "b")),
        (pd.Series([2, 1], dtype="Int64"), (1, 2)),
        (pd.Series([True, False], dtype="boolean"), (False, True)),
        (torch.tensor([4, 2, 4]), (2, 4)),
        (np.array([[1], [0]]), (0, 1)),
    ],
)
def test_labels_of_any_kind_are_sorted_classes_of_plain_values(
    y: Any, values: tuple[Any, ...]
) -> None:
    classes = Classes.of(y)
    assert classes.values == values
    assert [type(value) for value in classes.values] == [type(value) for value in values]
    assert len(classes) == len(values)
    assert fields.from_json(Classes, fields.to_json(classes)) == classes


# Of more than that, most must occur twice.
_LABELS = st.one_of(
    st.lists(st.integers(-(2**40), 2**40), min_size=2, max_size=19),
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=5),
        min_size=2,
        max_size=19,
    ),
    st.lists(st.booleans(), min_size=2, max_size=19),
    st.lists(st.integers(-999, 999).map(float), min_size=2, max_size=19),
).filter(lambda y: len(set(y)) >= 2)


@given(_LABELS)
def test_encoding_and_decoding_gives_the_labels_back(y: list[Any]) -> None:
    classes = Classes.of(y)
    numbers = classes.encode(y)
    assert numbers.dtype == np.int64
    assert set(numbers.tolist()) == set(range(len(classes)))
    assert classes.decode(numbers).tolist() == y
    assert [classes.values[k] for k in numbers] == y


@given(_LABELS, st.randoms(use_true_random=False))
def test_the_order_of_classes_does_not_depend_on_the_order_of_rows(y: list[Any], rng: Any) -> None:
    shuffled = list(y)
    rng.shuffle(shuffled)
    assert Classes.of(shuffled) == Classes.of(y)


@pytest.mark.parametrize("trained", [[0, 1, 7], [0.0, 1.0, 7.0], ["0", "1", "7"]])
@pytest.mark.parametrize("given_", [[7, 1], [7.0, 1.0], ["7", "1"], np.array([7, 1], dtype=object)])
def test_a_whole_number_is_the_same_label_as_integer_float_and_text(
    trained: list[Any], given_: Any
) -> None:
    assert Classes.of(trained).encode(given_).tolist() == [2, 1]


def test_truth_values_are_zero_and_one() -> None:
    assert Classes.of([False, True]).encode([1, 0, 1.0]).tolist() == [1, 0, 1]
    assert Classes.of([0, 1]).encode([True, False]).tolist() == [1, 0]


def test_decoded_labels_have_the_type_of_the_training_labels() -> None:
    assert Classes.of([3, 1]).decode(np.array([1, 0])).dtype.kind == "i"
    assert Classes.of([3.0, 1.0]).decode(np.array([1, 0])).dtype.kind == "f"
    assert Classes.of(["a", "b"]).decode(np.array([1, 0])).tolist() == ["b", "a"]
    assert Classes.of([True, False]).decode(np.array([1, 0])).dtype.kind == "b"


def test_names_are_the_classes_as_text() -> None:
    assert Classes.of([10, 9]).names == ("9", "10")
    assert Classes.of([True, False]).names == ("False", "True")


def test_an_unseen_label_is_refused_with_the_classes() -> None:
    with pytest.raises(InputError, match=r"label 'emu' was not .*\(cat, dog\)"):
        Classes.of(["cat", "dog"]).encode(["dog", "emu"])
    with pytest.raises(InputError, match=r"label 2 was not .*\(0, 1, 3, 4, 5, 6, 7, 8, \.\.\.\)"):
        Classes.of([0, 1, *range(3, 20)]).encode([2])
    with pytest.raises(InputError, match=r"label 1\.5"):
        Classes.of([0, 1]).encode([1.0, 1.5])


def test_whole_numbers_of_64_bits_come_back_as_they_were() -> None:
    y = np.array([1, 2**64 - 1, 2**64 - 2], dtype=np.uint64)
    classes = Classes.of(y)
    assert classes.array.dtype == np.uint64
    assert classes.decode(classes.encode(y)).tolist() == y.tolist()
    assert classes.encode([1, 2**64 - 2]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (["a", 1], "y holds both 'a' and 1: labels are all numbers or all text"),
        (np.array([True, "a"], dtype=object), "y holds both 'a' and True"),
        ([10**30, 1], "y holds whole numbers beyond 64 bits: make text of them"),
        (np.array([10**400, 1.5], dtype=object), "beyond 64 bits"),
        (pd.Series([(1, 2), (3, 4)]).to_numpy(), "y holds cells of type tuple"),
        (pd.Series([torch.zeros(3)]).to_numpy(), "y holds cells of type Tensor"),
        ([[1], [1, 2]], "y holds lists of different lengths: one label per example"),
        (np.ma.array([1, 0, 1], mask=[False, True, False]), "1 missing labels, the first at row 1"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(y: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        as_labels(y)
    assert "\n" not in str(caught.value)


def test_groups_are_called_so_and_may_mix_numbers_and_text() -> None:
    assert as_groups(["a", 1, "a"]).tolist() == ["a", "1", "a"]
    assert as_groups(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [2**64 - 1]
    with pytest.raises(InputError, match="groups has 2 missing values, the first at row 0"):
        as_groups([None, None])
    with pytest.raises(InputError, match="groups has 1 missing values"):
        as_groups([1.0, np.nan])
    with pytest.raises(InputError, match=r"groups has shape \(2, 2\): one value per example"):
        as_groups(np.zeros((2, 2)))


def test_no_labels_encode_to_no_numbers() -> None:
    assert Classes.of([0, 1]).encode([]).shape == (0,)


@pytest.mark.parametrize(
    "y",
    [[0.5, 1.0, 2.0], np.array([0.5, 1.0], dtype=object), torch.tensor([0.5, 1.0])],
    ids=["floats", "objects", "tensor"],
)
def test_a_continuous_target_is_refused_with_an_example(y: Any) -> None:
    with pytest.raises(InputError, match=r"continuous \(it holds 0\.5\)"):
        Classes.of(y)


@pytest.mark.parametrize(
    ("y", "held"),
    [
        ([], "no labels"),
        (["a", "a"], "2 samples of one class, a"),
        ([3], "1 sample of one class, 3"),
    ],
)
def test_fewer_than_two_classes_are_refused(y: list[Any], held: str) -> None:
    with pytest.raises(InputError, match=f"{held}.*at least two classes"):
        Classes.of(y)


@pytest.mark.parametrize(
    "y",
    [
        [0.0, np.nan, 1.0, np.nan],
        [0.0, np.inf, 1.0, -np.inf],
        np.array(["a", None, "b", None], dtype=object),
        np.array(["a", np.nan, "b", pd.NA], dtype=object),
        pd.Series(["a", None, "b", None], dtype="string"),
        pd.Series([0, None, 1, None], dtype="Int64"),
        pd.Series(["a", None, "b", None], dtype="category"),
    ],
    ids=["nan", "infinity", "none", "mixed", "string", "Int64", "category"],
)
def test_missing_labels_are_counted_and_the_first_named(y: Any) -> None:
    with pytest.raises(InputError, match="2 missing labels, the first at row 1"):
        Classes.of(y)


@pytest.mark.parametrize("shape", [(3, 2), (2, 1, 1), ()])
def test_more_than_one_label_per_example_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="one label per example"):
        as_labels(np.zeros(shape, dtype=np.int64))


@pytest.mark.parametrize("y", [np.array([b"a", b"b"]), np.array(["2020"], "M8")])
def test_types_that_are_no_labels_are_refused(y: Any) -> None:
    with pytest.raises(InputError, match="labels are whole numbers or text"):
        as_labels(y)


def test_complex_labels_are_refused() -> None:
    with pytest.raises(InputError, match="Complex data not supported: y"):
        as_labels(np.array([1j, 2j]))


def test_a_target_with_hardly_a_label_twice_is_taken_for_a_mistake() -> None:
    names = [f"patient {i}" for i in range(15)]
    assert len(Classes.of(names)) == 15
    assert len(Classes.of([*names, *names[:5]])) == 15
    with pytest.raises(InputError, match="16 distinct labels in 20 examples: is it a name or a"):
        Classes.of([*names, "another", *names[:4]])


@pytest.mark.parametrize("words", [("False", "True"), ("FALSE", "TRUE"), ("false", "true")])
def test_truth_in_words_is_truth(words: tuple[str, str]) -> None:
    classes = Classes.of(np.array([words[0], words[1]] * 5))
    found = classes.encode(np.array([True, False, True]))
    assert classes.decode(found).tolist() == [words[1], words[0], words[1]]


def test_a_gap_in_a_list_of_text_is_no_label() -> None:
    for y in (["a", "b", float("nan")], ["a", None, "b"]):
        with pytest.raises(InputError, match="missing"):
            as_labels(y)

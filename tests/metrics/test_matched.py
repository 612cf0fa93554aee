from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from revar.metrics import accuracy_at_coverage, matched_set

# Six rows. "a" is surest of the first three, "b" of the last three.
SELECTORS = {"a": [1, 2, 3, 4, 5, 6], "b": [6, 5, 4, 3, 2, 1]}
CLASSIFIERS = {
    "a": [True, True, True, False, False, True],
    "b": [False, True, False, True, True, True],
}


def test_by_hand() -> None:
    assert matched_set(SELECTORS, CLASSIFIERS, coverage=0.5) == {
        "a": {"a": 1.0, "b": pytest.approx(1 / 3)},
        "b": {"a": pytest.approx(1 / 3), "b": 1.0},
    }


def test_at_full_coverage_the_selector_does_not_matter() -> None:
    assert matched_set(SELECTORS, CLASSIFIERS, coverage=1.0) == {
        "a": {"a": pytest.approx(4 / 6), "b": pytest.approx(4 / 6)},
        "b": {"a": pytest.approx(4 / 6), "b": pytest.approx(4 / 6)},
    }


def test_tied_rows_count_by_their_share() -> None:
    # Two of six: the first, and one of the three tied ones, of which "b" has two right.
    found = matched_set({"s": [1, 2, 2, 2, 5, 6]}, CLASSIFIERS, coverage=0.34)
    assert found["a"]["s"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["b"]["s"] == pytest.approx((0 + 2 / 3) / 2)


def test_weights_are_those_of_the_rows() -> None:
    weights = [1, 1, 2, 1, 1, 2]
    found = matched_set(SELECTORS, CLASSIFIERS, coverage=0.5, sample_weight=weights)
    assert found["a"] == {"a": 1.0, "b": pytest.approx(2 / 4)}  # rows 1, 2, 3 and 6, 5, 4
    assert found["b"] == {"a": pytest.approx(1 / 4), "b": 1.0}


def test_any_number_of_classifiers_on_any_number_of_selections() -> None:
    rng = np.random.default_rng(0)
    selectors = {name: rng.random(50) for name in "xy"}
    classifiers = {name: rng.random(50) > 0.5 for name in "abc"}
    found = matched_set(selectors, classifiers, coverage=0.3)
    assert list(found) == ["a", "b", "c"]
    for classifier, row in found.items():
        assert list(row) == ["x", "y"]
        for selector, value in row.items():
            kept = np.argsort(selectors[selector])[:15]
            assert value == pytest.approx(classifiers[classifier][kept].mean())


def test_the_diagonal_is_accuracy_at_coverage() -> None:
    found = matched_set(SELECTORS, CLASSIFIERS, coverage=0.7)
    for name in SELECTORS:
        assert found[name][name] == accuracy_at_coverage(SELECTORS[name], CLASSIFIERS[name], 0.7)


def test_tensors_of_any_precision() -> None:
    selectors = {name: torch.tensor(s, dtype=torch.bfloat16) for name, s in SELECTORS.items()}
    classifiers = {name: torch.tensor(c) for name, c in CLASSIFIERS.items()}
    expected = matched_set(SELECTORS, CLASSIFIERS, coverage=0.5)
    assert matched_set(selectors, classifiers, coverage=0.5) == expected


@pytest.mark.parametrize(
    ("uncertainty", "correct", "message"),
    [
        ({"a": [1, 2]}, {"a": [True, False, True]}, r"same examples \[n\], not of shapes"),
        ({"a": [1, 2], "b": [1]}, {"a": [True, False]}, r"shapes \[\(1,\), \(2,\)\]"),
        ({}, {}, "same examples"),
        ({"a": [[1, 2]]}, {"a": [[True, False]]}, "two vectors"),
        ({"a": [1, float("nan")]}, {"a": [True, False]}, "NaN in 1 rows: 1"),
    ],
)
def test_what_is_not_on_the_same_examples_is_refused(
    uncertainty: Any, correct: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        matched_set(uncertainty, correct, coverage=0.5)


@pytest.mark.parametrize("coverage", [0.0, 1.5])
def test_coverage_outside_its_range_is_refused(coverage: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \(0, 1\]"):
        matched_set(SELECTORS, CLASSIFIERS, coverage=coverage)

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_calibration_error,
)

from revar.metrics import ece
from support.properties import PROPERTY, Floats


def two_classes(confidence: Any) -> Floats:
    """Rows whose top class is class 0, with this probability."""
    top = np.asarray(confidence, dtype=np.float64)
    return np.stack([top, 1 - top], axis=1)


def brute_force(probabilities: Floats, labels: NDArray[np.int64], n_bins: int) -> float:
    """The definition, bin by bin and row by row, with edges and sums in exact fractions."""
    total = Fraction(0)
    for b in range(n_bins):
        low, high = Fraction(b, n_bins), Fraction(b + 1, n_bins)
        gap = Fraction(0)
        for row, label in zip(probabilities.tolist(), labels.tolist(), strict=True):
            confidence = Fraction(max(row))
            if low < confidence <= high:
                gap += int(row.index(max(row)) == label) - confidence
        total += abs(gap)
    return float(total / len(labels))


def random_case(seed: int, n: int = 200, n_classes: int = 4) -> tuple[Floats, NDArray[np.int64]]:
    """Labels drawn by the probabilities, so that the gaps of bins differ in sign."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(n_classes, 0.5), n)
    labels = (probabilities.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return probabilities, np.minimum(labels, n_classes - 1)


# By hand --------------------------------------------------------------------------------------


def test_by_hand() -> None:
    # Bins of 0.1. (0.6, 0.7]: 0.65 right, 0.7 wrong: |1 - 1.35| = 0.35.
    # (0.9, 1.0]: 0.95 right: 0.05. In all (0.35 + 0.05) / 3.
    probabilities = two_classes([0.65, 0.7, 0.95])
    assert ece(probabilities, [0, 1, 0], n_bins=10) == pytest.approx(0.4 / 3, abs=1e-15)


def test_gaps_cancel_within_a_bin_and_not_between_bins() -> None:
    probabilities = two_classes([0.75, 0.75, 0.75, 0.75])
    assert ece(probabilities, [0, 0, 0, 1]) == 0.0
    # One bin over everything leaves accuracy minus mean confidence: 1/2 - 0.775.
    assert ece(two_classes([0.6, 0.95]), [0, 1], n_bins=1) == pytest.approx(0.275, abs=1e-15)
    # Two bins and both gaps stand: (0.4 + 0.95) / 2.
    assert ece(two_classes([0.6, 0.95]), [0, 1], n_bins=10) == pytest.approx(0.675, abs=1e-15)


@pytest.mark.parametrize("hit", [True, False])
def test_certainty_is_right_or_entirely_wrong(hit: bool) -> None:
    assert ece([[1.0, 0.0, 0.0]], [0 if hit else 2]) == (0.0 if hit else 1.0)


def test_fifteen_bins_unless_told() -> None:
    probabilities, labels = random_case(0)
    assert ece(probabilities, labels) == ece(probabilities, labels, n_bins=15)
    assert ece(probabilities, labels) != ece(probabilities, labels, n_bins=10)


# Oracles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_bins", [1, 7, 10, 15])
def test_the_definition_by_brute_force(seed: int, n_bins: int) -> None:
    probabilities, labels = random_case(seed)
    expected = brute_force(probabilities, labels, n_bins)
    assert ece(probabilities, labels, n_bins=n_bins) == pytest.approx(expected, abs=1e-13)


@PROPERTY
@given(st.lists(st.tuples(st.integers(16, 32), st.integers(0, 1)), min_size=1, max_size=20))
def test_the_definition_by_brute_force_on_edges(rows: list[tuple[int, int]]) -> None:
    """Thirty-seconds are exact, and with 8 bins every fourth of them is an edge."""
    probabilities = two_classes([numerator / 32 for numerator, _ in rows])
    labels = np.array([label for _, label in rows])
    for n_bins in (1, 4, 8, 32):
        expected = brute_force(probabilities, labels, n_bins)
        assert ece(probabilities, labels, n_bins=n_bins) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_bins", [10, 15])
def test_torchmetrics_agrees_where_no_confidence_is_one(seed: int, n_bins: int) -> None:
    probabilities, labels = random_case(seed)
    assert probabilities.max() < 1
    expected = multiclass_calibration_error(
        torch.from_numpy(probabilities), torch.from_numpy(labels), num_classes=4, n_bins=n_bins
    )
    # torchmetrics sums in float32.
    assert ece(probabilities, labels, n_bins=n_bins) == pytest.approx(expected.item(), abs=1e-6)


def test_torchmetrics_gives_a_confidence_of_one_a_bin_of_its_own_and_we_do_not() -> None:
    """0.95 right and 1.0 wrong are both in (0.9, 1.0]: |1/2 - 0.975| = 0.475.

    With a bin of its own for 1.0 it would be (0.05 + 1) / 2 = 0.525, which is torchmetrics'.
    """
    probabilities, labels = two_classes([0.95, 1.0]), np.array([0, 1])
    assert ece(probabilities, labels, n_bins=10) == pytest.approx(0.475, abs=1e-15)
    multiclass = multiclass_calibration_error(
        torch.from_numpy(probabilities), torch.from_numpy(labels), num_classes=2, n_bins=10
    )
    binary = binary_calibration_error(torch.tensor([0.95, 1.0]), torch.tensor([1, 0]), n_bins=10)
    assert multiclass.item() == pytest.approx(0.525, abs=1e-6)
    assert binary.item() == pytest.approx(0.525, abs=1e-6)


# Bins -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numerator", "n_bins"),
    [(k, n_bins) for n_bins in (4, 10, 15, 20) for k in range(n_bins // 2 + 1, n_bins + 1)],
)
def test_an_edge_belongs_to_the_bin_below_it(numerator: int, n_bins: int) -> None:
    edge = numerator / n_bins
    below, above = edge - 0.4 / n_bins, edge + 0.4 / n_bins
    # The edge right, its neighbour wrong: in one bin the gaps meet, in two they add up.
    together = abs((1 - edge) - below) / 2
    assert ece(two_classes([edge, below]), [0, 1], n_bins=n_bins) == pytest.approx(together)
    if above < 1:
        apart = ((1 - edge) + above) / 2
        assert ece(two_classes([edge, above]), [0, 1], n_bins=n_bins) == pytest.approx(apart)


def test_a_confidence_rounded_above_one_is_one() -> None:
    assert ece([[1.00001, 0.0]], [0]) == 0.0


# Properties -----------------------------------------------------------------------------------


@PROPERTY
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_the_order_of_rows_and_the_names_of_classes_do_not_matter(seed: int, n_bins: int) -> None:
    probabilities, labels = random_case(seed, n=30)
    rng = np.random.default_rng(seed)
    rows, classes = rng.permutation(30), rng.permutation(4)
    value = ece(probabilities, labels, n_bins=n_bins)
    moved = ece(probabilities[rows], labels[rows], n_bins=n_bins)
    assert moved == pytest.approx(value, abs=1e-14)
    renamed = ece(probabilities[:, classes], np.argsort(classes)[labels], n_bins=n_bins)
    assert renamed == pytest.approx(value, abs=1e-14)


@PROPERTY
@given(st.integers(0, 10_000))
def test_it_lies_between_the_mean_gap_and_the_mean_of_gaps(seed: int) -> None:
    probabilities, labels = random_case(seed, n=30)
    gaps = (probabilities.argmax(axis=1) == labels) - probabilities.max(axis=1)
    value = ece(probabilities, labels)
    assert abs(gaps.mean()) - 1e-14 <= value <= np.abs(gaps).mean() + 1e-14


def test_calibrated_predictions_come_near_zero_and_overconfident_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, 100_000)
    labels = (rng.random(100_000) > confidence).astype(np.int64)
    # Eight bins of 12,500 rows, each with a standard error of at most 0.0045.
    assert ece(two_classes(confidence), labels) < 0.01
    bolder = 0.5 + confidence / 2
    # Bolder by (1 - confidence) / 2, which is 1/8 on average.
    assert ece(two_classes(bolder), labels) == pytest.approx(0.125, abs=0.01)


# Arguments ------------------------------------------------------------------------------------


def test_tensors_and_arrays_give_the_same() -> None:
    probabilities, labels = random_case(3)
    tensors = torch.from_numpy(probabilities).requires_grad_(), torch.from_numpy(labels)
    assert ece(*tensors) == ece(probabilities, labels)
    single = ece(probabilities.astype(np.float32), labels)
    assert single == pytest.approx(ece(probabilities, labels), abs=1e-6)
    assert type(single) is float


@pytest.mark.parametrize(
    ("probabilities", "labels", "shapes"),
    [
        ([0.9, 0.1], [0, 1], r"\(2,\), labels \(2,\)"),
        ([[0.9, 0.1]], [0, 1], r"\(1, 2\), labels \(2,\)"),
        ([[0.9, 0.1]], [[0]], r"\(1, 2\), labels \(1, 1\)"),
        (np.zeros((0, 2)), np.zeros(0), r"\(0, 2\), labels \(0,\)"),
    ],
)
def test_wrong_shapes_are_refused_and_named(probabilities: Any, labels: Any, shapes: str) -> None:
    with pytest.raises(ValueError, match=shapes):
        ece(probabilities, labels)


def test_nan_is_refused_with_its_row() -> None:
    nan = float("nan")
    with pytest.raises(ValueError, match="NaN in 1 rows, first in row 1"):
        ece([[0.9, 0.1], [nan, nan]], [0, 1])


@pytest.mark.parametrize("row", [[0.9, 0.2], [2.0, 1.0], [1.2, -0.2], [np.inf, 0.0], [0.0, 0.0]])
def test_rows_that_are_no_distribution_are_refused(row: list[float]) -> None:
    with pytest.raises(ValueError, match="rows of sum one"):
        ece([[0.5, 0.5], row], [0, 1])


def test_single_precision_rounding_of_a_row_sum_is_no_reason_to_refuse() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 1000)).astype(np.float32)
    probabilities = torch.from_numpy(logits).softmax(dim=1)
    assert 0 <= ece(probabilities, rng.integers(0, 1000, 50)) <= 1

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import brier_score_loss, log_loss
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_calibration_error,
)

from revar.metrics.calibration import (
    brier,
    ece,
    mce,
    nll,
    reliability,
    selective_ece,
)
from support.properties import FEW, PROPERTY, Floats


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


def tied_case(seed: int, n: int = 24, n_classes: int = 3) -> tuple[Floats, NDArray[np.int64]]:
    """Probabilities in sixteenths: exact, many of them equal, some 0 and 1."""
    rng = np.random.default_rng(seed)
    probabilities = rng.multinomial(16, rng.dirichlet(np.ones(n_classes), n)) / 16
    return probabilities, rng.integers(0, n_classes, n)


Figure = Callable[..., float]
BINNED: list[Figure] = [
    partial(figure, n_bins=n_bins, binning=binning)
    for n_bins in (4, 15)
    for binning in ("equal_width", "equal_mass")
    for figure in (ece, partial(ece, kind="classwise"), partial(ece, kind="top_label"), mce)
]
FIGURES: list[Figure] = [*BINNED, brier, nll]


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-12)


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
    with pytest.raises(ValueError, match="NaN in 1 rows: 1"):
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


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2], "label 2 in row 2 is no class number: 0..1"),
        ([0, -1, 1], "label -1 in row 1"),
        ([0, 0.5, 1], r"label 0\.5 in row 1"),
        ([0, 1, float("nan")], "label nan in row 2"),
        (["a", "b", "a"], "labels are of type <U1"),
    ],
)
@pytest.mark.parametrize("figure", [ece, mce, brier, nll, reliability])
def test_labels_that_are_no_class_numbers_are_refused(
    figure: Figure, labels: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        figure(two_classes([0.5, 0.6, 0.7]), labels)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 2.0], r"sample_weight has shape \(2,\): \(3,\) needed"),
        ([1.0, -1.0, 1.0], "-1.0 in row 1"),
        ([1.0, 1.0, float("nan")], "nan in row 2"),
        ([0, 0, 0], "0 in every row"),
    ],
)
@pytest.mark.parametrize("figure", [ece, mce, brier, nll, reliability])
def test_weights_that_cannot_be_are_refused(figure: Figure, weight: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figure(two_classes([0.5, 0.6, 0.7]), [0, 1, 0], sample_weight=weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 0}, "n_bins is 0"),
        ({"n_bins": 2.5}, "n_bins is 2.5"),
        ({"binning": "equal_weight"}, 'did you mean "equal_width"'),
        ({"kind": "toplabel"}, 'did you mean "top_label"'),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ece([[0.9, 0.1]], [0], **options)


def test_a_vector_of_one_class_is_no_matrix() -> None:
    with pytest.raises(ValueError, match="both columns for two classes"):
        ece([0.9, 0.1], [1, 0])


# Kinds ----------------------------------------------------------------------------------------
#
# Bins (0, 1/2] and (1/2, 1]; predicted 0, 0, 1, of which the first and the last are right.
#   confidence: 0.8, 0.6, 0.7 in one bin, |2/3 - 0.7| = 1/30
#   classwise: p_0 = 0.8 and 0.6, one is 0: |1/2 - 0.7| 2/3; p_0 = 0.3, is not: 0.3 / 3;
#              p_1 the mirror image. Mean (0.4 + 0.3) / 3.
#   top label: predicted 0: |1/2 - 0.7|, share 2/3; predicted 1: |1 - 0.7|, share 1/3.
BY_HAND = [[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 1, 1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("confidence", 1 / 30), ("classwise", 0.7 / 3), ("top_label", 0.7 / 3)],
)
def test_kinds_by_hand(kind: Any, expected: float) -> None:
    assert ece(*BY_HAND, n_bins=2, kind=kind) == close(expected)


def test_top_label_counts_predicted_classes_that_no_label_has() -> None:
    assert ece([[0.9, 0.1], [0.8, 0.2]], [1, 1], kind="top_label") == close(0.85)


def test_classwise_counts_classes_that_no_label_has() -> None:
    probabilities = np.pad(np.array(BY_HAND[0]), ((0, 0), (0, 1)))
    assert ece(probabilities, BY_HAND[1], n_bins=2, kind="classwise") == close(2 * 0.7 / 9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
def test_kinds_are_made_of_the_error_of_two_classes(seed: int, binning: Any) -> None:
    """Top label of the errors of subsets, classwise of columns binned by brute force."""
    probabilities, labels = random_case(seed)
    options: dict[str, Any] = {"n_bins": 10, "binning": binning}
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    total = sum(
        (predicted == c).mean()
        * ece(probabilities[predicted == c], labels[predicted == c], **options)
        for c in range(4)
    )
    assert ece(probabilities, labels, kind="top_label", **options) == close(total)
    columns = [
        brute_bins(column, labels == c, brute_edges(column, binning))
        for c, column in enumerate(probabilities.T)
    ]
    assert ece(probabilities, labels, kind="classwise", **options) == close(sum(columns) / 4)
    top = brute_bins(confidence, predicted == labels, brute_edges(confidence, binning))
    assert ece(probabilities, labels, **options) == close(top)


def brute_edges(confidence: Floats, binning: str, n_bins: int = 10) -> Floats:
    if binning == "equal_width":
        return np.array([b / n_bins for b in range(n_bins + 1)])
    quantiles = np.quantile(
        confidence, [b / n_bins for b in range(1, n_bins)], method="inverted_cdf"
    )
    return np.concatenate([[0.0], quantiles, [1.0]])


def brute_bins(confidence: Floats, hits: NDArray[np.bool_], edges: Floats) -> float:
    total = 0.0
    for low, high in pairwise(edges):
        rows = (low < confidence) & (confidence <= high)
        total += abs((hits[rows] - confidence[rows]).sum())
    return total / len(hits)


# Reliability and equal mass -------------------------------------------------------------------


def test_reliability_by_hand() -> None:
    bins = reliability(two_classes([0.65, 0.75, 0.95]), [0, 1, 0], n_bins=5)
    np.testing.assert_array_equal(bins.edges, [0, 0.2, 0.4, 0.6, 0.8, 1])
    np.testing.assert_array_equal(bins.weight, [0, 0, 0, 2, 1])
    nan = float("nan")
    np.testing.assert_allclose(bins.confidence, [nan, nan, nan, 0.7, 0.95], atol=1e-15)
    np.testing.assert_allclose(bins.accuracy, [nan, nan, nan, 0.5, 1.0], atol=1e-15)


def test_equal_mass_by_hand() -> None:
    # Two bins of two: |1/2 - 0.65| and |1 - 0.85|. In the one bin (1/2, 1]: |3/4 - 3/4|.
    case = two_classes([0.9, 0.6, 0.8, 0.7]), [0, 1, 0, 0]
    bins = reliability(*case, n_bins=2, binning="equal_mass")
    np.testing.assert_array_equal(bins.edges, [0, 0.7, 1])
    np.testing.assert_array_equal(bins.weight, [2, 2])
    np.testing.assert_allclose(bins.confidence, [0.65, 0.85], atol=1e-15)
    assert ece(*case, n_bins=2, binning="equal_mass") == close(0.15)
    assert ece(*case, n_bins=2) == close(0.0)


@pytest.mark.parametrize(("n", "n_bins"), [(100, 10), (7, 3), (15, 15), (3, 15), (1, 4)])
def test_equal_mass_bins_differ_by_at_most_one_and_lose_nobody(n: int, n_bins: int) -> None:
    confidence = 0.5 + np.random.default_rng(n).permutation(n) / (4 * n)
    bins = reliability(two_classes(confidence), np.zeros(n), n_bins=n_bins, binning="equal_mass")
    assert bins.weight.sum() == n
    assert bins.weight.max() - bins.weight.min() <= 1


@PROPERTY
@given(st.integers(0, 10_000), st.integers(1, 20), st.booleans())
def test_bins_hold_everybody_and_equal_confidences_together(
    seed: int, n_bins: int, weighted: bool
) -> None:
    probabilities, labels = tied_case(seed)
    weight = np.random.default_rng(seed).random(24) if weighted else np.ones(24)
    bins = reliability(
        probabilities, labels, n_bins=n_bins, binning="equal_mass", sample_weight=weight
    )
    confidence = probabilities.max(axis=1)
    assert (np.diff(bins.edges) >= 0).all()
    for b in range(n_bins):
        rows = (bins.edges[b] < confidence) & (confidence <= bins.edges[b + 1])
        assert bins.weight[b] == close(weight[rows].sum())
        # Without its last value a bin would be short of its share.
        if rows.any() and b < n_bins - 1:
            short = confidence < confidence[rows].max()
            assert weight[short].sum() < (b + 1) * weight.sum() / n_bins + 1e-9
    assert bins.weight.sum() == close(weight.sum())


def test_mce_by_hand() -> None:
    # (0.6, 0.7]: |1/2 - 0.675|; (0.9, 1]: 0.05.
    assert mce(two_classes([0.65, 0.7, 0.95]), [0, 1, 0], n_bins=10) == close(0.175)
    assert mce([[1.0, 0.0], [1.0, 0.0], [0.9, 0.1]], [0, 0, 0], n_bins=10) == close(0.1)


def test_mce_of_torchmetrics_agrees_where_no_confidence_is_one() -> None:
    probabilities, labels = random_case(1)
    expected = multiclass_calibration_error(
        torch.from_numpy(probabilities),
        torch.from_numpy(labels),
        num_classes=4,
        n_bins=10,
        norm="max",
    )
    assert mce(probabilities, labels, n_bins=10) == pytest.approx(expected.item(), abs=1e-6)


# Brier and likelihood -------------------------------------------------------------------------


def test_brier_by_hand() -> None:
    assert brier([[0.7, 0.2, 0.1]], [1]) == close(0.49 + 0.64 + 0.01)
    assert brier([[1.0, 0.0], [1.0, 0.0]], [0, 1]) == 1.0  # (0 + 2) / 2
    assert brier([[1.0, 0.0], [1.0, 0.0]], [0, 1], sample_weight=[3, 1]) == 0.5


def test_nll_by_hand() -> None:
    assert nll([[0.5, 0.5], [0.25, 0.75]], [0, 0]) == close(1.5 * np.log(2))
    assert nll([[0.0, 1.0]], [1]) == 0.0


def test_nll_is_infinite_where_the_truth_was_ruled_out() -> None:
    probabilities = [[1.0, 0.0], [0.5, 0.5]]
    assert nll(probabilities, [1, 0]) == float("inf")
    assert nll(probabilities, [1, 0], sample_weight=[0.0, 2.5]) == close(np.log(2))


@pytest.mark.parametrize("seed", range(3))
def test_scikit_learn_agrees(seed: int) -> None:
    probabilities, labels = random_case(seed)
    weight = np.random.default_rng(seed).random(len(labels))
    for used in (None, weight):
        expected = sum(
            brier_score_loss(labels == c, probabilities[:, c], sample_weight=used, pos_label=True)
            for c in range(4)
        )
        assert brier(probabilities, labels, sample_weight=used) == close(expected)
        expected = log_loss(labels, probabilities, sample_weight=used, labels=range(4))
        assert nll(probabilities, labels, sample_weight=used) == close(expected)


# Properties of all ----------------------------------------------------------------------------


@FEW
@given(st.integers(0, 10_000))
def test_no_figure_depends_on_the_order_of_rows(seed: int) -> None:
    probabilities, labels = tied_case(seed)
    rng = np.random.default_rng(seed)
    rows, weight = rng.permutation(24), rng.choice([0.0, 0.1, 0.3, 1.7], 24) + 1e-3
    for figure in FIGURES:
        assert figure(probabilities[rows], labels[rows]) == close(figure(probabilities, labels))
        moved = figure(probabilities[rows], labels[rows], sample_weight=weight[rows])
        assert moved == close(figure(probabilities, labels, sample_weight=weight))


@FEW
@given(st.integers(0, 10_000))
def test_no_figure_depends_on_the_names_of_classes(seed: int) -> None:
    probabilities, labels = random_case(seed, n=30)
    classes = np.random.default_rng(seed).permutation(4)
    for figure in FIGURES:
        renamed = figure(probabilities[:, classes], np.argsort(classes)[labels])
        assert renamed == close(figure(probabilities, labels))


@FEW
@given(st.integers(0, 10_000))
def test_whole_weights_are_repeated_rows_and_a_common_factor_is_nothing(seed: int) -> None:
    probabilities, labels = tied_case(seed)
    weight = np.random.default_rng(seed).integers(0, 4, 24)
    weight[0] = 1
    rows = np.repeat(np.arange(24), weight)
    for figure in FIGURES:
        expected = figure(probabilities[rows], labels[rows])
        assert figure(probabilities, labels, sample_weight=weight) == close(expected)
        assert figure(probabilities, labels, sample_weight=weight * 0.37) == close(expected)


@FEW
@given(st.integers(0, 10_000))
def test_bounds(seed: int) -> None:
    for probabilities, labels in (tied_case(seed), random_case(seed, n=30)):
        for n_bins in (1, 5, 15):
            for binning in ("equal_width", "equal_mass"):
                options: dict[str, Any] = {"n_bins": n_bins, "binning": binning}
                error = ece(probabilities, labels, **options)
                assert 0 <= error <= mce(probabilities, labels, **options) + 1e-12 <= 1 + 1e-12
                # Bins of one predicted class refine those of all of them, at equal width.
                finer = ece(probabilities, labels, kind="top_label", **options)
                assert binning == "equal_mass" or error <= finer + 1e-12
                assert 0 <= finer <= 1 + 1e-12
                assert 0 <= ece(probabilities, labels, kind="classwise", **options) <= 1
        assert 0 <= brier(probabilities, labels) <= 2
        assert nll(probabilities, labels) >= 0


# Selective ------------------------------------------------------------------------------------


def test_selective_by_hand() -> None:
    # Gaps 0.1, 0.8, 0.3, 0.6, each in a bin of its own.
    case = two_classes([0.9, 0.8, 0.7, 0.6]), [0, 1, 0, 1]
    coverages = (0.01, 0.5, 0.75, 0.99, 1.0)
    values = selective_ece([0.1, 0.2, 0.3, 0.4], *case, coverages=coverages, n_bins=20)
    np.testing.assert_allclose(values, [0.1, 0.45, 0.4, 0.4, 0.45], atol=1e-12)
    # The middle two tied: at one half both count half, (0.1 + 0.4 + 0.15) / 2.
    values = selective_ece([0.1, 0.2, 0.2, 0.4], *case, coverages=coverages, n_bins=20)
    np.testing.assert_allclose(values, [0.1, 0.325, 0.4, 0.4, 0.45], atol=1e-12)


def test_selective_coverages_are_one_half_to_one_unless_told() -> None:
    probabilities, labels = random_case(0)
    uncertainty = np.random.default_rng(1).random(200)
    kept = [np.argsort(uncertainty)[:k] for k in (100, 120, 140, 160, 180, 200)]
    expected = [ece(probabilities[rows], labels[rows]) for rows in kept]
    np.testing.assert_allclose(
        selective_ece(uncertainty, probabilities, labels), expected, atol=1e-12
    )


@FEW
@given(st.integers(0, 10_000))
def test_selective_properties(seed: int) -> None:
    probabilities, labels = tied_case(seed)
    rng = np.random.default_rng(seed)
    uncertainty = rng.integers(0, 5, 24).astype(np.float64)
    value = selective_ece(uncertainty, probabilities, labels)
    assert value[-1] == close(ece(probabilities, labels))
    order = rng.permutation(24)
    moved = selective_ece(np.exp(uncertainty[order]), probabilities[order], labels[order])
    np.testing.assert_allclose(moved, value, atol=1e-12)
    weight = rng.integers(0, 4, 24)
    weight[0] = 1
    rows = np.repeat(np.arange(24), weight)
    repeated = selective_ece(uncertainty[rows], probabilities[rows], labels[rows])
    weighted = selective_ece(uncertainty, probabilities, labels, sample_weight=weight)
    np.testing.assert_allclose(weighted, repeated, atol=1e-12)


def test_selective_arguments_are_checked() -> None:
    case = two_classes([0.9, 0.8]), [0, 1]
    with pytest.raises(ValueError, match=r"uncertainty has shape \(3,\): \(2,\) needed"):
        selective_ece([0.1, 0.2, 0.3], *case)
    with pytest.raises(ValueError, match="uncertainty is NaN in 1 rows: 1"):
        selective_ece([0.1, float("nan")], *case)
    with pytest.raises(ValueError, match=r"coverage is 0\.0"):
        selective_ece([0.1, 0.2], *case, coverages=[0.0])
    with pytest.raises(ValueError, match="n_bins is 0"):
        selective_ece([0.1, 0.2], *case, n_bins=0)

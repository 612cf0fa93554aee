from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from scipy.special import digamma
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    roc_auc_score,
    roc_curve,
)

from revar.errors import UndefinedMetricWarning
from revar.metrics import (
    accuracy_at_coverage,
    accuracy_rejection_curve,
    auarc,
    augrc,
    aurc,
    balanced_weights,
    coverage_at_risk,
    curve_figures,
    e_aurc,
    failure_aupr,
    failure_auroc,
    fpr_at_tpr,
    normalised_auarc,
    risk_coverage_curve,
)
from support.properties import PROPERTY, Bools, Floats

Weighted = tuple[Floats, Bools, Floats]
Figure = Callable[..., float]

FIGURES: dict[str, Figure] = {
    "auarc": auarc,
    "aurc": aurc,
    "e_aurc": e_aurc,
    "e_aurc, asymptotic": lambda u, c, **w: e_aurc(u, c, oracle="asymptotic", **w),
    "augrc": augrc,
    "normalised_auarc": normalised_auarc,
    "failure_auroc": failure_auroc,
    "failure_aupr": failure_aupr,
    # Shares that no small whole weights give, so that no rounding decides.
    "fpr_at_tpr": lambda u, c, **w: fpr_at_tpr(u, c, tpr=0.7137, **w),
    "coverage_at_risk": lambda u, c, **w: coverage_at_risk(u, c, 0.2937, **w),
}
ROUNDED: dict[str, Figure] = {
    "accuracy_at_coverage": lambda u, c, **w: accuracy_at_coverage(u, c, 0.6, **w),
    "upper auarc": lambda u, c, **w: auarc(u, c, coverage=(0.4, 1.0), **w),
    "middle aurc": lambda u, c, **w: aurc(u, c, coverage=(0.2, 0.8), **w),
    "middle augrc": lambda u, c, **w: augrc(u, c, coverage=(0.2, 0.8), **w),
    "lower normalised_auarc": lambda u, c, **w: normalised_auarc(u, c, coverage=(0.0, 0.7), **w),
}
"""Coverages of whole weights are rounded down to rows; of others they are not."""
ALL = {**FIGURES, **ROUNDED}


def weighted_rows(weights: SearchStrategy[Any]) -> SearchStrategy[Weighted]:
    """Rows with many ties, of which some errors and some hits have a weight."""
    row = st.tuples(st.integers(-3, 3), st.booleans(), weights)

    def arrays(rows: list[tuple[int, bool, float]]) -> Weighted:
        scores, hits, given_weights = zip(*rows, strict=True)
        return np.array(scores, float), np.array(hits), np.array(given_weights, float)

    def both(rows: Weighted) -> bool:
        return bool(rows[2][rows[1]].sum() > 0 and rows[2][~rows[1]].sum() > 0)

    return st.lists(row, min_size=2, max_size=15).map(arrays).filter(both)


WHOLE = weighted_rows(st.integers(0, 4))
REAL = weighted_rows(st.floats(0.05, 5.0))


def repeated(rows: Weighted) -> tuple[Floats, Bools]:
    times = rows[2].astype(int)
    return np.repeat(rows[0], times), np.repeat(rows[1], times)


# Whole numbers --------------------------------------------------------------------------------


@PROPERTY
@given(WHOLE)
def test_whole_weights_are_repeated_rows(rows: Weighted) -> None:
    uncertainty, correct, weights = rows
    for name, figure in ALL.items():
        expected = figure(*repeated(rows))
        value = figure(uncertainty, correct, sample_weight=weights)
        assert value == pytest.approx(expected, abs=1e-12), name


@PROPERTY
@given(WHOLE)
def test_whole_weights_are_repeated_rows_for_all_curve_figures(rows: Weighted) -> None:
    expected = curve_figures(*repeated(rows))
    value = curve_figures(rows[0], rows[1], sample_weight=rows[2])
    assert value == pytest.approx(expected, abs=1e-12)


@PROPERTY
@given(WHOLE)
def test_curve_with_whole_weights_lies_on_that_of_repeated_rows(rows: Weighted) -> None:
    uncertainty, correct, weights = rows
    full = risk_coverage_curve(*repeated(rows))
    curve = risk_coverage_curve(uncertainty, correct, sample_weight=weights)
    assert len(curve.coverage) == (weights > 0).sum()
    assert curve.coverage[-1] == 1.0
    places = np.rint(curve.coverage * weights.sum()).astype(int) - 1
    np.testing.assert_allclose(curve.coverage, full.coverage[places], rtol=1e-14)
    np.testing.assert_allclose(curve.risk, full.risk[places], atol=1e-12)
    assert curve.threshold.tolist() == full.threshold[places].tolist()
    rejection = accuracy_rejection_curve(uncertainty, correct, sample_weight=weights)
    assert rejection.rejection.tolist() == (1 - curve.coverage).tolist()
    assert rejection.accuracy.tolist() == (1 - curve.risk).tolist()


def test_a_large_weight_is_that_many_rows() -> None:
    uncertainty, correct = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1, 0, 1, 0])
    weights = np.array([30_000, 500, 20_000, 10_000])
    for name, figure in ALL.items():
        expected = figure(np.repeat(uncertainty, weights), np.repeat(correct, weights))
        value = figure(uncertainty, correct, sample_weight=weights)
        assert value == pytest.approx(expected, abs=1e-12), name


# Real numbers ---------------------------------------------------------------------------------


@PROPERTY
@given(WHOLE)
def test_figures_do_not_jump_at_whole_weights(rows: Weighted) -> None:
    uncertainty, correct, weights = rows
    for name, figure in FIGURES.items():
        whole = figure(uncertainty, correct, sample_weight=weights)
        near = figure(uncertainty, correct, sample_weight=weights + 1e-9)
        assert near == pytest.approx(whole, abs=1e-6), name


@PROPERTY
@given(REAL)
def test_aurc_with_real_weights_sums_the_curve_block_by_block(rows: Weighted) -> None:
    """On a block of ties the errors are a line a + s k, so errors / k sums to digammas."""
    uncertainty, correct, weights = rows
    total = weights.sum()
    for low, high in ((0.0, 1.0), (0.3, 0.85)):
        first, last = low * total, high * total
        area = before = errors = 0.0
        for value in np.unique(uncertainty):
            tied = uncertainty == value
            size, wrong = weights[tied].sum(), weights[tied & ~correct].sum()
            a, b = max(before, first), min(before + size, last)
            if a < b:
                slope = wrong / size
                start = errors - slope * before
                area += start * (digamma(b + 1) - digamma(a + 1)) + slope * (b - a)
            before, errors = before + size, errors + wrong
        expected = area / (last - first)
        value = aurc(uncertainty, correct, coverage=(low, high), sample_weight=weights)
        assert value == pytest.approx(expected, abs=1e-11)


@PROPERTY
@given(REAL)
def test_identities_hold_with_real_weights(rows: Weighted) -> None:
    uncertainty, correct, weights = rows
    figures = curve_figures(uncertainty, correct, sample_weight=weights)
    assert figures["auarc"] == pytest.approx(1 - figures["aurc"], abs=1e-14)
    e = weights[~correct].sum() / weights.sum()
    expected = (1 - figures["failure_auroc"]) * e * (1 - e) + e**2 / 2
    assert figures["augrc"] == pytest.approx(expected, abs=1e-12)
    at_all = accuracy_at_coverage(uncertainty, correct, 1.0, sample_weight=weights)
    assert at_all == pytest.approx(1 - e, abs=1e-12)


@PROPERTY
@given(REAL)
def test_real_weights_keep_figures_between_worst_and_oracle(rows: Weighted) -> None:
    uncertainty, correct, weights = rows
    for figure in (aurc, augrc):
        low, value, high = (
            figure(score, correct, sample_weight=weights)
            for score in (~correct, uncertainty, correct)
        )
        assert 0 <= low <= value + 1e-13
        assert value <= high + 1e-13 <= 1 + 1e-12
    assert normalised_auarc(uncertainty, correct, sample_weight=weights) <= 1 + 1e-12
    constant = np.zeros(len(correct))
    rate = weights[~correct].sum() / weights.sum()
    assert aurc(constant, correct, sample_weight=weights) == pytest.approx(rate, abs=1e-12)
    value = normalised_auarc(constant, correct, sample_weight=weights)
    assert value == pytest.approx(0.0, abs=1e-10)


@PROPERTY
@given(REAL)
def test_weighted_detection_of_errors_is_scikit_learns(rows: Weighted) -> None:
    uncertainty, correct, weights = rows
    how = {"sample_weight": weights}
    expected = roc_auc_score(~correct, uncertainty, **how)
    assert failure_auroc(uncertainty, correct, **how) == pytest.approx(expected, abs=1e-12)
    expected = average_precision_score(~correct, uncertainty, **how)
    assert failure_aupr(uncertainty, correct, **how) == pytest.approx(expected, abs=1e-12)
    fprs, tprs, _ = roc_curve(~correct, uncertainty, drop_intermediate=False, **how)
    for tpr in (0.3137, 0.9537, 1.0):
        expected = fprs[tprs >= tpr * (1 - 1e-12)].min()
        value = fpr_at_tpr(uncertainty, correct, tpr=tpr, **how)
        assert value == pytest.approx(expected, abs=1e-12)


@PROPERTY
@given(REAL, st.sampled_from([0.0, 0.1137, 0.5, 1.0]))
def test_weighted_coverage_at_risk_is_the_best_of_all_thresholds(
    rows: Weighted, max_risk: float
) -> None:
    uncertainty, correct, weights = rows
    best = 0.0
    for threshold in uncertainty:
        kept = uncertainty <= threshold
        risk = weights[kept & ~correct].sum() / weights[kept].sum()
        if risk <= max_risk + 1e-13:
            best = max(best, weights[kept].sum() / weights.sum())
    value = coverage_at_risk(uncertainty, correct, max_risk, sample_weight=weights)
    assert value == pytest.approx(best, abs=1e-12)


SCALE_FREE = [
    "augrc", "failure_auroc", "failure_aupr", "fpr_at_tpr", "coverage_at_risk",
]  # fmt: skip


@pytest.mark.parametrize("scale", [1e-3, 0.3, np.pi, 12_345.678])
def test_where_only_shares_matter_the_scale_does_not(scale: float) -> None:
    rng = np.random.default_rng(0)
    uncertainty, correct = rng.integers(0, 12, 40), rng.random(40) > 0.4
    constant, weights = np.full(40, scale), rng.random(40) + 0.1
    for name in SCALE_FREE:
        figure = FIGURES[name]
        expected = figure(uncertainty, correct)
        assert figure(uncertainty, correct, sample_weight=constant) == pytest.approx(expected)
        expected = figure(uncertainty, correct, sample_weight=weights)
        value = figure(uncertainty, correct, sample_weight=scale * weights)
        assert value == pytest.approx(expected), name
    for name in ("accuracy_at_coverage", "middle augrc"):
        expected = ROUNDED[name](uncertainty, correct, sample_weight=weights)
        value = ROUNDED[name](uncertainty, correct, sample_weight=scale * weights)
        assert value == pytest.approx(expected), name


def test_weights_count_examples_so_many_of_them_give_the_area_of_the_curve() -> None:
    """One of weight 1 and one error of weight 1, each split: from 2 examples to the limit."""
    correct, rate = [True, False], 0.5
    by_hand = [(1, (0 + 1 / 2) / 2), (2, (0 + 0 + 1 / 3 + 2 / 4) / 4)]
    for weight, expected in by_hand:
        value = aurc([1, 2], correct, sample_weight=[weight, weight])
        assert value == pytest.approx(expected, abs=1e-14)
    limit = rate + (1 - rate) * np.log(1 - rate)
    value = aurc([1, 2], correct, sample_weight=[1e7 + 0.5, 1e7 + 0.5])
    assert value == pytest.approx(limit, abs=1e-7)


def test_coverage_of_real_weights_is_exact() -> None:
    uncertainty, correct, weights = [1, 2, 3], [True, False, True], [0.5, 1.5, 1.0]
    # Half of 3 is 1.5: the first and two thirds of the second.
    value = accuracy_at_coverage(uncertainty, correct, 0.5, sample_weight=weights)
    assert value == pytest.approx(0.5 / 1.5, abs=1e-15)
    # Whole weights of twice the size keep floor(0.5 * 7) = 3.
    value = accuracy_at_coverage(uncertainty, correct, 0.5, sample_weight=[1, 3, 3])
    assert value == pytest.approx(1 / 3, abs=1e-15)
    value = accuracy_at_coverage(uncertainty, correct, 0.01, sample_weight=weights)
    assert value == 1.0


def test_weights_of_very_different_size_stay_finite() -> None:
    uncertainty, correct = [1, 2, 3, 4], [True, False, True, False]
    for weights in ([1, 1e-20, 1e-20, 1e-20], [1e-12, 1e-12, 1e-12, 1], [1e12, 1e-9, 1, 1e-9]):
        for name, figure in FIGURES.items():
            value = figure(uncertainty, correct, sample_weight=weights)
            # The gap that is normalised by may be 1e-12 wide, with four digits left.
            assert -1e-9 <= value <= 1 + (1e-3 if name == "normalised_auarc" else 1e-9), name


# Both -----------------------------------------------------------------------------------------


@PROPERTY
@given(st.one_of(WHOLE, REAL), st.randoms(use_true_random=False))
def test_no_weighted_figure_depends_on_the_order_of_the_rows(rows: Weighted, random: Any) -> None:
    uncertainty, correct, weights = rows
    order = list(range(len(correct)))
    random.shuffle(order)
    for name, figure in ALL.items():
        expected = figure(uncertainty, correct, sample_weight=weights)
        value = figure(uncertainty[order], correct[order], sample_weight=weights[order])
        assert value == expected, name
    one = risk_coverage_curve(uncertainty, correct, sample_weight=weights)
    other = risk_coverage_curve(uncertainty[order], correct[order], sample_weight=weights[order])
    assert one.coverage.tolist() == other.coverage.tolist()
    assert one.risk.tolist() == other.risk.tolist()
    assert one.threshold.tolist() == other.threshold.tolist()


def test_rounding_of_many_real_weights_does_not_depend_on_the_order_either() -> None:
    rng = np.random.default_rng(0)
    uncertainty, correct, weights = rng.integers(0, 5, 300), rng.random(300) > 0.4, rng.random(300)
    shuffles = [rng.permutation(300) for _ in range(5)]
    for name, figure in ALL.items():
        expected = figure(uncertainty, correct, sample_weight=weights)
        for order in shuffles:
            value = figure(uncertainty[order], correct[order], sample_weight=weights[order])
            assert value == expected, name
    curve = risk_coverage_curve(uncertainty, correct, sample_weight=weights)
    assert curve.coverage[-1] == 1.0


@PROPERTY
@given(REAL)
def test_rows_of_no_weight_change_nothing(rows: Weighted) -> None:
    uncertainty, correct, weights = rows
    more = np.r_[uncertainty, -9.0, 9.0, uncertainty[0]]
    hits = np.r_[correct, False, False, True]
    for name, figure in ALL.items():
        expected = figure(uncertainty, correct, sample_weight=weights)
        value = figure(more, hits, sample_weight=np.r_[weights, 0.0, 0.0, 0.0])
        assert value == pytest.approx(expected, abs=1e-13), name


def test_only_what_has_weight_makes_a_figure_defined() -> None:
    with pytest.warns(UndefinedMetricWarning, match="no errors among 3 examples"):
        assert np.isnan(failure_auroc([1, 2], [True, False], sample_weight=[3, 0]))
    with pytest.warns(UndefinedMetricWarning, match=r"nothing right among 0\.5 examples"):
        assert np.isnan(failure_aupr([1, 2], [True, False], sample_weight=[0, 0.5]))


def test_weights_may_be_lists_tensors_and_booleans() -> None:
    uncertainty, correct = [1, 2, 3, 3], [True, False, True, False]
    expected = auarc([1, 2, 3], [True, False, False])
    for weights in (
        [1, 1, 0, 1],
        np.array([True, True, False, True]),
        torch.tensor([1.0, 1.0, 0.0, 1.0]),
        torch.tensor([1, 1, 0, 1], dtype=torch.bfloat16),
    ):
        assert auarc(uncertainty, correct, sample_weight=weights) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"sample_weight has shape \(1,\): \(2,\) needed"),
        ([[1.0, 1.0]], r"sample_weight has shape \(1, 2\): \(2,\) needed"),
        (1.0, r"sample_weight has shape \(\): \(2,\) needed"),
        ([1.0, -0.1], "finite and not negative, with a positive sum"),
        ([1.0, float("nan")], "finite and not negative, with a positive sum"),
        ([1.0, float("inf")], "finite and not negative, with a positive sum"),
        ([0.0, 0.0], "finite and not negative, with a positive sum"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights: Any, message: str) -> None:
    figures: list[Callable[..., Any]] = [*ALL.values(), risk_coverage_curve, curve_figures]
    for figure in figures:
        with pytest.raises(ValueError, match=message):
            figure([0.1, 0.2], [True, False], sample_weight=weights)


# Classes of equal weight ----------------------------------------------------------------------


def test_balanced_weights_by_hand() -> None:
    # 4 rows, 2 classes: 2 for each class.
    assert balanced_weights(["b", "a", "a", "a"]).tolist() == [2, 2 / 3, 2 / 3, 2 / 3]
    # Total 6, 3 for each class, split as the weights are.
    weights = balanced_weights([0, 1, 1], sample_weight=[1, 4, 1])
    np.testing.assert_allclose(weights, [3, 12 / 5, 3 / 5], rtol=1e-15)
    # A class of no weight is no class.
    assert balanced_weights([0, 1, 2], sample_weight=[1, 3, 0]).tolist() == [2, 2, 0]
    assert balanced_weights(torch.tensor([1, 0, 1, 0])).tolist() == [1, 1, 1, 1]


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_accuracy_with_balanced_weights_is_balanced_accuracy(rows: list[tuple[int, int]]) -> None:
    labels, predicted = np.array(rows).T
    weights = balanced_weights(labels)
    masses = [weights[labels == label].sum() for label in np.unique(labels)]
    assert masses == pytest.approx([len(labels) / len(masses)] * len(masses))
    seen = np.isin(predicted, labels)  # scikit-learn warns of others; they are wrong anyhow
    predicted = np.where(seen, predicted, labels.max() + 1)
    expected = np.mean([(predicted == y)[labels == y].mean() for y in np.unique(labels)])
    correct = predicted == labels
    value = accuracy_at_coverage(np.arange(len(labels)), correct, 1.0, sample_weight=weights)
    assert value == pytest.approx(expected, abs=1e-12)
    if seen.all() and len(masses) > 1:
        assert value == pytest.approx(balanced_accuracy_score(labels, predicted), abs=1e-12)


def test_balanced_figures_are_those_of_a_balanced_set() -> None:
    """Class 0 thrice as often, the same otherwise: balanced it is the set without the copies."""
    rng = np.random.default_rng(2)
    uncertainty, correct, labels = rng.random(30), rng.random(30) > 0.3, np.arange(30) % 2
    times = np.where(labels == 0, 3, 1)
    more = np.repeat(uncertainty, times), np.repeat(correct, times)
    weights = balanced_weights(np.repeat(labels, times))
    for name in SCALE_FREE:
        expected = FIGURES[name](uncertainty, correct)
        assert FIGURES[name](*more, sample_weight=weights) == pytest.approx(expected), name

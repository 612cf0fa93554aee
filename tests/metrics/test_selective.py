from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from revar import metrics
from revar.errors import UndefinedMetricWarning
from revar.metrics import (
    accuracy_at_coverage,
    accuracy_rejection_curve,
    auarc,
    augrc,
    aurc,
    coverage_at_risk,
    curve_figures,
    e_aurc,
    failure_aupr,
    failure_auroc,
    fpr_at_tpr,
    normalised_auarc,
    risk_coverage_curve,
)
from support.orders import (
    all_orders,
    allowed_orders,
    auarc_of,
    augrc_of,
    aurc_of,
    auroc_of,
    kept_rows,
    mean_over,
    normalised_auarc_of,
    risk_of_first,
    rows_between,
)
from support.properties import FEW, PROPERTY, Bools, Floats, scored_rows

Figure = Callable[[Any, Any], float]


def at_70_percent(uncertainty: Any, correct: Any) -> float:
    return accuracy_at_coverage(uncertainty, correct, 0.7)


def at_a_fifth_of_risk(uncertainty: Any, correct: Any) -> float:
    return coverage_at_risk(uncertainty, correct, 0.2)


def middle_auarc(uncertainty: Any, correct: Any) -> float:
    return auarc(uncertainty, correct, coverage=(0.25, 0.8))


def middle_augrc(uncertainty: Any, correct: Any) -> float:
    return augrc(uncertainty, correct, coverage=(0.25, 0.8))


def fpr_at_80(uncertainty: Any, correct: Any) -> float:
    return fpr_at_tpr(uncertainty, correct, tpr=0.8)


CURVE_FIGURES: list[Figure] = [
    auarc, aurc, e_aurc, augrc, at_70_percent, at_a_fifth_of_risk, middle_auarc, middle_augrc,
]  # fmt: skip
NEED_BOTH: list[Figure] = [failure_auroc, failure_aupr, fpr_at_80, normalised_auarc]
ALL_FIGURES: list[Figure] = [*CURVE_FIGURES, *NEED_BOTH]


def mixed(correct: Bools) -> bool:
    """Whether there are both errors and hits."""
    return bool(0 < correct.sum() < len(correct))


def defined(figure: Figure, correct: Bools) -> bool:
    return figure not in NEED_BOTH or mixed(correct)


# By hand --------------------------------------------------------------------------------------
#
# Four rows, the most certain first: right, wrong, right, wrong.
#   k                1     2     3     4
#   accuracy         1    1/2   2/3   1/2     sum 8/3, AUARC 2/3, AURC 1/3
#   risk             0    1/2   1/3   1/2
#   errors / n       0    1/4   1/4   1/2     trapezoids of width 1/4 from height 0:
#                    (0 + 1/8 + 1/4 + 3/8) / 4 = 3/16 = AUGRC
#   best order: right, right, wrong, wrong: risk 0, 0, 1/3, 1/2, AURC 5/24; E-AURC 1/3 - 5/24 = 1/8
#   AUROC: of 4 pairs (error, hit) 3 in order; (1 - 3/4) * 1/2 * 1/2 + (1/2)^2 / 2 = 3/16
BY_HAND = [0.1, 0.2, 0.3, 0.4], [True, False, True, False]
# The same with the middle two tied: half of them is right wherever one of the two is kept.
#   accuracy         1    3/4   2/3   1/2     sum 35/12, AUARC 35/48
#   errors / n       0    1/8   1/4   1/2     (1/16 + 3/16 + 3/8) / 4 = 5/32
#   AUROC: 3 pairs and a half of 4
BY_HAND_TIED = [0.1, 0.2, 0.2, 0.4], [True, False, True, False]


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (auarc, 2 / 3),
        (aurc, 1 / 3),
        (e_aurc, 1 / 8),
        (augrc, 3 / 16),
        (failure_auroc, 3 / 4),
        (at_70_percent, 1 / 2),  # floor(2.8) = 2 rows are kept
        # Best AURC 5/24, random 1/2, ours 1/3: (1/2 - 1/3) / (1/2 - 5/24).
        (normalised_auarc, 4 / 7),
        # From the most uncertain: precision 1 at the first error, 2/3 at the second.
        (failure_aupr, 5 / 6),
        (fpr_at_80, 1 / 2),  # both errors must go, and with them the hit between
        (at_a_fifth_of_risk, 1 / 4),
        (middle_auarc, (1 / 2 + 2 / 3) / 2),  # k from floor(1) + 1 to floor(3.2)
        (middle_augrc, (1 / 8 + 1 / 4) / 2),  # two trapezoids
    ],
)
def test_figures_by_hand(figure: Figure, expected: float) -> None:
    assert figure(*BY_HAND) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (auarc, 35 / 48),
        (aurc, 13 / 48),
        (e_aurc, 13 / 48 - 5 / 24),
        (augrc, 5 / 32),
        (failure_auroc, 7 / 8),
        (at_70_percent, 3 / 4),
        (normalised_auarc, (1 / 2 - 13 / 48) / (1 / 2 - 5 / 24)),
        (failure_aupr, 5 / 6),  # ties are rejected together: 1, then 2 of 3
        (fpr_at_80, 1 / 2),
        (at_a_fifth_of_risk, 1 / 4),
        (middle_auarc, (3 / 4 + 2 / 3) / 2),
        (middle_augrc, (1 / 16 + 3 / 16) / 2),
    ],
)
def test_figures_with_a_tie_by_hand(figure: Figure, expected: float) -> None:
    assert figure(*BY_HAND_TIED) == pytest.approx(expected, abs=1e-15)


def test_curve_by_hand() -> None:
    curve = risk_coverage_curve(*BY_HAND_TIED)
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1.0], rtol=0, atol=0)
    np.testing.assert_allclose(curve.risk, [0, 1 / 4, 1 / 3, 1 / 2], rtol=0, atol=1e-15)
    assert curve.threshold.tolist() == [0.1, 0.2, 0.2, 0.4]
    rejection = accuracy_rejection_curve(*BY_HAND_TIED)
    np.testing.assert_allclose(rejection.rejection, [0.75, 0.5, 0.25, 0.0], rtol=0, atol=0)
    np.testing.assert_allclose(rejection.accuracy, [1, 3 / 4, 2 / 3, 1 / 2], rtol=0, atol=1e-15)


@pytest.mark.parametrize("hit", [True, False])
def test_one_row_has_figures(hit: bool) -> None:
    assert auarc([0.3], [hit]) == float(hit)
    assert aurc([0.3], [hit]) == float(not hit)
    assert e_aurc([0.3], [hit]) == 0.0
    assert augrc([0.3], [hit]) == float(not hit) / 2
    assert accuracy_at_coverage([0.3], [hit], 0.01) == float(hit)


# Every order of tied rows ---------------------------------------------------------------------


def small_cases(largest: int) -> Iterator[tuple[tuple[int, ...], tuple[bool, ...]]]:
    """All sets of rows with three uncertainties, up to this many, in an order that is none."""
    kinds = list(product(range(3), (False, True)))
    for n in range(1, largest + 1):
        for rows in combinations_with_replacement(kinds, n):
            scores, hits = zip(*rows[1::2], *rows[::2], strict=True)
            yield scores, hits


def assert_equal_to_brute_force(uncertainty: Any, correct: Any) -> None:
    orders = allowed_orders(uncertainty, correct)
    n = len(correct)
    expected_aurc = mean_over(orders, aurc_of)
    best = min(map(aurc_of, all_orders(correct)))
    assert aurc(uncertainty, correct) == pytest.approx(float(expected_aurc), abs=1e-14)
    assert e_aurc(uncertainty, correct) == pytest.approx(float(expected_aurc - best), abs=1e-14)
    expected_auarc = mean_over(orders, auarc_of)
    assert auarc(uncertainty, correct) == pytest.approx(float(expected_auarc), abs=1e-14)
    expected_augrc = mean_over(orders, augrc_of)
    assert augrc(uncertainty, correct) == pytest.approx(float(expected_augrc), abs=1e-14)
    curve = risk_coverage_curve(uncertainty, correct)
    assert curve.coverage.shape == curve.risk.shape == (n,)
    for kept in range(1, n + 1):
        risk = float(mean_over(orders, partial(risk_of_first, kept=kept)))
        assert curve.coverage[kept - 1] == kept / n
        assert curve.risk[kept - 1] == pytest.approx(risk, abs=1e-14)
        at = accuracy_at_coverage(uncertainty, correct, kept / n)
        assert at == pytest.approx(1 - risk, abs=1e-14)
    rejection = accuracy_rejection_curve(uncertainty, correct)
    assert rejection.rejection.tolist() == (1 - curve.coverage).tolist()
    assert rejection.accuracy.tolist() == (1 - curve.risk).tolist()
    if mixed(np.array(correct)):
        expected = float(mean_over(orders, auroc_of))
        assert failure_auroc(uncertainty, correct) == pytest.approx(expected, abs=1e-14)
        expected = float(normalised_auarc_of(uncertainty, correct))
        assert normalised_auarc(uncertainty, correct) == pytest.approx(expected, abs=1e-13)


def test_figures_are_the_mean_over_every_order_of_ties_for_all_cases_up_to_four_rows() -> None:
    for uncertainty, correct in small_cases(4):
        assert_equal_to_brute_force(uncertainty, correct)


@FEW
@given(scored_rows(min_size=5, max_size=6, levels=1))
def test_figures_are_the_mean_over_every_order_of_ties(rows: tuple[Floats, Bools]) -> None:
    uncertainty, correct = rows
    assert_equal_to_brute_force(uncertainty.tolist(), correct.tolist())


INTERVALS = [
    (Fraction(low), Fraction(high))
    for low, high in [
        ("0", "1/2"), ("1/2", "1"), ("1/4", "3/4"), ("1/3", "1"), ("0", "1/100"), ("0.35", "0.8"),
        ("0.99", "1"),
    ]
]  # fmt: skip


def assert_parts_equal_to_brute_force(uncertainty: Any, correct: Any) -> None:
    orders, n = allowed_orders(uncertainty, correct), len(correct)
    for low, high in INTERVALS:
        among = rows_between(low, high, n)
        coverage = (float(low), float(high))
        expected_at = 1 - mean_over(orders, partial(risk_of_first, kept=kept_rows(high, n)))
        at = accuracy_at_coverage(uncertainty, correct, float(high))
        assert at == pytest.approx(float(expected_at), abs=1e-14)
        if not among:
            with pytest.raises(ValueError, match="no example lies between the coverages"):
                auarc(uncertainty, correct, coverage=coverage)
            continue
        for ours, theirs in ((auarc, auarc_of), (aurc, aurc_of), (augrc, augrc_of)):
            expected = mean_over(orders, partial(theirs, among=among))
            value = ours(uncertainty, correct, coverage=coverage)
            assert value == pytest.approx(float(expected), abs=1e-14)
        # Of all rows every order is alike.
        if mixed(np.array(correct)) and list(among) != [n]:
            expected = normalised_auarc_of(uncertainty, correct, among)
            value = normalised_auarc(uncertainty, correct, coverage=coverage)
            assert value == pytest.approx(float(expected), abs=1e-13)


def test_parts_of_areas_are_the_mean_over_every_order_for_all_cases_up_to_three_rows() -> None:
    for uncertainty, correct in small_cases(3):
        assert_parts_equal_to_brute_force(uncertainty, correct)


@FEW
@given(scored_rows(min_size=4, max_size=6, levels=1))
def test_parts_of_areas_are_the_mean_over_every_order(rows: tuple[Floats, Bools]) -> None:
    uncertainty, correct = rows
    assert_parts_equal_to_brute_force(uncertainty.tolist(), correct.tolist())


@PROPERTY
@given(scored_rows(min_size=3), st.integers(1, 29))
def test_parts_of_an_area_make_up_the_whole(rows: tuple[Floats, Bools], cut: int) -> None:
    uncertainty, correct = rows
    n = len(correct)
    k = 1 + cut % (n - 1)
    for figure in (auarc, aurc, augrc):
        low = figure(uncertainty, correct, coverage=(0.0, k / n))
        high = figure(uncertainty, correct, coverage=(k / n, 1.0))
        whole = figure(uncertainty, correct)
        assert (k * low + (n - k) * high) / n == pytest.approx(whole, abs=1e-14)


# Identities -----------------------------------------------------------------------------------


@PROPERTY
@given(scored_rows())
def test_auarc_is_one_minus_aurc(rows: tuple[Floats, Bools]) -> None:
    assert auarc(*rows) == pytest.approx(1 - aurc(*rows), abs=1e-14)


@PROPERTY
@given(scored_rows(min_size=2).filter(lambda rows: mixed(rows[1])))
def test_augrc_is_a_rescaled_failure_auroc_with_ties_too(rows: tuple[Floats, Bools]) -> None:
    uncertainty, correct = rows
    e = 1 - correct.mean()
    expected = (1 - failure_auroc(uncertainty, correct)) * e * (1 - e) + e**2 / 2
    assert augrc(uncertainty, correct) == pytest.approx(expected, abs=1e-14)


@PROPERTY
@given(scored_rows(min_size=2).filter(lambda rows: mixed(rows[1])))
def test_failure_auroc_is_scikit_learns(rows: tuple[Floats, Bools]) -> None:
    uncertainty, correct = rows
    expected = roc_auc_score(~correct, uncertainty)
    assert failure_auroc(uncertainty, correct) == pytest.approx(expected, abs=1e-14)


@PROPERTY
@given(scored_rows(min_size=2).filter(lambda rows: mixed(rows[1])))
def test_failure_auroc_counts_pairs(rows: tuple[Floats, Bools]) -> None:
    uncertainty, correct = rows
    gaps = uncertainty[~correct][:, None] - uncertainty[correct][None, :]
    expected = (np.sign(gaps) + 1).mean() / 2
    assert failure_auroc(uncertainty, correct) == pytest.approx(expected, abs=1e-14)


@PROPERTY
@given(scored_rows(min_size=2).filter(lambda rows: mixed(rows[1])))
def test_failure_aupr_and_fpr_are_scikit_learns(rows: tuple[Floats, Bools]) -> None:
    uncertainty, correct = rows
    expected = average_precision_score(~correct, uncertainty)
    assert failure_aupr(uncertainty, correct) == pytest.approx(expected, abs=1e-14)
    fprs, tprs, _ = roc_curve(~correct, uncertainty, drop_intermediate=False)
    for tpr in (0.01, 0.5, 0.8, 0.95, 1.0):
        expected = fprs[tprs >= tpr - 1e-12].min()
        assert fpr_at_tpr(uncertainty, correct, tpr=tpr) == pytest.approx(expected, abs=1e-14)


@PROPERTY
@given(scored_rows(), st.integers(0, 20))
def test_coverage_at_risk_is_the_best_of_all_thresholds(
    rows: tuple[Floats, Bools], twentieths: int
) -> None:
    uncertainty, correct = rows
    best = 0.0
    for threshold in uncertainty:
        kept = correct[uncertainty <= threshold]
        if Fraction(int((~kept).sum()), len(kept)) <= Fraction(twentieths, 20):
            best = max(best, len(kept) / len(correct))
    assert coverage_at_risk(uncertainty, correct, twentieths / 20) == best


def at_distinct_thresholds(uncertainty: Floats, correct: Bools) -> tuple[Floats, Floats]:
    """Coverage, and errors among the kept / n, wherever a threshold can be put."""
    kept = uncertainty[None, :] <= np.unique(uncertainty)[:, None]
    return kept.mean(axis=1), (kept & ~correct).mean(axis=1)


@PROPERTY
@given(scored_rows())
def test_augrc_is_trapezoids_between_distinct_thresholds(rows: tuple[Floats, Bools]) -> None:
    """As in fd-shifts: the generalised risk is linear along ties, so these are no exception."""
    coverage, generalised = at_distinct_thresholds(*rows)
    area = np.trapezoid(np.r_[0.0, generalised], np.r_[0.0, coverage])
    assert augrc(*rows) == pytest.approx(float(area), abs=1e-14)


@PROPERTY
@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_aurc_differs_from_trapezoids_by_half_a_step_of_its_ends(hits: list[bool]) -> None:
    """As in fd-shifts, without ties: trapezoids, and the first risk down to coverage 0."""
    correct = np.array(hits)
    n = len(correct)
    coverage, generalised = at_distinct_thresholds(np.arange(n, dtype=np.float64), correct)
    risk = generalised / coverage
    area = float(np.trapezoid(np.r_[risk[0], risk], np.r_[0.0, coverage]))
    expected = area - (risk[0] - risk[-1]) / (2 * n)
    assert aurc(np.arange(n), correct) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_asymptotic_oracle_is_the_area_of_its_curve(rate: float) -> None:
    """All hits first: the risk at coverage c is (c - (1 - e)) / c beyond 1 - e, 0 before."""
    area, _ = quad(lambda c: (c - (1 - rate)) / c, 1 - rate, 1, epsabs=1e-13)
    n = 1000
    correct = np.arange(n) >= round(rate * n)
    uncertainty = np.random.default_rng(0).random(n)
    value = e_aurc(uncertainty, correct, oracle="asymptotic")
    assert value == pytest.approx(aurc(uncertainty, correct) - area, abs=1e-12)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_finite_oracle_tends_to_the_asymptotic_one(rate: float) -> None:
    gaps = []
    for n in (10, 100, 1000, 10_000):
        correct = np.arange(n) >= round(rate * n)
        gap = e_aurc(np.zeros(n), correct, oracle="asymptotic") - e_aurc(np.zeros(n), correct)
        gaps.append(n * gap)
    assert gaps[-1] / 10_000 < 1e-4
    # The mean over k = 1..n is a right-hand sum of a rising curve: e/2 of a step above the area.
    assert gaps[-1] == pytest.approx(rate / 2, rel=1e-3)


def test_e_aurc_without_hits_is_zero_for_both_oracles() -> None:
    for oracle in ("finite", "asymptotic"):
        assert e_aurc([1, 2, 2], [False] * 3, oracle=oracle) == pytest.approx(0.0, abs=1e-15)


@PROPERTY
@given(scored_rows(min_size=2))
def test_an_order_and_its_reverse_share_the_errors_out(rows: tuple[Floats, Bools]) -> None:
    uncertainty, correct = rows
    both = augrc(uncertainty, correct) + augrc(-uncertainty, correct)
    assert both == pytest.approx(1 - correct.mean(), abs=1e-14)
    if mixed(correct):
        both = failure_auroc(uncertainty, correct) + failure_auroc(-uncertainty, correct)
        assert both == pytest.approx(1.0, abs=1e-14)


@PROPERTY
@given(scored_rows())
def test_accuracy_at_full_coverage_is_accuracy(rows: tuple[Floats, Bools]) -> None:
    uncertainty, correct = rows
    assert accuracy_at_coverage(uncertainty, correct, 1.0) == correct.mean()
    assert risk_coverage_curve(uncertainty, correct).risk[-1] == (~correct).mean()


@pytest.mark.parametrize("seed", range(3))
def test_figures_on_many_rows_agree_with_straightforward_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 5_000
    uncertainty = rng.permutation(n) / n  # no ties, so one order only
    correct = rng.random(n) > uncertainty / 2
    hits = correct[np.argsort(uncertainty)]
    accuracies = [hits[:k].mean() for k in range(1, n + 1)]
    assert auarc(uncertainty, correct) == pytest.approx(float(np.mean(accuracies)), abs=1e-12)
    assert at_70_percent(uncertainty, correct) == pytest.approx(hits[: int(0.7 * n)].mean())
    expected = roc_auc_score(~correct, uncertainty)
    assert failure_auroc(uncertainty, correct) == pytest.approx(expected, abs=1e-12)
    generalised = [(~hits[:k]).sum() / n for k in range(n + 1)]
    area = np.trapezoid(generalised, dx=1 / n)
    assert augrc(uncertainty, correct) == pytest.approx(float(area), abs=1e-12)


def test_a_hundred_thousand_ties_lose_no_digits() -> None:
    n = 100_000
    correct = np.arange(n) % 3 != 0
    accuracy = float(correct.mean())
    assert auarc(np.zeros(n), correct) == pytest.approx(accuracy, abs=1e-11)
    assert augrc(np.zeros(n), correct) == pytest.approx((1 - accuracy) / 2, abs=1e-11)
    assert risk_coverage_curve(np.zeros(n), correct).risk[-1] == (~correct).sum() / n


# Invariances ----------------------------------------------------------------------------------


@PROPERTY
@given(scored_rows(), st.randoms(use_true_random=False))
def test_no_figure_depends_on_the_order_of_the_rows(
    rows: tuple[Floats, Bools], random: Any
) -> None:
    uncertainty, correct = rows
    order = list(range(len(correct)))
    random.shuffle(order)
    for figure in ALL_FIGURES:
        if defined(figure, correct):
            assert figure(uncertainty[order], correct[order]) == figure(uncertainty, correct)


@pytest.mark.parametrize(
    "transform",
    [
        lambda s: 3 * s + 7,
        np.exp,
        lambda s: s**3,
        np.arctan,
        lambda s: np.where(s == s.max(), np.inf, s),
        lambda s: np.where(s == s.min(), -np.inf, s),
    ],
    ids=["affine", "exp", "cube", "arctan", "infinite at the top", "infinite at the bottom"],
)
@PROPERTY
@given(rows=scored_rows())
def test_figures_read_only_the_ranks(
    transform: Callable[[Floats], Floats], rows: tuple[Floats, Bools]
) -> None:
    uncertainty, correct = rows
    moved = transform(uncertainty)
    for figure in ALL_FIGURES:
        if defined(figure, correct):
            assert figure(moved, correct) == figure(uncertainty, correct)


@PROPERTY
@given(scored_rows())
def test_no_order_is_better_than_the_oracle_or_worse_than_its_reverse(
    rows: tuple[Floats, Bools],
) -> None:
    uncertainty, correct = rows
    oracle, worst = (~correct).astype(float), correct.astype(float)
    for figure in (aurc, e_aurc, augrc):
        low, value, high = (figure(s, correct) for s in (oracle, uncertainty, worst))
        assert low - 1e-14 <= value <= high + 1e-14
    assert e_aurc(oracle, correct) == 0.0
    assert e_aurc(uncertainty, correct) >= 0.0
    if mixed(correct):
        assert normalised_auarc(oracle, correct) == 1.0
        assert normalised_auarc(worst, correct) < 0.0
        assert normalised_auarc(uncertainty, correct) <= 1.0 + 1e-14
        assert failure_aupr(oracle, correct) == 1.0
        assert fpr_at_tpr(oracle, correct) == 0.0
        assert fpr_at_tpr(worst, correct) == 1.0
        assert failure_auroc(oracle, correct) == 1.0
        assert failure_auroc(worst, correct) == 0.0


@PROPERTY
@given(scored_rows())
def test_a_constant_score_is_the_random_order(rows: tuple[Floats, Bools]) -> None:
    _, correct = rows
    constant, accuracy = np.zeros(len(correct)), float(correct.mean())
    assert auarc(constant, correct) == pytest.approx(accuracy, abs=1e-14)
    assert augrc(constant, correct) == pytest.approx((1 - accuracy) / 2, abs=1e-14)
    for coverage in (0.01, 0.5, 0.9):
        at = accuracy_at_coverage(constant, correct, coverage)
        assert at == pytest.approx(accuracy, abs=1e-14)
    if mixed(correct):
        assert failure_auroc(constant, correct) == 0.5
        assert failure_aupr(constant, correct) == pytest.approx(1 - accuracy, abs=1e-14)
        assert fpr_at_tpr(constant, correct) == 1.0
        assert normalised_auarc(constant, correct) == pytest.approx(0.0, abs=1e-12)


def test_random_scores_are_a_constant_one_on_average() -> None:
    """The mean over all 5! orders of distinct scores, not over ties."""
    correct = (True, False, True, True, False)
    mean = mean_over(all_orders(correct), aurc_of)
    assert mean == Fraction(2, 5)
    assert aurc([0.0] * 5, correct) == pytest.approx(0.4, abs=1e-15)


@PROPERTY
@given(scored_rows(min_size=2), st.data())
def test_to_mend_an_error_never_lowers_auarc(rows: tuple[Floats, Bools], data: Any) -> None:
    uncertainty, correct = rows
    mended = correct.copy()
    mended[data.draw(st.integers(0, len(correct) - 1))] = True
    assert auarc(uncertainty, mended) >= auarc(uncertainty, correct) - 1e-14


def test_higher_is_rejected_first() -> None:
    correct = [True, True, False, False]
    assert auarc([1, 2, 3, 4], correct) > auarc([4, 3, 2, 1], correct)
    assert failure_auroc([1, 2, 3, 4], correct) == 1.0


# Coverage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 20, 30, 60, 70, 100, 1000])
def test_whole_numbers_of_kept_rows_are_not_lost_to_rounding(n: int) -> None:
    """With hits first, accuracy at coverage k / n tells k: 1 up to the middle, then (n/2) / k."""
    correct = np.arange(n) < (n + 1) // 2
    for tenths in range(1, 11):
        kept = max(1, n * tenths // 10)
        expected = correct[:kept].mean()
        assert accuracy_at_coverage(np.arange(n), correct, tenths / 10) == pytest.approx(expected)
        summed = sum([0.1] * tenths)  # 0.7999999999999999 for 0.8
        if summed <= 1:
            assert accuracy_at_coverage(np.arange(n), correct, summed) == pytest.approx(expected)


def test_kept_rows_are_rounded_down_but_one_is_always_kept() -> None:
    uncertainty, correct = [1, 2, 3], [True, False, False]
    assert accuracy_at_coverage(uncertainty, correct, 0.99) == 0.5  # floor(2.97) = 2
    assert accuracy_at_coverage(uncertainty, correct, 1e-6) == 1.0


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.0001, float("nan"), float("inf")])
def test_coverage_outside_its_range_is_refused(coverage: float) -> None:
    with pytest.raises(ValueError, match=r"coverage is .* must be in \(0, 1\]"):
        accuracy_at_coverage([0.1, 0.2], [True, False], coverage)


@pytest.mark.parametrize(
    "coverage", [(0.5, 0.5), (0.6, 0.5), (-0.1, 1.0), (0.0, 1.1), (float("nan"), 1.0)]
)
@pytest.mark.parametrize("figure", [auarc, aurc, augrc, normalised_auarc])
def test_intervals_that_are_none_are_refused(
    figure: Callable[..., float], coverage: tuple[float, float]
) -> None:
    with pytest.raises(ValueError, match=r"coverage is .*: two shares low < high in \[0, 1\]"):
        figure([0.1, 0.2], [True, False], coverage=coverage)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_other_shares_outside_their_range_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"max_risk is .* must be in \[0, 1\]"):
        coverage_at_risk([0.1, 0.2], [True, False], share)
    with pytest.raises(ValueError, match=r"tpr is .* must be in \(0, 1\]"):
        fpr_at_tpr([0.1, 0.2], [True, False], tpr=share)


def test_unknown_oracle_is_refused() -> None:
    with pytest.raises(ValueError, match='oracle is "best": it must be finite or asymptotic'):
        e_aurc([0.1, 0.2], [True, False], oracle="best")  # type: ignore[arg-type]


# Arguments ------------------------------------------------------------------------------------

WITH_CURVE: list[Callable[[Any, Any], Any]] = [
    *ALL_FIGURES, risk_coverage_curve, accuracy_rejection_curve, curve_figures,
]  # fmt: skip


@pytest.mark.parametrize("figure", WITH_CURVE)
def test_nan_is_refused_with_its_row(figure: Callable[[Any, Any], Any]) -> None:
    nan = float("nan")
    with pytest.raises(ValueError, match="NaN in 2 rows: 1, 3"):
        figure([0.1, nan, 0.3, nan], [True, False, True, True])


def test_of_many_nan_rows_the_first_are_named() -> None:
    with pytest.raises(ValueError, match=r"uncertainty is NaN in 7 rows: 0, 1, 2, 3, 4, \.\.\.$"):
        auarc(np.full(7, np.nan), [True] * 7)


@pytest.mark.parametrize("figure", WITH_CURVE)
@pytest.mark.parametrize(
    ("uncertainty", "correct", "shapes"),
    [
        ([0.1, 0.2], [True], r"\(2,\), correct \(1,\)"),
        ([[0.1, 0.2]], [[True, False]], r"\(1, 2\), correct \(1, 2\)"),
        (0.1, True, r"\(\), correct \(\)"),
        ([0.1, 0.2], [[True], [False]], r"\(2,\), correct \(2, 1\)"),
    ],
)
def test_wrong_shapes_are_refused_and_named(
    figure: Callable[[Any, Any], Any], uncertainty: Any, correct: Any, shapes: str
) -> None:
    with pytest.raises(ValueError, match=shapes):
        figure(uncertainty, correct)


@pytest.mark.parametrize("figure", WITH_CURVE)
def test_no_rows_are_refused(figure: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(ValueError, match="no examples"):
        figure([], [])


@pytest.mark.parametrize("figure", WITH_CURVE)
@pytest.mark.parametrize("correct", [[0, 2], [0.5, 1.0], [-1, 1], [1.0, float("nan")]])
def test_correctness_that_is_neither_is_refused(
    figure: Callable[[Any, Any], Any], correct: list[float]
) -> None:
    with pytest.raises(ValueError, match="booleans, or 0 and 1"):
        figure([0.1, 0.2], correct)


@pytest.mark.parametrize("figure", ALL_FIGURES)
def test_lists_arrays_tensors_and_series_give_the_same(figure: Figure) -> None:
    uncertainty, correct = BY_HAND_TIED
    expected = figure(uncertainty, correct)
    forms: list[tuple[Any, Any]] = [
        (np.array(uncertainty), np.array(correct)),
        (np.array(uncertainty), np.array(correct, dtype=np.int64)),
        (np.array(uncertainty), np.array(correct, dtype=np.float32)),
        (torch.tensor(uncertainty), torch.tensor(correct)),
        (torch.tensor(uncertainty, requires_grad=True), torch.tensor(correct).float()),
        (pd.Series(uncertainty, index=[9, 8, 7, 6]), pd.Series(correct)),
        (torch.tensor(uncertainty, dtype=torch.bfloat16), torch.tensor(correct)),
        (torch.tensor(uncertainty, dtype=torch.float16), torch.tensor(correct).to(torch.uint8)),
        (np.array(uncertainty, dtype=np.float16), correct),
        (np.array([1, 2, 2, 4]), correct),
        (np.array([-3, 0, 0, 100], dtype=np.int8), correct),
    ]
    for form in forms:
        result = figure(*form)
        assert type(result) is float
        assert result == expected


def test_precision_is_kept_where_it_tells_scores_apart() -> None:
    """Equal as float32, not as float64: nothing is cast down."""
    uncertainty = np.array([0.3, 0.3 + 1e-12])
    assert failure_auroc(uncertainty, [True, False]) == 1.0
    assert failure_auroc(uncertainty.astype(np.float32), [True, False]) == 0.5


@pytest.mark.parametrize("figure", ALL_FIGURES)
def test_arguments_are_left_as_they_were(figure: Figure) -> None:
    uncertainty, correct = np.array([0.3, 0.1, 0.2]), np.array([1, 0, 1])
    figure(uncertainty, correct)
    assert uncertainty.tolist() == [0.3, 0.1, 0.2]
    assert correct.tolist() == [1, 0, 1]


# Undefined ------------------------------------------------------------------------------------


ALIKE = pytest.mark.parametrize(
    ("correct", "reason"), [([True] * 3, "no errors"), ([False] * 3, "nothing right")]
)


@ALIKE
@pytest.mark.parametrize(
    ("figure", "name"),
    [
        (failure_auroc, "failure AUROC"),
        (failure_aupr, "failure AUPR"),
        (fpr_at_tpr, "FPR at 95% TPR"),
        (normalised_auarc, "normalised AUARC"),
    ],
)
def test_figures_of_one_kind_are_nan_and_warn(
    figure: Figure, name: str, correct: list[bool], reason: str
) -> None:
    message = f"^{name} is undefined: {reason} among 3 examples$"
    with pytest.warns(UndefinedMetricWarning, match=message) as caught:
        assert np.isnan(figure([0.1, 0.2, 0.3], correct))
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_gap_that_no_order_closes_is_nan_and_warns() -> None:
    """The last tenth of ten rows keeps all of them, in whatever order."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        uncertainty, correct = rng.random(10), rng.permutation(10) < 7
        message = "every order is alike between the coverages 0.9 and 1.0"
        with pytest.warns(UndefinedMetricWarning, match=message) as caught:
            assert np.isnan(normalised_auarc(uncertainty, correct, coverage=(0.9, 1.0)))
        assert caught[0].filename == __file__


@ALIKE
def test_curve_figures_warn_once(correct: list[bool], reason: str) -> None:
    message = (
        "^normalised_auarc, failure_auroc, failure_aupr, fpr_at_95_tpr are undefined: "
        f"{reason} among 3 examples$"
    )
    with pytest.warns(UndefinedMetricWarning, match=message) as caught:
        figures = curve_figures([0.1, 0.2, 0.3], correct)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert {name for name, value in figures.items() if np.isnan(value)} == {
        "normalised_auarc", "failure_auroc", "failure_aupr", "fpr_at_95_tpr",
    }  # fmt: skip
    assert figures["auarc"] == pytest.approx(float(correct[0]), abs=1e-14)


@PROPERTY
@given(scored_rows(min_size=2).filter(lambda rows: mixed(rows[1])))
def test_curve_figures_are_the_single_ones(rows: tuple[Floats, Bools]) -> None:
    singles: dict[str, Figure] = {
        "auarc": auarc, "aurc": aurc, "e_aurc": e_aurc, "augrc": augrc,
        "normalised_auarc": normalised_auarc, "failure_auroc": failure_auroc,
        "failure_aupr": failure_aupr, "fpr_at_95_tpr": fpr_at_tpr,
    }  # fmt: skip
    assert tuple(singles) == metrics.CURVE_FIGURES
    figures = curve_figures(*rows)
    assert figures == {name: single(*rows) for name, single in singles.items()}
    assert all(type(value) is float for value in figures.values())


@pytest.mark.parametrize("figure", CURVE_FIGURES)
@pytest.mark.parametrize("hit", [True, False])
def test_other_figures_are_defined_without_errors_and_without_hits(
    figure: Figure, hit: bool
) -> None:
    value = figure([0.1, 0.2, 0.3], [hit] * 3)
    assert np.isfinite(value)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from revar.errors import InputError
from revar.metrics import accuracy_at_coverage
from revar.selection import Attainable, threshold_for_coverage
from support.properties import PROPERTY

# Whole numbers tie often; floats of every size hardly ever.
uncertainties = st.one_of(
    st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=40),
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=40),
)
coverages = st.one_of(
    st.floats(1e-6, 1.0),
    st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1 / 3, 2 / 3]),
)


# By hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coverage", "threshold", "accepted"),
    [(0.25, 1.0, 0.25), (0.26, 2.0, 0.5), (0.5, 2.0, 0.5), (0.75, 3.0, 0.75), (1.0, 4.0, 1.0)],
)
def test_by_hand_without_ties(coverage: float, threshold: float, accepted: float) -> None:
    found = threshold_for_coverage([3.0, 1.0, 4.0, 2.0], coverage)
    assert found.threshold == threshold
    assert found.coverage == accepted
    assert found.wanted == coverage
    assert found.n == 4
    assert found.best == Attainable(threshold=threshold, coverage=accepted)
    assert found.risk is found.risk_bound is found.max_risk is None


@pytest.mark.parametrize(
    ("coverage", "threshold", "accepted"),
    [(0.2, 1.0, 0.2), (0.4, 2.0, 0.8), (0.6, 2.0, 0.8), (0.8, 2.0, 0.8), (0.81, 3.0, 1.0)],
)
def test_ties_are_accepted_together(coverage: float, threshold: float, accepted: float) -> None:
    found = threshold_for_coverage([2.0, 1.0, 2.0, 3.0, 2.0], coverage)
    assert found.threshold == threshold
    assert found.coverage == accepted


def test_all_tied_are_all_accepted() -> None:
    found = threshold_for_coverage([0.5] * 10, 0.1)
    assert found.threshold == 0.5
    assert found.coverage == 1.0
    assert found.wanted == 0.1


def test_full_coverage_accepts_the_most_uncertain_by_the_inclusive_rule() -> None:
    values = np.random.default_rng(0).normal(size=101)
    found = threshold_for_coverage(values, 1.0)
    assert found.threshold == values.max()
    assert found.inclusive is True
    assert found.coverage == 1.0
    assert found.accept(values).all()
    assert not (values < values.max()).all()


def test_the_tiniest_coverage_accepts_one() -> None:
    found = threshold_for_coverage([5.0, 3.0, 4.0], 1e-12)
    assert found.threshold == 3.0
    assert found.coverage == pytest.approx(1 / 3)


def test_infinite_uncertainty_is_accepted_last() -> None:
    values = [np.inf, 1.0, -np.inf, 2.0]
    assert threshold_for_coverage(values, 0.25).threshold == -np.inf
    assert threshold_for_coverage(values, 0.75).threshold == 2.0
    assert threshold_for_coverage(values, 1.0).threshold == np.inf


def test_the_score_is_remembered() -> None:
    assert threshold_for_coverage([1.0], 0.5, score="fused").score == "fused"
    assert threshold_for_coverage([1.0], 0.5).score == ""


@pytest.mark.parametrize("n", [10, 30, 70, 100, 1000])
@pytest.mark.parametrize("tenths", range(1, 11))
def test_rounding_does_not_ask_for_one_more(n: int, tenths: int) -> None:
    values = np.arange(n, dtype=float)
    needed = n * tenths // 10
    for coverage in (tenths / 10, tenths * 0.1, 1 - (10 - tenths) / 10):  # 3 * 0.1 > 0.3
        found = threshold_for_coverage(values, min(coverage, 1.0))
        assert found.threshold == needed - 1
        assert found.coverage == needed / n


def test_the_interval_by_order_statistics() -> None:
    # Without ties the coverage of the 8th of 10 follows Beta(8, 3); the upper end is that of
    # Beta(9, 2), which holds with ties too.
    found = threshold_for_coverage(np.arange(10.0), 0.8, confidence=0.9)
    low, high = found.coverage_interval
    assert beta.cdf(low, 8, 3) == pytest.approx(0.05)
    assert beta.cdf(high, 9, 2) == pytest.approx(0.95)
    # The smallest of n: P(C < c) = 1 - (1 - c)^n.
    low, _ = threshold_for_coverage(np.arange(10.0), 0.1, confidence=0.9).coverage_interval
    assert low == pytest.approx(1 - 0.95 ** (1 / 10))
    # All tied: it may well be everything, and at least what the smallest of 10 says.
    low, high = threshold_for_coverage(np.zeros(10), 0.1, confidence=0.9).coverage_interval
    assert low == pytest.approx(1 - 0.95 ** (1 / 10))
    assert high == 1.0


@PROPERTY
@given(uncertainties, coverages, st.floats(0.5, 0.999))
def test_the_interval_holds_the_observed_coverage(
    values: list[float], coverage: float, confidence: float
) -> None:
    found = threshold_for_coverage(values, coverage, confidence=confidence)
    low, high = found.coverage_interval
    assert 0.0 <= low <= found.coverage <= high <= 1.0


# Properties -----------------------------------------------------------------------------------


@PROPERTY
@given(uncertainties, coverages)
def test_at_least_the_wanted_share_is_accepted_and_no_smaller_threshold_does(
    values: list[float], coverage: float
) -> None:
    found = threshold_for_coverage(values, coverage)
    n = len(values)
    assert found.threshold is not None
    accepted = sum(value <= found.threshold for value in values)
    assert found.coverage == accepted / n
    assert accepted >= coverage * n - 1e-9
    assert found.threshold in values
    # Any smaller threshold accepts at most what is strictly below.
    fewer = sum(value < found.threshold for value in values)
    assert fewer < coverage * n
    assert found.n == n
    assert found.wanted == coverage


@PROPERTY
@given(uncertainties, coverages, coverages)
def test_a_larger_coverage_has_no_smaller_threshold(
    values: list[float], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    first, second = threshold_for_coverage(values, low), threshold_for_coverage(values, high)
    assert first.threshold is not None
    assert second.threshold is not None
    assert first.threshold <= second.threshold
    assert first.coverage <= second.coverage


@PROPERTY
@given(uncertainties, coverages, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    values: list[float], coverage: float, random: Any
) -> None:
    shuffled = values.copy()
    random.shuffle(shuffled)
    assert threshold_for_coverage(shuffled, coverage) == threshold_for_coverage(values, coverage)


def test_the_accepted_have_the_accuracy_of_that_coverage() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=200)
    correct = rng.random(200) > expit_of(values)
    for coverage in (0.1, 0.5, 0.9, 1.0):
        found = threshold_for_coverage(values, coverage)
        accepted = found.accept(values)
        expected = accuracy_at_coverage(values, correct, coverage)
        assert correct[accepted].mean() == pytest.approx(expected)


def expit_of(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def test_coverage_carries_over_to_fresh_data() -> None:
    rng = np.random.default_rng(0)
    found = threshold_for_coverage(rng.normal(size=10_000), 0.8)
    share = found.accept(rng.normal(size=10_000)).mean()
    # Two standard errors of sqrt(0.16 / 10,000) each, added in squares: 0.0057; four are allowed.
    assert share == pytest.approx(0.8, abs=0.023)


# Arguments ------------------------------------------------------------------------------------


def test_tensors_lists_and_arrays_give_the_same_and_stay_as_they_were() -> None:
    values = np.array([0.5, 0.25, 1.0])
    expected = threshold_for_coverage(values.tolist(), 0.5)
    assert threshold_for_coverage(values, 0.5) == expected
    assert threshold_for_coverage(torch.tensor(values, requires_grad=True), 0.5) == expected
    assert threshold_for_coverage(torch.tensor(values).float(), 0.5) == expected
    assert values.tolist() == [0.5, 0.25, 1.0]
    assert type(expected.threshold) is float


@pytest.mark.parametrize("coverage", [0.0, -1.0, 1.01, float("nan"), float("inf")])
def test_coverage_outside_its_range_is_refused(coverage: float) -> None:
    with pytest.raises(InputError, match=r"coverage is .* must be in \(0, 1\]"):
        threshold_for_coverage([1.0, 2.0], coverage)


@pytest.mark.parametrize(
    ("values", "shape"), [([], r"\(0,\)"), ([[1.0, 2.0]], r"\(1, 2\)"), (1.0, r"\(\)")]
)
def test_no_vector_is_refused(values: Any, shape: str) -> None:
    with pytest.raises(InputError, match=f"shape {shape}"):
        threshold_for_coverage(values, 0.5)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, float("nan")])
def test_confidence_outside_its_range_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match=r"confidence is .* must be in \(0, 1\)"):
        threshold_for_coverage([1.0, 2.0], 0.5, confidence=confidence)


def test_nan_is_refused_and_counted() -> None:
    with pytest.raises(InputError, match="uncertainty is NaN in 2 rows: 1, 2"):
        threshold_for_coverage([1.0, float("nan"), float("nan")], 0.5)

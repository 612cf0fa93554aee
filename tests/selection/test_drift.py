from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import betabinom, binom

from revar.errors import InputError
from revar.selection import coverage_drift, threshold_for_coverage, threshold_for_risk


def live(accepted: int, m: int) -> Any:
    """m values of which so many are accepted by every threshold from 0 to 10^6."""
    return np.r_[np.full(accepted, -1.0), np.full(m - accepted, 1e7)]


def test_tails_by_counting_all_orders() -> None:
    # Four calibration and three live values, every order as likely; the threshold is the second
    # calibration value.
    n, m, k = 4, 3, 2
    found = threshold_for_coverage(np.arange(4.0), 0.5)
    below = [places[k - 1] - (k - 1) for places in combinations(range(n + m), n)]
    for accepted in range(m + 1):
        few = np.mean([count <= accepted for count in below])
        drift = coverage_drift(found, live(accepted, m))
        # "Too many" is that of the next calibration value, which holds with ties too.
        many = betabinom.sf(accepted - 1, m, k + 1, n - k)
        assert drift.p_value == pytest.approx(min(1.0, 2 * min(few, many)))
        assert few == pytest.approx(betabinom.cdf(accepted, m, k, n + 1 - k))


@pytest.mark.parametrize(("n", "m"), [(50, 20), (300, 1000), (10, 1000)])
@pytest.mark.parametrize("coverage", [0.1, 0.8, 1.0])
def test_interval_and_p_value_against_the_beta_binomial(n: int, m: int, coverage: float) -> None:
    found = threshold_for_coverage(np.arange(float(n)), coverage)
    k = round(coverage * n)
    counts = np.arange(m + 1)
    few = betabinom.cdf(counts, m, k, n + 1 - k)
    many = betabinom.sf(counts - 1, m, k + 1, n - k) if k < n else np.ones(m + 1)
    fine = counts[(few > 0.025) & (many > 0.025)]
    for accepted in {0, m // 2, m, int(fine[0]), int(fine[-1]), max(int(fine[0]) - 1, 0)}:
        drift = coverage_drift(found, live(accepted, m))
        assert drift.interval == (fine[0] / m, fine[-1] / m)
        assert drift.drifted == (accepted not in fine)
        expected = min(1.0, 2 * min(few[accepted], many[accepted]))
        assert drift.p_value == pytest.approx(expected, rel=1e-6, abs=1e-12)
        assert drift.live_coverage == accepted / m
        assert drift.reference_coverage == k / n
        assert drift.n_live == m


def test_values_with_a_threshold_and_a_result_agree_without_ties() -> None:
    values = np.random.default_rng(0).random(100)
    found = threshold_for_coverage(values, 0.7)
    new = np.random.default_rng(1).random(80)
    assert coverage_drift(values, new, threshold=found.threshold) == coverage_drift(found, new)


def test_a_fixed_threshold_between_values_is_fishers_test() -> None:
    # 3 of 4 against 0 of 4: P(all of 3 accepted are calibration) = 4 / C(8, 3) = 4 / 56.
    drift = coverage_drift([1.0, 2.0, 3.0, 9.0], [7.0] * 4, threshold=5.0)
    assert drift.p_value == pytest.approx(2 * 4 / 56)
    assert coverage_drift([7.0], [7.0], threshold=5.0).p_value == 1.0


def test_a_threshold_for_a_risk_has_a_wider_interval() -> None:
    rng = np.random.default_rng(0)
    uncertainty = rng.random(500)
    correct = rng.random(500) >= 0.4 * uncertainty**3
    found = threshold_for_risk(uncertainty, correct, max_risk=0.05)
    assert found.threshold is not None
    drift = coverage_drift(found, live(int(found.coverage * 300), 300))
    ranked = coverage_drift(uncertainty, live(250, 300), threshold=found.threshold)
    assert drift.interval[0] < ranked.interval[0] < ranked.interval[1] < drift.interval[1]
    assert not drift.drifted
    # By hand: a band for the rate at a quarter of 5 %, the binomial tail at its edge for the rest.
    low = found.coverage - np.sqrt(np.log(2 / 0.0125) / 1000)
    least = round(drift.interval[0] * 300)
    assert binom.cdf(least, 300, low) > 0.0375 / 2 >= binom.cdf(least - 1, 300, low)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_real_drift_is_noticed_and_said(factor: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.exponential(size=500)
    found = threshold_for_coverage(values, 0.8)
    drift = coverage_drift(found, factor * rng.exponential(size=300))
    assert drift.drifted
    assert drift.p_value < 1e-4
    assert "has left" in drift.message
    calm = coverage_drift(found, rng.exponential(size=300))
    assert not calm.drifted
    assert "is within" in calm.message
    correct = values < np.quantile(values, 0.95)
    by_risk = threshold_for_risk(values, correct, max_risk=0.05)
    assert coverage_drift(by_risk, 5 * rng.exponential(size=300)).drifted


@pytest.mark.parametrize(
    ("reference", "new", "options", "message"),
    [
        ([1.0, 2.0], [1.0], {}, "give the threshold="),
        ([1.0, 2.0], [], {"threshold": 1.0}, r"live has shape \(0,\)"),
        ([1.0, 2.0], [float("nan")], {"threshold": 1.0}, "live is NaN in 1 rows: 0"),
        ([], [1.0], {"threshold": 1.0}, r"reference has shape \(0,\)"),
        ([1.0], [1.0], {"threshold": float("nan")}, "give the threshold="),
        ([1.0], [1.0], {"threshold": 1.0, "confidence": 1.0}, "confidence is 1.0"),
        (threshold_for_coverage([1.0], 1.0), [1.0], {"threshold": 1.0}, "not for a Threshold"),
        (threshold_for_risk([1.0], [True], max_risk=0.1), [1.0], {}, "has no threshold"),
    ],
)
def test_what_cannot_be_is_refused(
    reference: Any, new: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        coverage_drift(reference, new, **options)

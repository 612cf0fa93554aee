"""Agreement of learned and ideal weights, by cases whose figures are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revar.metrics.agreement import agreement

RNG = np.random.default_rng(0)
NOISE = RNG.exponential(size=500) + 0.01
DISTANCE = RNG.chisquare(5, size=500)


def test_the_ideal_itself() -> None:
    floored = 1 / (NOISE + np.quantile(NOISE, 0.1))
    found = agreement(7 * floored, NOISE)
    assert found.spearman == pytest.approx(1)
    assert found.kendall == pytest.approx(1)
    assert found.r2_log == pytest.approx(1)
    assert found.r2_floored == pytest.approx(1)
    assert found.noise_coefficient == pytest.approx(1)
    assert math.isnan(found.shift_share)
    assert agreement(1 / NOISE, NOISE).r2_uncentred == pytest.approx(1)


def test_a_mixture_gives_its_shares_back() -> None:
    first = 1 / (NOISE + np.quantile(NOISE, 0.1))
    weights = 0.3 * first / first.mean() + 0.7 * DISTANCE / DISTANCE.mean()
    found = agreement(weights, NOISE, DISTANCE)
    assert found.noise_coefficient == pytest.approx(0.3)
    assert found.shift_coefficient == pytest.approx(0.7)
    assert found.shift_share == pytest.approx(0.7)
    assert found.r2_floored == pytest.approx(1)
    assert found.spearman == pytest.approx(1)


def test_a_constant_ideal_leaves_only_the_spread() -> None:
    weights = np.array([1.0, 2.0, 3.0])
    found = agreement(weights, np.ones(3))
    cv = math.sqrt(2 / 3) / 2
    assert found.cv == pytest.approx(cv)
    assert found.r2_uncentred == pytest.approx(1 / (1 + cv**2))
    for name in ("spearman", "kendall", "r2_log", "r2_floored", "r2_winsorised"):
        assert math.isnan(getattr(found, name)), name


def test_constant_weights_agree_with_nothing() -> None:
    found = agreement(np.full(500, 0.4), NOISE)
    assert math.isnan(found.spearman)
    assert math.isnan(found.r2_floored)
    assert found.cv == 0
    # The uncentred figure is not small all the same, which is why it is never shown alone.
    assert found.r2_uncentred > 0.05


def test_ranks_by_hand() -> None:
    """Of the ten pairs of 1, 3, 2, 5, 4 two are out of order."""
    found = agreement([1.0, 3.0, 2.0, 5.0, 4.0], 1 / np.arange(1.0, 6.0))
    assert found.kendall == pytest.approx((8 - 2) / 10)
    assert found.spearman == pytest.approx(1 - 6 * 4 / (5 * 24))


def test_winsorising_cuts_the_tail() -> None:
    """Weights that follow 1/noise up to a bound agree once the target has one too."""
    noise = RNG.normal(size=4000) ** 2
    weights = np.minimum(1 / noise, np.quantile(1 / noise, 0.95))
    found = agreement(weights, noise)
    assert found.r2_winsorised == pytest.approx(1)
    assert found.r2_uncentred < 0.5


@given(st.floats(1e-3, 1e3), st.integers(0, 50))
def test_the_scale_of_the_weights_does_not_matter(scale: float, seed: int) -> None:
    weights = np.random.default_rng(seed).uniform(0.1, 1, 500)
    one, other = (agreement(factor * weights, NOISE, DISTANCE) for factor in (1.0, scale))
    for name in ("spearman", "r2_log", "r2_floored", "cv", "shift_share"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-6, abs=1e-9)

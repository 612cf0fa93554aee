"""Intervals of few seeds: by hand, and as often right as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from revar.metrics import compare
from revar.metrics.few_seeds import for_few_seeds, moved_by_seeds


@pytest.mark.parametrize(("seeds", "at_least"), [(2, 0.87), (3, 0.93), (5, 0.94)])
def test_intervals_hold_the_truth_with_few_seeds(seeds: int, at_least: float) -> None:
    """Two methods alike, whose seeds differ more than examples do; within three errors.

    Percentiles of drawn seeds alone held it in 76, 83 and 90 % of 500 studies.
    """
    rng = np.random.default_rng(13)
    studies, inside, small = 400, 0, 0
    for study in range(studies):
        correct = rng.random(120) > 0.3
        common = rng.normal(size=120)
        quality = 1 + 0.4 * rng.normal(size=(2, seeds, 1))
        scores = common + quality * ~correct + 0.5 * rng.normal(size=(2, seeds, 120))
        uncertainty = {"a": scores[0], "b": scores[1]}
        found = compare(uncertainty, correct, n_resamples=199, seed=study)["b"]
        inside += found.difference_low <= 0 <= found.difference_high
        small += found.p_value < 0.05
    error = math.sqrt(at_least * (1 - at_least) / studies)
    assert at_least - 3 * error < inside / studies < 0.95 + 3 * error
    # An interval and its p-value are read from the same resamples, of which one side needs four.
    assert 0 <= studies - inside - small <= 0.04 * studies


def test_few_seeds_by_hand() -> None:
    """Two seeds at 0 and 2: their mean has the deviation 1, as has that of what is drawn."""
    by_seed = np.array([[0.0, 2.0]])
    counts = np.array([[2, 0], [1, 1], [0, 2], [1, 1]])
    moved = moved_by_seeds(counts, by_seed)
    np.testing.assert_allclose(moved[:, 0], [-math.sqrt(2), 0, math.sqrt(2), 0])
    assert moved.var() == pytest.approx(1.0)
    drawn = 1.0 + moved
    # Ranks 1/8, 1/2, 1/2 and 7/8: Student's t of one degree of freedom is the tangent.
    wide = for_few_seeds(drawn, by_seed)[:, 0]
    far = math.sqrt(2) * math.tan(math.pi * 3 / 8) / norm.ppf(7 / 8)
    np.testing.assert_allclose(wide, [1 - far, 1, 1 + far, 1])
    # Examples decide almost alone.
    examples = np.random.default_rng(0).normal(size=(1000, 1))
    np.testing.assert_allclose(for_few_seeds(examples, by_seed / 100), examples, rtol=1e-3)
    np.testing.assert_array_equal(for_few_seeds(drawn, by_seed[:, :1]), drawn)
    np.testing.assert_array_equal(for_few_seeds(0 * drawn, 0 * by_seed), 0 * drawn)
    assert (moved_by_seeds(np.ones((3, 1)), np.ones((2, 1))) == 0).all()

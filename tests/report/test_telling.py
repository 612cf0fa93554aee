"""Which rows of a table are told from its best: by hand, and as rarely as it says by accident."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import norm, ttest_rel

from revar.report import telling
from revar.report.telling import told_from

Floats = NDArray[np.floating]


def rows_of(table: Floats | Sequence[Sequence[float]]) -> dict[str, dict[int, float]]:
    return {"abcdefghij"[k]: dict(enumerate(row)) for k, row in enumerate(np.asarray(table))}


def best_of(rows: dict[str, dict[int, float]]) -> str:
    return max(rows, key=lambda row: float(np.mean(list(rows[row].values()))))


def told(table: Floats | Sequence[Sequence[float]]) -> set[str]:
    rows = rows_of(table)
    return told_from(rows, best_of(rows))


# By hand --------------------------------------------------------------------------------------


def test_a_column_by_hand() -> None:
    """Means 11, 10, 6; what is left is 1, -1, 0 in some order: 4 over (3 - 1)(3 - 1) is 1.

    A gap counts beyond 5.040 / sqrt(3) = 2.910, the printed 5 % point of three means and four
    degrees of freedom. b is 1 behind and c 5. On its own c lags by 7, 5, 3: a deviation of 2, 5 /
    (2 / sqrt(3)) = 4.33, just over the 4.303 of two degrees of freedom.
    """
    seeds = np.array([0.0, 3.0, 9.0])
    left = np.array([[1, 0, -1], [0, 0, 0], [-1, 0, 1]])
    table = np.array([[11.0], [10.0], [6.0]]) + seeds + left
    assert told(table) == {"c"}
    assert told(table - [[0], [0], [-0.1]]) == set()  # 4.9 behind: 4.24
    # b lags by 2 each time, told by its own test; the range of all is 5.040.
    near = np.array([[11.0], [9.0], [8.2]]) + seeds + np.array([[1, 0, -1], [1, 0, -1], [-2, 0, 2]])
    assert told(near) == set()


def test_the_range_is_that_of_tukey() -> None:
    """Of means of normal numbers over an independent deviation, integrated; and as printed."""
    assert telling._range(3, 4) == pytest.approx(5.040, abs=5e-4)
    assert telling._range(9, 16) == pytest.approx(5.031, abs=1e-3)
    assert telling._t(2) == pytest.approx(4.303, abs=5e-4)

    def within(width: float, rows: int) -> float:
        def one(x: float) -> float:
            return float(rows * norm.pdf(x) * (norm.cdf(x + width) - norm.cdf(x)) ** (rows - 1))

        return float(quad(one, -8, 8)[0])

    def chance(limit: float, rows: int, freedom: int) -> float:
        half = freedom / 2
        constant = math.log(2) + half * math.log(half) - math.lgamma(half)

        def one(s: float) -> float:
            density = math.exp(constant + (freedom - 1) * math.log(s) - half * s * s)
            return density * within(limit * s, rows)

        return float(quad(one, 1e-9, 6, epsabs=1e-6)[0])

    assert chance(telling._range(6, 10), 6, 10) == pytest.approx(0.95, abs=1e-4)


def test_both_tests_must_tell() -> None:
    """Against each test on its own, computed another way, on columns of every kind."""
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(200):
        rows, seeds = int(rng.integers(2, 7)), int(rng.integers(2, 6))
        table = rng.normal(size=(rows, seeds)) * rng.choice([0.2, 1, 5], size=(rows, 1))
        table += rng.normal(size=seeds) + rng.choice([0, 2, 8], size=(rows, 1))
        best = int(table.mean(axis=1).argmax())
        # The oracle: least squares on dummies of rows and seeds.
        design = np.array(
            [
                np.r_[np.eye(rows)[k], np.eye(seeds)[s][1:]]
                for k in range(rows)
                for s in range(seeds)
            ]
        )
        fitted, rest, *_ = np.linalg.lstsq(design, table.ravel(), rcond=None)
        freedom = (rows - 1) * (seeds - 1)
        limit = telling._range(rows, freedom) * math.sqrt(rest[0] / freedom / seeds)
        expected = set()
        for k in range(rows):
            if k != best:
                ranged = bool(fitted[best] - fitted[k] > limit)
                own = bool(ttest_rel(table[best], table[k]).pvalue < 0.05)
                seen.add((ranged, own))
                expected |= {"abcdef"[k]} if ranged and own else set()
        assert told(table) == expected
    assert len(seen) == 4


# By accident ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spreads", "seeds", "at_most"),
    [
        ([1] * 6, 3, 0.05),
        ([1] * 9, 5, 0.05),
        # Less than twice as often where a few rows spread much more than the others.
        ([1] * 8 + [5], 3, 0.09),
        ([1] * 4 + [10], 3, 0.09),
        ([1] * 7 + [5] * 2, 5, 0.09),
    ],
)
def test_equal_rows_are_rarely_told(spreads: list[float], seeds: int, at_most: float) -> None:
    """Columns in which any row is told, of 1,000 where all are equal; within three errors."""
    rng = np.random.default_rng(1)
    studies = 1000
    noise = rng.normal(size=(studies, len(spreads), seeds)) * np.array(spreads)[:, None]
    tables = noise + rng.normal(size=(studies, 1, seeds))
    found = sum(bool(told(table)) for table in tables) / studies
    assert found < at_most + 3 * math.sqrt(at_most * (1 - at_most) / studies)


def test_what_is_far_behind_is_told() -> None:
    rng = np.random.default_rng(2)
    tables = rng.normal(size=(200, 6, 3)) + np.array([8.0, 0, 0, 0, 0, 0])[:, None]
    assert np.mean([len(told(table)) for table in tables]) > 4.8


# Edges ----------------------------------------------------------------------------------------


def test_one_seed_tells_nothing() -> None:
    assert told([[0.9], [0.1]]) == set()
    assert told([[0.9, 0.8]]) == set()


def test_a_row_that_lacks_a_seed_is_not_told() -> None:
    rows = rows_of([[0.9, 0.91, 0.9], [0.1, 0.1, 0.12], [0.2, 0.2, 0.21]])
    del rows["b"][2]
    assert told_from(rows, "a") == {"c"}
    alone = {"a": {0: 0.9, 1: 0.9}, "b": {0: 0.1}}
    assert told_from(alone, "a") == set()


def test_rows_without_any_spread_are_told_by_any_gap_but_rounding() -> None:
    assert told([[0.5, 0.6], [0.4, 0.5], [0.5, 0.6]]) == {"b"}
    assert told([[0.1 + 0.2, 0.7], [0.3, 0.7]]) == set()
    assert told([[1.0, 1.0, 1.0]] * 4) == set()

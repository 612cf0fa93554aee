from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma

from revar.metrics import aurc, ranking
from revar.metrics.ranking import Ranking, expected_errors, harmonic, rank, summed_risk
from support.properties import PROPERTY, Bools, Floats, scored_rows


def fields(table: Ranking) -> list[Any]:
    arrays = (table.below, table.size, table.errors, table.total, table.wrong)
    return [np.asarray(array).tolist() for array in arrays]


# Sums of 1 / k --------------------------------------------------------------------------------


def exact(start: int, length: int) -> Fraction:
    return sum((Fraction(1, k) for k in range(start + 1, start + length + 1)), Fraction(0))


@pytest.mark.parametrize("start", [0, 1, 2, 10, 62, 63, 64, 65, 66, 100, 1000, 123_456, 10_000_000])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 64, 300])
def test_harmonic_of_whole_numbers_is_the_sum(start: int, length: int) -> None:
    expected = float(exact(start, length))
    value = harmonic(np.array([float(start)]), np.array([float(length)]))[0]
    # Below 65 the difference of two digammas of about 4 is taken: that many digits are left.
    assert value == pytest.approx(expected, rel=1e-14, abs=0 if start >= 64 else 4e-15)


@pytest.mark.parametrize("start", [1e7, 1e9, 1e12])
def test_harmonic_of_one_term_far_out_loses_no_digit(start: float) -> None:
    value = harmonic(np.array([start]), np.array([1.0]))[0]
    assert value == pytest.approx(float(Fraction(1, int(start) + 1)), rel=1e-15)


@pytest.mark.parametrize("start", [0.0, 0.3, 5.5, 63.9999, 64.0, 64.0001, 80.25])
@pytest.mark.parametrize("length", [0.25, 1.5, 40.75, 1000.125])
def test_harmonic_of_real_numbers_is_the_digamma_function(start: float, length: float) -> None:
    expected = digamma(start + length + 1) - digamma(start + 1)
    value = harmonic(np.array([start]), np.array([length]))[0]
    assert value == pytest.approx(expected, abs=4e-15)


def test_harmonic_has_the_shape_of_its_arguments() -> None:
    start = np.array([[0.0, 70.0, 3.0], [1e6, 64.0, 63.0]])
    length = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    expected = [
        [float(exact(int(a), int(b))) for a, b in zip(*row, strict=True)]
        for row in zip(start.tolist(), length.tolist(), strict=True)
    ]
    np.testing.assert_allclose(harmonic(start, length), expected, rtol=1e-13)


# The table ------------------------------------------------------------------------------------


def test_table_by_hand() -> None:
    #  uncertainty 1: right, wrong;  2: right;  3: wrong, wrong
    scores, hits = [3, 1, 2, 1, 3], [False, True, True, False, False]
    assert fields(rank(scores, hits)) == [[0, 3], [2, 2], [1, 2], 5, 3]
    weighted = rank(scores, hits, [0.5, 1, 2, 3, 0])
    assert fields(weighted) == [[0, 6], [4, 0.5], [3, 0.5], 6.5, 3.5]
    assert not weighted.counts


@pytest.mark.parametrize(
    ("weights", "counts"),
    [(None, True), ([1, 2], True), ([0.0, 3.0], True), ([0.5, 1.5], False), ([1.0, 1e-9], False)],
)
def test_only_whole_weights_count_rows(weights: Any, counts: bool) -> None:
    assert rank([1, 2], [True, False], weights).counts is counts


@PROPERTY
@given(scored_rows())
def test_weights_of_one_give_the_table_without_weights(rows: tuple[Floats, Bools]) -> None:
    assert fields(rank(*rows, np.ones(len(rows[0])))) == fields(rank(*rows))


@PROPERTY
@given(scored_rows(), st.data())
def test_errors_among_the_first_grow_linearly_along_ties(
    rows: tuple[Floats, Bools], data: Any
) -> None:
    uncertainty, correct = rows
    kept = data.draw(st.integers(0, len(correct)))
    # Errors more certain than the last kept, and the share of its ties that is kept.
    expected = 0.0
    if kept:
        last = np.sort(uncertainty)[kept - 1]
        tied, sure = uncertainty == last, uncertainty < last
        share = (kept - sure.sum()) / tied.sum()
        expected = (sure & ~correct).sum() + share * (tied & ~correct).sum()
    value = expected_errors(rank(uncertainty, correct), np.array([float(kept)]))
    assert value[0] == pytest.approx(expected, abs=1e-12)


def test_without_errors_none_are_expected() -> None:
    assert expected_errors(rank([1, 2], [True, True]), np.array([0.5, 2.0])).tolist() == [0, 0]
    assert summed_risk(rank([1, 2], [True, True]), np.array(2.0)) == 0


def test_leading_axes_are_separate_problems() -> None:
    rng = np.random.default_rng(1)
    tables = [rank(rng.integers(0, 50, 80), np.arange(80) % 4 > 0) for _ in range(3)]
    longest = max(len(table.below) for table in tables)

    def padded(name: str) -> Floats:
        # Blocks of no weight at the end, as in a resample that missed them.
        fill = 80.0 if name == "below" else 0.0
        out = np.full((3, longest), fill)
        for row, table in zip(out, tables, strict=True):
            values = getattr(table, name)
            row[: len(values)] = values
        return out

    joint = Ranking(
        padded("below"), padded("size"), padded("errors"), np.full(3, 80.0), np.full(3, 20.0)
    )
    for upto in (80.0, 33.0):
        single = [float(summed_risk(table, np.array(upto))) for table in tables]
        np.testing.assert_allclose(summed_risk(joint, np.full(3, upto)), single, rtol=1e-13)


def test_size_of_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    uncertainty, correct = rng.integers(0, 300, 1000), rng.random(1000) > 0.3
    whole = aurc(uncertainty, correct), aurc(uncertainty, correct, coverage=(0.1, 0.6))
    monkeypatch.setattr(ranking, "_CHUNK", 7)
    parts = aurc(uncertainty, correct), aurc(uncertainty, correct, coverage=(0.1, 0.6))
    assert parts == pytest.approx(whole, rel=1e-13)


def test_a_million_rows_agree_with_the_sum_of_their_risks() -> None:
    rng = np.random.default_rng(3)
    n = 1_000_000
    uncertainty = rng.integers(0, 5000, n)
    correct = rng.random(n) > uncertainty / 10_000
    size = np.bincount(uncertainty, minlength=5000)
    errors = np.bincount(uncertainty, ~correct, minlength=5000)
    # Errors spread evenly over the places of their ties: the expected curve, place by place.
    expected = np.cumsum(np.repeat(errors / size, size)) / np.arange(1, n + 1)
    assert aurc(uncertainty, correct) == pytest.approx(float(expected.mean()), abs=1e-11)

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from revar import fields
from revar.errors import InputError
from revar.selection import Threshold, threshold_for_risk
from revar.selection.fixed_sequence import starts
from revar.selection.result import EVERYTHING
from revar.selection.risk import Procedure
from revar.selection.tails import Binomial, HoeffdingBentkus, enough
from support.properties import FEW, PROPERTY, Bools, Floats, scored_rows

PROCEDURES: list[Procedure] = ["fixed_sequence", "sgr"]
both = pytest.mark.parametrize("procedure", PROCEDURES)


# Tails ----------------------------------------------------------------------------------------


def test_no_error_in_59_is_five_per_cent() -> None:
    assert Binomial().upper(0, 59, 0.05).item() == pytest.approx(1 - 0.05 ** (1 / 59))
    assert Binomial().p_value(0, 59, 0.05).item() == pytest.approx(0.95**59)
    assert enough(0.05, 0.05) == 59
    assert enough(0.1, 0.05) == 29
    assert enough(0.5, 0.25) == 2
    assert enough(0.999, 0.5) == 1


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("level", [0.001, 0.05, 0.5])
def test_binomial_tail_against_sums_and_the_beta_quantile(n: int, level: float) -> None:
    errors = np.arange(n + 1)
    for risk in (0.01, 0.3, 0.9):
        terms = [math.comb(n, k) * risk**k * (1 - risk) ** (n - k) for k in range(n + 1)]
        np.testing.assert_allclose(
            Binomial().p_value(errors, np.full(n + 1, n), risk), np.cumsum(terms), rtol=1e-9
        )
    bounds = Binomial().upper(errors, np.full(n + 1, n), level)
    np.testing.assert_allclose(bounds[:-1], beta.ppf(1 - level, errors[:-1] + 1, n - errors[:-1]))
    assert bounds[-1] == 1.0
    # At the bound the tail is the level: that is what inversion means.
    for k in range(n):
        assert binom.cdf(k, n, bounds[k]) == pytest.approx(level)


def test_hoeffding_bentkus_by_hand() -> None:
    # Mean 0.1 of 10, r = 0.5: h = 0.1 log 0.2 + 0.9 log 1.8; P(Bin(10, 0.5) <= 1) = 11 / 1024.
    hoeffding = math.exp(-10 * (0.1 * math.log(0.2) + 0.9 * math.log(1.8)))
    bentkus = math.e * 11 / 1024
    value = HoeffdingBentkus().p_value(1.0, 10, 0.5).item()
    assert value == pytest.approx(min(hoeffding, bentkus))
    # No loss at all is as telling as no error: (1 - r)^n.
    assert HoeffdingBentkus().p_value(0.0, 10, 0.2).item() == pytest.approx(0.8**10)
    assert HoeffdingBentkus().p_value(6.0, 10, 0.5).item() == 1.0
    assert HoeffdingBentkus().p_value(0.0, 0, 0.5).item() == 1.0


@pytest.mark.parametrize("count", [1, 10, 300])
def test_hoeffding_bentkus_is_above_the_binomial_tail_and_inverts(count: int) -> None:
    totals = np.arange(count + 1.0)
    for risk in (0.05, 0.4):
        exact = Binomial().p_value(totals, np.full(count + 1, count), risk)
        looser = HoeffdingBentkus().p_value(totals, np.full(count + 1, count), risk)
        assert (looser >= exact - 1e-12).all()
    bounds = HoeffdingBentkus().upper(totals, np.full(count + 1, count), 0.05)
    assert (np.diff(bounds) >= -1e-9).all()
    for total, bound in zip(totals, bounds, strict=True):
        if bound < 0.999:
            assert HoeffdingBentkus().p_value(total, count, bound).item() <= 0.05
            assert HoeffdingBentkus().p_value(total, count, bound - 1e-6).item() > 0.05


# By hand --------------------------------------------------------------------------------------


def test_59_right_ones_are_all_accepted_and_58_are_not_enough() -> None:
    found = threshold_for_risk(np.arange(59.0), np.ones(59, bool), max_risk=0.05)
    assert found.threshold == EVERYTHING
    assert found.coverage == 1.0
    assert found.risk == 0.0
    assert found.risk_bound == found.max_risk == 0.05
    assert found.best.threshold == found.threshold
    assert found.best.risk_bound == 0.05
    assert found.accept([0.0, 1e300]).all()
    assert not found.accept([np.inf]).any()
    few = threshold_for_risk(np.arange(58.0), np.ones(58, bool), max_risk=0.05)
    assert few.threshold is None
    assert few.coverage == 0.0
    assert few.coverage_interval == (0.0, 0.0)
    assert few.risk is few.risk_bound is None
    # Starts at 15, 29 and 58 share the error of 5 %; the largest is best without errors.
    assert few.best.coverage == 1.0
    assert few.best.risk_bound == pytest.approx(1 - (0.05 / 3) ** (1 / 58))


def test_the_border_is_left_out() -> None:
    # The 30th is wrong and 29 hits are just enough: all below it is accepted, not itself.
    uncertainty = np.arange(40.0)
    found = threshold_for_risk(uncertainty, uncertainty < 29, max_risk=0.1)
    assert found.threshold == np.nextafter(29.0, -np.inf)
    assert found.coverage == 29 / 40
    assert found.accept([28.9, 29.0]).tolist() == [True, False]
    # In single precision the threshold would round to 29.
    assert found.accept(np.array([29.0], np.float32)).tolist() == [False]


def test_sgr_by_hand() -> None:
    # 7 examples: ranks 4, then 6 or 2, then their neighbours; three steps at 0.3 / 3 = 0.1.
    # Three hits prove 0.6 (0.4^3 = 0.064), two do not (0.16); 6 with one error: 0.4^6 + 6 * 0.6 *
    # 0.4^5 = 0.041 does, 7 with two: 0.4^7 + 7 * 0.6 * 0.4^6 + 21 * 0.36 * 0.4^5 = 0.0963 does.
    right = [True, True, True, True, False, True, False]
    found = threshold_for_risk(np.arange(7.0), right, max_risk=0.6, confidence=0.7, procedure="sgr")
    assert found.coverage == 1.0
    assert found.risk == pytest.approx(2 / 7)
    # Another error: 6 with two have 0.179 and fail, 5 with one have 0.087 and pass.
    right[5] = False
    found = threshold_for_risk(np.arange(7.0), right, max_risk=0.6, confidence=0.7, procedure="sgr")
    assert found.coverage == 5 / 7
    assert found.threshold == np.nextafter(5.0, -np.inf)


def test_sgr_without_a_threshold_gives_the_lowest_bound_it_saw() -> None:
    # Ranks 4, 2 and 1 fail at 0.3 / 3; two hits bound the risk by 1 - 0.1^(1/2).
    right = [True, True, False, False, False, False, False]
    found = threshold_for_risk(np.arange(7.0), right, max_risk=0.6, confidence=0.7, procedure="sgr")
    assert found.threshold is None
    assert found.best.coverage == 2 / 7
    assert found.best.risk == 0.0
    assert found.best.risk_bound == pytest.approx(1 - math.sqrt(0.1))
    assert "no threshold keeps the risk at most 0.6" in found.describe()


@both
def test_all_wrong_attains_nothing(procedure: Procedure) -> None:
    found = threshold_for_risk(
        np.arange(200.0), np.zeros(200, bool), max_risk=0.1, procedure=procedure
    )
    assert found.threshold is None
    assert found.best.risk_bound == 1.0
    assert not found.accept(np.arange(200.0)).any()


@both
def test_one_example_and_all_tied(procedure: Procedure) -> None:
    assert threshold_for_risk([0.5], [True], max_risk=0.1, procedure=procedure).threshold is None
    tied = threshold_for_risk(np.zeros(300), np.ones(300, bool), max_risk=0.1, procedure=procedure)
    # The search begins in the middle, where nothing lies strictly below.
    assert tied.threshold == (EVERYTHING if procedure == "fixed_sequence" else None)
    # One start, in the middle of the ties: no region below it, and nothing to say.
    few = threshold_for_risk(np.zeros(30), np.ones(30, bool), max_risk=0.1, procedure=procedure)
    assert few.threshold is None


def test_infinite_uncertainty_is_never_accepted() -> None:
    uncertainty = np.append(np.arange(100.0), [np.inf] * 5)
    found = threshold_for_risk(uncertainty, np.isfinite(uncertainty), max_risk=0.1)
    assert found.threshold == EVERYTHING
    assert found.coverage == 100 / 105


# Oracles --------------------------------------------------------------------------------------


def sgr_slowly(uncertainty: Floats, correct: Bools, limit: float, delta: float) -> int:
    """How many are accepted, written step by step."""
    n = len(uncertainty)
    level = delta / math.ceil(math.log2(n + 1))
    values = [*sorted(uncertainty), math.inf]
    low, high, accepted = 0, n + 1, 0
    while high - low > 1:
        rank = (low + high) // 2
        below = uncertainty < values[rank]
        errors = int((~correct[below]).sum())
        if below.any() and binom.cdf(errors, below.sum(), limit) <= level:
            low, accepted = rank, int(below.sum())
        else:
            high = rank
    return accepted


def fixed_sequence_slowly(uncertainty: Floats, correct: Bools, limit: float, delta: float) -> int:
    """How many are accepted, region by region."""
    ranks, part = starts(len(uncertainty), limit, delta, carry=True)
    values = [*sorted(uncertainty), math.inf]
    begins = [values[rank] for rank in ranks]
    budget, accepted = 0.0, 0
    for border in sorted(set(values)):
        budget += part * begins.count(border)
        below = uncertainty < border
        errors = int((~correct[below]).sum())
        if budget and below.any() and binom.cdf(errors, below.sum(), limit) <= budget:
            accepted = int(below.sum())
        else:
            budget = 0.0
    return accepted


@FEW
@given(
    st.integers(1, 150),
    st.sampled_from([0.05, 0.1, 0.3, 0.6]),
    st.sampled_from([0.6, 0.9, 0.95]),
    st.sampled_from([3, 10, 10**6]),
    st.integers(0, 2**32 - 1),
)
def test_against_slow_versions(
    n: int, limit: float, confidence: float, levels: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    uncertainty = rng.integers(levels, size=n).astype(float)
    correct = rng.random(n) >= rng.choice([0.3, 1.0]) * limit * 2 * uncertainty / levels
    slow = {"sgr": sgr_slowly, "fixed_sequence": fixed_sequence_slowly}
    for procedure in PROCEDURES:
        found = threshold_for_risk(
            uncertainty, correct, max_risk=limit, confidence=confidence, procedure=procedure
        )
        expected = slow[procedure](uncertainty, correct, limit, 1 - confidence)
        assert found.coverage == expected / n
        assert (found.threshold is None) == (expected == 0)


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("n", [1, 3, 20, 59, 60, 117, 118, 200, 1000, 10**6])
def test_starts_can_pass_and_share_the_budget(n: int, carry: bool) -> None:
    ranks, part = starts(n, 0.05, 0.05, carry=carry)
    assert ranks == sorted(set(ranks))
    assert ranks[0] >= 1
    assert ranks[-1] <= n
    # With carrying the chance of an error is at most budget / (1 - budget).
    budget = len(ranks) * part
    carried = carry and len(ranks) > 1 and n >= 59
    assert (budget / (1 - budget) if carried else budget) <= 0.05 + 1e-12
    if n >= 59:
        assert 0.95 ** ranks[0] <= part
        assert 0.95 ** (ranks[0] - 1) > part
    if n >= 118:
        assert ranks[-1] == n
        assert len(ranks) == min(8, n // 59)


# Properties -----------------------------------------------------------------------------------

rows = scored_rows(min_size=1, max_size=80)
limits = st.sampled_from([0.1, 0.3, 0.5, 0.8])


@both
@PROPERTY
@given(rows, limits, st.sampled_from([0.5, 0.9]))
def test_what_is_said_is_what_is_accepted(
    procedure: Procedure, data: tuple[Floats, Bools], limit: float, confidence: float
) -> None:
    uncertainty, correct = data
    found = threshold_for_risk(
        uncertainty, correct, max_risk=limit, confidence=confidence, procedure=procedure
    )
    accepted = found.accept(uncertainty)
    assert found.coverage == accepted.mean()
    assert found.coverage_interval[0] <= found.coverage <= found.coverage_interval[1]
    if found.threshold is None:
        assert found.best.risk_bound is None or found.best.risk_bound > limit
    else:
        assert found.risk == pytest.approx(1 - correct[accepted].mean())
        assert found.risk is not None
        assert found.risk <= limit
        assert found.risk_bound == limit
        assert found.best.threshold == found.threshold
    text = json.dumps(fields.to_json(found), allow_nan=False)
    assert fields.from_json(Threshold, json.loads(text)) == found
    assert "\n" not in found.describe()


@both
@PROPERTY
@given(rows, limits, st.randoms(use_true_random=False))
def test_order_of_rows_and_scale_of_the_score_do_not_matter(
    procedure: Procedure, data: tuple[Floats, Bools], limit: float, random: Any
) -> None:
    uncertainty, correct = data
    first = threshold_for_risk(
        uncertainty, correct, max_risk=limit, confidence=0.7, procedure=procedure
    )
    order = random.sample(range(len(correct)), len(correct))
    stretched = np.exp(uncertainty)
    second = threshold_for_risk(
        stretched[order], correct[order], max_risk=limit, confidence=0.7, procedure=procedure
    )
    assert np.array_equal(first.accept(uncertainty), second.accept(stretched))


@both
@PROPERTY
@given(rows, limits, st.data())
def test_an_error_less_never_accepts_less(
    procedure: Procedure, data: tuple[Floats, Bools], limit: float, choose: Any
) -> None:
    uncertainty, correct = data
    better = correct.copy()
    better[choose.draw(st.integers(0, len(correct) - 1))] = True
    options: dict[str, Any] = {"max_risk": limit, "confidence": 0.7, "procedure": procedure}
    before = threshold_for_risk(uncertainty, correct, **options)
    assert threshold_for_risk(uncertainty, better, **options).coverage >= before.coverage


@PROPERTY
@given(rows, limits, limits)
def test_sgr_with_a_stricter_limit_never_accepts_more(
    data: tuple[Floats, Bools], one: float, other: float
) -> None:
    strict, loose = (
        threshold_for_risk(*data, max_risk=limit, confidence=0.7, procedure="sgr").coverage
        for limit in sorted((one, other))
    )
    assert strict <= loose


@both
@PROPERTY
@given(rows, limits)
def test_any_bounded_loss_accepts_no_more_than_the_exact_tail_and_scales(
    procedure: Procedure, data: tuple[Floats, Bools], limit: float
) -> None:
    uncertainty, correct = data
    options: dict[str, Any] = {"confidence": 0.7, "procedure": procedure}
    exact = threshold_for_risk(uncertainty, correct, max_risk=limit, **options)
    plain = threshold_for_risk(uncertainty, loss=~correct, max_risk=limit, **options)
    assert plain.coverage <= exact.coverage
    scaled = threshold_for_risk(
        uncertainty, loss=8.0 * ~correct - 2.0, bounds=(-2, 6), max_risk=8 * limit - 2, **options
    )
    assert scaled.threshold == plain.threshold
    if plain.risk is not None:
        assert scaled.risk == pytest.approx(8 * plain.risk - 2)
        assert scaled.risk_bound == 8 * limit - 2
    if plain.best.risk_bound is not None:
        assert scaled.best.risk_bound == pytest.approx(8 * plain.best.risk_bound - 2)


# Arguments ------------------------------------------------------------------------------------


def test_tensors_and_lists_give_the_same() -> None:
    rng = np.random.default_rng(0)
    uncertainty, correct = rng.random(100), rng.random(100) > 0.05
    expected = threshold_for_risk(uncertainty, correct, max_risk=0.2, score="fused")
    assert expected.score == "fused"
    assert expected.wanted is None
    tensors = torch.tensor(uncertainty), torch.tensor(correct)
    assert threshold_for_risk(*tensors, max_risk=0.2, score="fused") == expected
    lists = uncertainty.tolist(), correct.astype(int).tolist()
    assert threshold_for_risk(*lists, max_risk=0.2, score="fused") == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_risk": 0.0}, r"max_risk is 0.0, it must be in \(0, 1\)"),
        ({"max_risk": 1.0}, r"max_risk is 1.0, it must be in \(0, 1\)"),
        ({"max_risk": float("nan")}, "max_risk is nan"),
        ({"confidence": 1.0}, r"confidence is 1.0, it must be in \(0, 1\)"),
        ({"confidence": 0.0}, "confidence is 0.0"),
        ({"uncertainty": [1.0, float("nan"), 2.0]}, "uncertainty is NaN in 1 rows: 1"),
        ({"uncertainty": [1.0, 2.0]}, "uncertainty has 2 rows, correct 3"),
        ({"uncertainty": []}, r"uncertainty has shape \(0,\)"),
        ({"uncertainty": ["a", "b", "c"]}, "must hold numbers"),
        ({"correct": [0.5, 1, 1]}, "correct must be booleans"),
        ({"correct": [float("nan"), 1, 1]}, "correct is NaN in 1 rows: 0"),
        ({"correct": None}, "either correct or loss="),
        ({"loss": [0.0, 0.0, 0.0]}, "either correct or loss="),
        (
            {"correct": None, "loss": [0.0, 2.0, 0.0]},
            "loss is 2 in row 1, outside its bounds 0 to 1",
        ),
        ({"correct": None, "loss": [0.0, 1.0]}, "uncertainty has 3 rows, loss 2"),
        ({"correct": None, "loss": [0.0, 1.0, 1.0], "bounds": (1, 0)}, "bounds is"),
        ({"procedure": "srg"}, 'unknown procedure "srg": did you mean "sgr"'),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    given_: dict[str, Any] = {
        "uncertainty": [1.0, 2.0, 3.0],
        "correct": [True, True, False],
        "max_risk": 0.1,
    }
    with pytest.raises(InputError, match=message):
        threshold_for_risk(**(given_ | arguments))

"""The generative model of the controlled study: its moments are what it says they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from revar.data.synthetic import SCENARIOS, Problem, Scenario, draw
from revar.errors import InputError


def residuals(problem: Problem) -> NDArray[np.float64]:
    """What least squares on the observed features leaves of y."""
    design = np.column_stack([np.ones(len(problem.x)), problem.x])
    left: NDArray[np.float64] = problem.y - design @ np.linalg.lstsq(design, problem.y)[0]
    return left


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_noise_is_the_conditional_variance(name: str) -> None:
    """In the quieter half and in the louder half of the points alike."""
    for seed in range(3):
        problem = draw(replace(SCENARIOS[name], n_core=6, n_extra=4), 20_000, 10, seed)
        squares = residuals(problem) ** 2
        loud = problem.noise >= np.median(problem.noise)
        for half in (loud, ~loud):
            if half.any():
                ratio = squares[half].mean() / problem.noise[half].mean()
                assert ratio == pytest.approx(1, abs=0.06)


def test_constant_targets_are_constant_and_the_others_are_not() -> None:
    for name in SCENARIOS:
        noise = draw(SCENARIOS[name], 500, 10, 0).noise
        assert (np.ptp(noise) < 1e-9 * noise.max()) == (name in "345")


@pytest.mark.parametrize("shift", [1.0, 4.0])
def test_the_shift_is_measured_in_standard_deviations(shift: float) -> None:
    squares = []
    for seed in range(60):
        problem = draw(Scenario(label_noise=True, shift=shift), 2000, 2000, seed)
        moved = (problem.x_meta.mean(0) - problem.x.mean(0)) / problem.x.std(0)
        # Two means of 2,000 points add their own noise.
        squares.append((moved**2).sum() - 72 * 2 / 2000)
    assert np.mean(squares) == pytest.approx(shift**2, rel=0.1)


def test_only_the_shift_differs_between_shifts() -> None:
    near, far = (draw(replace(SCENARIOS["2"], shift=s), 50, 50, 3) for s in (0.0, 8.0))
    assert np.array_equal(near.x, far.x)
    assert np.array_equal(near.noise, far.noise)
    step = far.x_meta - near.x_meta
    np.testing.assert_allclose(step, step[:1].repeat(50, 0), atol=1e-9)
    assert np.abs(step).max() > 1


def test_spurious_features_move_and_do_not_matter() -> None:
    problem = draw(SCENARIOS["5"], 20_000, 20_000, 0)
    core, extra = slice(48), slice(48, None)
    gap = np.abs(problem.x_meta.mean(0) - problem.x.mean(0)) / problem.x.std(0)
    assert gap[core].max() < 0.06
    assert gap[extra].max() > 0.3
    wider = problem.x_meta.std(0) / problem.x.std(0)
    np.testing.assert_allclose(wider[core], 1, atol=0.04)
    np.testing.assert_allclose(wider[extra], 1.5, atol=0.06)
    design = np.column_stack([np.ones(20_000), problem.x])
    slopes = np.linalg.lstsq(design, problem.y)[0][1:]
    assert np.abs(slopes[extra]).max() < 0.1
    assert np.abs(slopes[core]).mean() > 2


def test_missing_features_are_missing() -> None:
    assert draw(SCENARIOS["3"], 10, 10, 0).x.shape == (10, 48)
    assert draw(SCENARIOS["1"], 10, 10, 0).x.shape == (10, 72)


def test_distance_and_standardisation_by_hand() -> None:
    problem = draw(replace(SCENARIOS["1"], n_core=1, n_extra=1), 4000, 10, 1)
    centre = problem.x.mean(0)
    by_hand = ((problem.x - centre) ** 2).sum(1)
    assert np.corrcoef(by_hand, problem.distance)[0, 1] > 0.999
    plain = problem.standardised()
    np.testing.assert_allclose(plain.x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose([plain.x.std(), plain.y.std()], 1, atol=1e-12)
    back = plain.x_meta * problem.x.std(0) + problem.x.mean(0)
    np.testing.assert_allclose(back, problem.x_meta, atol=1e-10)
    assert np.array_equal(plain.noise, problem.noise)


def test_the_two_readings_of_a_normal_law() -> None:
    """A deviation of 10 spreads mu more than a variance of 10 does."""
    spread = {}
    for reading in ("variance", "deviation"):
        law = Scenario(label_noise=True, reading=reading)
        spread[reading] = np.std([draw(law, 400, 2, seed).x.mean(0) for seed in range(10)])
    assert spread["variance"] == pytest.approx(np.sqrt(10), rel=0.1)
    assert spread["deviation"] == pytest.approx(10, rel=0.1)


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"shift": -1.0}, {"n_core": 0}, {"shifted_scale": 0.0}, {"constant": 0.0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Scenario(**wrong)

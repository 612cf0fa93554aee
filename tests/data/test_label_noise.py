from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import truncnorm

from revar.data.label_noise import instance_dependent


def data(n: int, classes: int, d: int = 8) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    generator = np.random.default_rng(0)
    return generator.random((n, d)), generator.integers(0, classes, n)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.2, 0.45, 0.95])
@pytest.mark.parametrize("classes", [2, 10])
def test_the_flip_rate_is_the_mean_of_the_truncated_normal(rate: float, classes: int) -> None:
    n = 20_000
    x, y = data(n, classes)
    realised = np.mean(instance_dependent(x, y, rate, classes, seed=1) != y)
    expected = truncnorm.mean(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1)
    deviation = np.sqrt(expected * (1 - expected) / n)
    assert realised == pytest.approx(expected, abs=4 * deviation)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 6), st.floats(0, 1))
def test_noise_repeats_by_seed_stays_in_range_and_leaves_its_inputs_alone(
    seed: int, classes: int, rate: float
) -> None:
    x, y = data(60, classes)
    x_before, y_before = x.copy(), y.copy()
    noisy = instance_dependent(x, y, rate, classes, seed)
    assert noisy.dtype == np.int64
    assert set(noisy) <= set(range(classes))
    np.testing.assert_array_equal(noisy, instance_dependent(x, y, rate, classes, seed))
    np.testing.assert_array_equal(x, x_before)
    np.testing.assert_array_equal(y, y_before)


def test_another_seed_flips_other_labels() -> None:
    x, y = data(500, 4)
    one, two = (instance_dependent(x, y, 0.3, 4, seed) for seed in (0, 1))
    assert (one != two).any()


def test_a_flipped_label_is_never_its_own() -> None:
    """At rate 1 every q is at least 0.6 or so: a draw of the own class would show at once."""
    x, y = data(20_000, 3)
    flipped = np.mean(instance_dependent(x, y, 1.0, 3, seed=0) != y)
    expected = truncnorm.mean(-10, 0, loc=1.0, scale=0.1)
    assert flipped == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 20_000))


def test_with_two_classes_a_flip_is_the_other_class() -> None:
    x, y = data(1000, 2)
    noisy = instance_dependent(x, y, 0.4, 2, seed=0)
    flipped = noisy != y
    np.testing.assert_array_equal(noisy[flipped], 1 - y[flipped])


def _agreement(scale: float) -> float:
    """How often two flipped copies of one example got the same label."""
    x, y = data(400, 10, d=64)
    copies = 20
    noisy = instance_dependent(
        np.repeat(x * scale, copies, axis=0), np.repeat(y, copies), 0.5, 10, seed=3
    ).reshape(-1, copies)
    pairs = agreeing = 0
    for label, row in zip(y, noisy, strict=True):
        targets = row[row != label]
        _, counts = np.unique(targets, return_counts=True)
        pairs += len(targets) * (len(targets) - 1)
        agreeing += int((counts * (counts - 1)).sum())
    return agreeing / pairs


def test_at_the_scale_of_bytes_the_input_decides_where_a_label_flips_to() -> None:
    assert _agreement(255.0) > 0.98


def test_at_unit_scale_the_input_only_leans_towards_a_class() -> None:
    assert 1 / 9 < _agreement(1.0) < 0.95


def test_the_direction_depends_on_the_label_too() -> None:
    """Each class has a projection of its own, so one input flips to where its label says."""
    x, _ = data(300, 4, d=64)
    targets = []
    for label in (0, 1):
        y = np.full(300, label)
        noisy = instance_dependent(x * 255, y, 1.0, 4, seed=0)
        targets.append(np.where(noisy == label, -1, noisy))
    both = (targets[0] >= 2) & (targets[1] >= 2)
    agreeing = np.mean(targets[0][both] == targets[1][both])
    assert both.sum() > 20
    assert agreeing < 0.95

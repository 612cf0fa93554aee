from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import truncnorm

from revar.data.label_noise import (
    CIFAR10_PAIRS,
    InputScale,
    Labels,
    NoisyLabels,
    asymmetric,
    instance_dependent,
    symmetric,
)
from revar.errors import InputError


def data(n: int, classes: int, d: int = 8) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    generator = np.random.default_rng(0)
    return generator.random((n, d)), generator.integers(0, classes, n)


Law = Callable[[NDArray[np.float64], Labels, float, int, int], NoisyLabels]
LAWS: dict[str, Law] = {
    "symmetric": lambda x, y, rate, classes, seed: symmetric(y, rate, classes, seed),
    "asymmetric": lambda x, y, rate, classes, seed: asymmetric(y, rate, classes, seed),
    "instance": instance_dependent,
    "shared": lambda x, y, rate, classes, seed: instance_dependent(
        x, y, rate, classes, seed, per_class=False, input_scale="standardised"
    ),
}


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.2, 0.45, 0.95])
@pytest.mark.parametrize("classes", [2, 10])
def test_the_flip_rate_is_the_mean_of_the_truncated_normal(rate: float, classes: int) -> None:
    n = 20_000
    x, y = data(n, classes)
    realised = np.mean(instance_dependent(x, y, rate, classes, seed=1).flipped)
    expected = truncnorm.mean(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1)
    deviation = np.sqrt(expected * (1 - expected) / n)
    assert realised == pytest.approx(expected, abs=4 * deviation)


def test_the_realised_rate_at_a_fifth_is_above_a_fifth() -> None:
    """E q = 0.2055 at rate 0.2; 200,000 draws tell it from 0.2 by five deviations."""
    x, y = data(200_000, 10, d=1)
    realised = np.mean(instance_dependent(x, y, 0.2, 10, seed=4).flipped)
    assert realised == pytest.approx(0.2055, abs=4 * np.sqrt(0.2055 * 0.7945 / 200_000))
    assert realised > 0.2


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 6), st.floats(0, 1))
def test_noise_repeats_by_seed_stays_in_range_and_leaves_its_inputs_alone(
    seed: int, classes: int, rate: float
) -> None:
    x, y = data(60, classes)
    x_before, y_before = x.copy(), y.copy()
    for law in LAWS.values():
        noisy = law(x, y, rate, classes, seed)
        assert noisy.labels.dtype == np.int64
        assert set(noisy.labels) <= set(range(classes))
        np.testing.assert_array_equal(noisy.flipped, noisy.labels != y)
        np.testing.assert_array_equal(noisy.labels, law(x, y, rate, classes, seed).labels)
    np.testing.assert_array_equal(x, x_before)
    np.testing.assert_array_equal(y, y_before)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_another_seed_flips_other_labels(law: Law) -> None:
    x, y = data(500, 4)
    one, two = (law(x, y, 0.3, 4, seed).labels for seed in (0, 1))
    assert (one != two).any()


def test_a_flipped_label_is_never_its_own() -> None:
    """At rate 1 every q is at least 0.6 or so: a draw of the own class would show at once."""
    x, y = data(20_000, 3)
    flipped = np.mean(instance_dependent(x, y, 1.0, 3, seed=0).flipped)
    expected = truncnorm.mean(-10, 0, loc=1.0, scale=0.1)
    assert flipped == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 20_000))


def test_with_two_classes_a_flip_is_the_other_class() -> None:
    x, y = data(1000, 2)
    noisy = instance_dependent(x, y, 0.4, 2, seed=0)
    np.testing.assert_array_equal(noisy.labels[noisy.flipped], 1 - y[noisy.flipped])


# --- what the noise sees of the inputs


def _agreement(scale: InputScale, *, per_class: bool = True) -> float:
    """How often two flipped copies of one example got the same label."""
    x, y = data(400, 10, d=64)
    copies = 20
    images = np.round(x * 255).astype(np.uint8)
    noisy = instance_dependent(
        np.repeat(images, copies, axis=0), np.repeat(y, copies), 0.5, 10, seed=3,
        input_scale=scale, per_class=per_class,
    ).labels.reshape(-1, copies)  # fmt: skip
    pairs = agreeing = 0
    for label, row in zip(y, noisy, strict=True):
        targets = row[row != label]
        _, counts = np.unique(targets, return_counts=True)
        pairs += len(targets) * (len(targets) - 1)
        agreeing += int((counts * (counts - 1)).sum())
    return agreeing / pairs


@pytest.mark.parametrize("per_class", [True, False])
def test_at_the_scale_of_bytes_the_input_decides_where_a_label_flips_to(per_class: bool) -> None:
    assert _agreement("raw255", per_class=per_class) > 0.98


@pytest.mark.parametrize("scale", ["unit", "standardised"])
def test_at_smaller_scales_the_input_only_leans_towards_a_class(scale: InputScale) -> None:
    assert 1 / 9 < _agreement(scale) < 0.95


def test_scales_are_what_they_say() -> None:
    """The same draws on inputs that were scaled by hand."""
    generator = np.random.default_rng(0)
    images, y = generator.integers(0, 256, (300, 3, 3), dtype=np.uint8), np.arange(300) % 5
    images[0], images[1] = 0, 255  # so that the range of floats is that of bytes
    raw = images.astype(np.float64)

    def labels(x: NDArray[Any], scale: InputScale) -> list[int]:
        listed: list[int] = instance_dependent(x, y, 0.5, 5, 1, input_scale=scale).labels.tolist()
        return listed

    assert labels(images, "raw255") == labels(raw, "raw255") == labels(raw * 7 + 3, "raw255")
    assert labels(images, "unit") == labels(raw, "unit") == labels(raw / 255, "unit")
    assert labels(images, "unit") != labels(images, "raw255")
    standard = (raw - raw.mean()) / raw.std()
    assert labels(images, "standardised") == labels(standard, "standardised")
    assert labels(images, "standardised") == labels(raw * 7 + 3, "standardised")
    assert labels(images, "standardised") != labels(images, "unit")


def test_columns_of_a_table_are_scaled_one_by_one_and_constants_do_no_harm() -> None:
    x, y = data(300, 5)
    factors, shifts = np.array([1e-3, 1, 1e3, 1, 1, 1, 1, 1]), np.arange(8.0)
    for scale in ("raw255", "unit", "standardised"):
        one, two = (
            instance_dependent(values, y, 0.5, 5, 1, input_scale=scale).labels
            for values in (x, x * factors + shifts)
        )
        np.testing.assert_array_equal(one, two)
        constant = instance_dependent(np.ones((300, 2)), y, 0.5, 5, 1, input_scale=scale)
        assert constant.flipped.any()


def test_files_and_tensors_are_read_like_arrays() -> None:
    x, y = data(50, 3)
    tensor = torch.from_numpy(x)
    np.testing.assert_array_equal(
        instance_dependent(tensor, y, 0.5, 3, 1).labels, instance_dependent(x, y, 0.5, 3, 1).labels
    )


def _two_labels(*, per_class: bool = True) -> float:
    """How often one input flips to the same class from either of two labels."""
    x, _ = data(300, 4, d=64)
    targets = []
    for label in (0, 1):
        y = np.full(300, label)
        noisy = instance_dependent(x, y, 1.0, 4, seed=0, per_class=per_class).labels
        targets.append(np.where(noisy == label, -1, noisy))
    both = (targets[0] >= 2) & (targets[1] >= 2)
    assert both.sum() > 20
    return float(np.mean(targets[0][both] == targets[1][both]))


def test_the_direction_depends_on_the_label_too_unless_the_projection_is_shared() -> None:
    assert _two_labels() < 0.95
    assert _two_labels(per_class=False) > 0.98


def test_the_target_is_drawn_from_the_softmax() -> None:
    """All inputs alike: the shares of the targets are the softmax of one projection."""
    n = 40_000
    y = np.zeros(n, dtype=np.int64)
    noisy = instance_dependent(np.full((n, 1), 200, np.uint8), y, 1.0, 4, 5, input_scale="unit")
    generator = np.random.default_rng(5)
    truncnorm.rvs(-10, 0, loc=1.0, scale=0.1, size=n, random_state=generator)
    odds = np.exp(200 / 255 * generator.standard_normal((1, 4))[0, 1:])
    expected = odds / odds.sum()
    counts = np.bincount(noisy.labels[noisy.flipped], minlength=4)[1:]
    deviation = np.sqrt(expected * (1 - expected) / counts.sum())
    np.testing.assert_array_less(np.abs(counts / counts.sum() - expected), 4 * deviation)


def test_memory_is_bounded_at_a_hundred_classes_of_colour_images() -> None:
    """Weights of all classes at once are 246 MB, the inputs as float64 ten times theirs."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (2000, 32, 32, 3), dtype=np.uint8)
    y = generator.integers(0, 100, 2000)
    y[:1300] = 7  # a class of more than a block
    tracemalloc.start()
    noisy = instance_dependent(images, y, 0.9, 100, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert noisy.flipped.mean() > 0.85
    # A projection, the last one, and three copies of a block at most.
    assert peak < 2 * 3072 * 100 * 8 + 3 * 1024 * 3072 * 8 + 5e6


# --- flips that are blind to the input


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("classes", [2, 10])
def test_symmetric_flips_go_to_all_other_classes_alike(rate: float, classes: int) -> None:
    n = 50_000
    _, y = data(n, classes)
    noisy = symmetric(y, rate, classes, seed=0)
    assert noisy.flipped.mean() == pytest.approx(rate, abs=4 * np.sqrt(rate * (1 - rate) / n))
    steps = np.bincount((noisy.labels - y)[noisy.flipped] % classes, minlength=classes)
    assert steps[0] == 0
    expected = noisy.flipped.sum() / (classes - 1)
    np.testing.assert_allclose(steps[1:], expected, atol=4.5 * np.sqrt(expected))


def test_asymmetric_flips_go_to_the_next_class() -> None:
    _, y = data(20_000, 5)
    noisy = asymmetric(y, 0.3, 5, seed=0)
    assert noisy.flipped.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 20_000))
    np.testing.assert_array_equal(noisy.labels[noisy.flipped], (y[noisy.flipped] + 1) % 5)
    assert (noisy.labels[noisy.flipped] == 0).any()


def test_asymmetric_flips_follow_a_mapping_and_leave_other_classes_alone() -> None:
    _, y = data(20_000, 10)
    noisy = asymmetric(y, 0.4, 10, seed=0, mapping=CIFAR10_PAIRS)
    for label in range(10):
        found = noisy.labels[y == label]
        target = CIFAR10_PAIRS.get(label, label)
        assert set(found) == {label, target}
        if label != target:
            assert np.mean(found == target) == pytest.approx(0.4, abs=4 * np.sqrt(0.24 / 1900))
    names = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ]
    assert {names[a]: names[b] for a, b in CIFAR10_PAIRS.items()} == {
        "truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat",
    }  # fmt: skip


# --- refusals


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_what_cannot_be_is_refused_in_one_line(law: Law) -> None:
    x, y = data(20, 3)
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match=r"rate of label noise is .*must be in \[0, 1\]"):
            law(x, y, rate, 3, 0)
    with pytest.raises(InputError, match=r"labels from 0 to 2: .* below 2"):
        law(x, y, 0.1, 2, 0)
    with pytest.raises(InputError, match="1 classes"):
        law(x, y * 0, 0.1, 1, 0)
    assert len(law(x[:0], y[:0], 0.1, 3, 0).labels) == 0


def test_wrong_options_are_refused() -> None:
    x, y = data(20, 3)
    with pytest.raises(InputError, match='input_scale is "bytes", it must be one of raw255'):
        instance_dependent(x, y, 0.1, 3, 0, input_scale="bytes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="x has 19 rows, y has 20"):
        instance_dependent(x[:19], y, 0.1, 3, 0)
    with pytest.raises(InputError, match="mapping has 1 to 3: classes are 0 to 2"):
        asymmetric(y, 0.1, 3, 0, {1: 3})

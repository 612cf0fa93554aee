"""Bands: a resample is what repeated rows would give, and the bands hold the curves."""

from __future__ import annotations

import numpy as np
import pytest

from revar import metrics
from revar.report.page import bands

COVERAGES = np.array([0.05, 0.31, 0.5, 0.75, 1.0])


def problem(seed: int, *, ties: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet([1.0, 1.0, 1.0], 80)
    labels = generator.integers(0, 3, 80)
    values = 1.0 - probabilities.max(axis=1) + 0.2 * generator.normal(size=80)
    return (np.round(values, 1) if ties else values), probabilities, labels


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_resample_is_what_repeated_rows_give(seed: int, ties: bool) -> None:
    values, probabilities, labels = problem(seed, ties=ties)
    right = probabilities.argmax(axis=1) == labels
    counts = np.random.default_rng(seed).multinomial(80, np.full(80, 1 / 80)).astype(np.int32)
    rows = np.repeat(np.arange(80), counts)
    score = bands.sort(values, right)
    ordered = counts[score.order]
    found = bands.risks(score, ordered, COVERAGES)
    expected = [1 - metrics.accuracy_at_coverage(values[rows], right[rows], c) for c in COVERAGES]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    confidence = probabilities.max(axis=1)
    bins = np.searchsorted(np.arange(1, 15) / 15, confidence, side="left")
    order = score.order
    hits = right.astype(float)
    eces = bands.eces(score, ordered, confidence[order], hits[order], bins[order], COVERAGES)
    wanted = metrics.selective_ece(
        values[rows], probabilities[rows], labels[rows], coverages=COVERAGES.tolist()
    )
    np.testing.assert_allclose(eces, wanted, atol=1e-12)


def test_bands_surround_the_curves_and_shrink_with_more_examples() -> None:
    widths = []
    for n in (200, 3200):
        generator = np.random.default_rng(1)
        probabilities = generator.dirichlet([0.4, 0.4, 0.4], n)
        labels = np.array([generator.choice(3, p=p) for p in probabilities])
        values = 1.0 - probabilities.max(axis=1)
        right = probabilities.argmax(axis=1) == labels
        given = {"softmax": probabilities.max(axis=1)}
        found = bands.bands({"softmax": values}, {"softmax": right}, given, probabilities, labels)
        low, high = found["risk"]["softmax"]
        curve = [1 - metrics.accuracy_at_coverage(values, right, c) for c in bands.RISK_GRID]
        assert ((low <= curve) & (curve <= high)).mean() > 0.9
        widths.append(high[-1] - low[-1])
        # The last point is a mean of n coins: its band has the normal width.
        rate = curve[-1]
        assert widths[-1] == pytest.approx(3.92 * np.sqrt(rate * (1 - rate) / n), rel=0.25)
        full = metrics.reliability(probabilities, labels)
        there = ~np.isnan(found["reliability"][0])
        assert (full.weight[there] > 0).all()
    assert widths[1] < widths[0] / 2.5


def test_the_same_bands_every_time() -> None:
    values, probabilities, labels = problem(0, ties=False)
    right = probabilities.argmax(axis=1) == labels
    given = {"s": probabilities.max(axis=1)}
    first, second = (
        bands.bands({"s": values}, {"s": right}, given, probabilities, labels) for _ in range(2)
    )
    np.testing.assert_array_equal(first["ece"]["s"], second["ece"]["s"])

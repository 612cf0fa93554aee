"""What `coverage_drift` sees after a threshold for a risk, and after one for a coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from revar.selection import coverage_drift, threshold_for_coverage, threshold_for_risk


def alarms(fall: float, streams: int) -> tuple[float, float, float]:
    """Shares of streams with an alarm after either threshold, and the mean fall of acceptance."""
    rng = np.random.default_rng(0)
    found, lost, counted = np.zeros(2), 0.0, 0
    while counted < streams:
        uncertainty = rng.random(500)
        correct = rng.random(500) >= 0.6 * uncertainty**2
        by_risk = threshold_for_risk(uncertainty, correct, max_risk=0.1, confidence=0.9)
        live = rng.random(500) ** (1 / (1 + fall))
        if by_risk.threshold is None:
            continue
        by_rank = threshold_for_coverage(uncertainty, by_risk.coverage)
        for i, rule in enumerate((by_risk, by_rank)):
            found[i] += coverage_drift(rule, live, confidence=0.9).drifted
        lost += by_risk.threshold - by_risk.threshold ** (1 + fall)
        counted += 1
    return float(found[0] / streams), float(found[1] / streams), lost / streams


@pytest.mark.parametrize(
    ("fall", "points", "by_risk", "by_coverage"),
    [(0.0, 0, 0.0, 0.10), (0.2, 6, 0.03, 0.59), (0.5, 14, 0.80, 1.0)],
)
def test_after_a_threshold_for_a_risk_little_is_seen(
    fall: float, points: int, by_risk: float, by_coverage: float
) -> None:
    """As the page of metrics says; within three errors, and one stream in a hundred."""
    streams = 300
    risk, coverage, lost = alarms(fall, streams)
    assert 100 * lost == pytest.approx(points, abs=1)
    for found, said in ((risk, by_risk), (coverage, by_coverage)):
        error = math.sqrt(said * (1 - said) / streams)
        assert abs(found - said) <= 3 * error + 0.01

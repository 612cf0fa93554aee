"""The guarantees, by simulation against laws whose risk and coverage are known exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from revar.selection import (
    Threshold,
    coverage_drift,
    threshold_for_coverage,
    threshold_for_risk,
    thresholds_by_group,
)
from revar.selection.risk import Procedure
from support.laws import Law, Pieces, Power, some_laws
from support.properties import Floats

REPETITIONS = 2000
PROCEDURES: list[Procedure] = ["fixed_sequence", "sgr"]
LIMIT = 0.2
LAWS = some_laws(LIMIT)


def allowed(delta: float, repetitions: int = REPETITIONS) -> float:
    """The share of violations that chance explains: three standard errors above delta."""
    return delta + 3.0 * float(np.sqrt(delta * (1.0 - delta) / repetitions))


def wrong_risk(found: Threshold, law: Law, limit: float) -> bool:
    return found.threshold is not None and law.risk_at(found.threshold) > limit * (1 + 1e-9)


def missed(found: Threshold, law: Law) -> bool:
    low, high = found.coverage_interval
    true = 0.0 if found.threshold is None else law.coverage(found.threshold)
    return not low - 1e-12 <= true <= high + 1e-12


# Risk -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize("name", LAWS)
def test_the_risk_holds(name: str, n: int) -> None:
    law, rng = LAWS[name], np.random.default_rng(n)
    wrong = dict.fromkeys(PROCEDURES, 0)
    misses, best_misses = dict.fromkeys(PROCEDURES, 0), dict.fromkeys(PROCEDURES, 0)
    for _ in range(REPETITIONS):
        uncertainty, chance = law.draw(rng, n)
        correct = rng.random(n) >= chance
        for procedure in PROCEDURES:
            found = threshold_for_risk(
                uncertainty, correct, max_risk=LIMIT, confidence=0.9, procedure=procedure
            )
            wrong[procedure] += wrong_risk(found, law, LIMIT)
            misses[procedure] += missed(found, law)
            best = found.best
            if best.threshold is not None and best.risk_bound is not None:
                best_misses[procedure] += law.risk_at(best.threshold) > best.risk_bound * (1 + 1e-9)
    for counts in (wrong, misses, best_misses):
        assert max(counts.values()) / REPETITIONS <= allowed(0.1)


def test_the_level_is_used_and_not_given_away() -> None:
    """Where 29 hits in a row are needed and enough, their chance is the share of violations."""
    rng, wrong = np.random.default_rng(0), 0
    law = Pieces((1.0,), (0.1 + 1e-9,), (False,))
    for _ in range(REPETITIONS):
        uncertainty, chance = law.draw(rng, 29)
        correct = rng.random(29) >= chance
        wrong += wrong_risk(threshold_for_risk(uncertainty, correct, max_risk=0.1), law, 0.1)
    exact = 0.9**29
    assert wrong / REPETITIONS == pytest.approx(exact, abs=3 * np.sqrt(exact / REPETITIONS))


def largest_by_eye(uncertainty: Floats, correct: Any, limit: float) -> float | None:
    """What one would do without a guarantee: the largest threshold with a fine observed risk."""
    order = np.argsort(uncertainty)
    risks = np.cumsum(~correct[order]) / np.arange(1, len(order) + 1)
    fine = np.flatnonzero(risks <= limit)
    return float(uncertainty[order][fine[-1]]) if len(fine) else None


@pytest.mark.parametrize("name", ["informative", "uninformative", "zigzag"])
def test_the_simulation_notices_a_rule_without_guarantee(name: str) -> None:
    law, rng, wrong = LAWS[name], np.random.default_rng(0), 0
    for _ in range(REPETITIONS):
        uncertainty, chance = law.draw(rng, 50)
        at = largest_by_eye(uncertainty, rng.random(50) >= chance, LIMIT)
        wrong += at is not None and law.risk_at(at) > LIMIT
    assert wrong / REPETITIONS > 2 * allowed(0.1)


LOSSES: dict[str, Callable[[np.random.Generator, Floats], Floats]] = {
    "spread": lambda rng, mean: 2.0 * mean * rng.random(len(mean)),
    "three values": lambda rng, mean: rng.binomial(2, mean) / 2.0,
    "all or nothing": lambda rng, mean: (rng.random(len(mean)) < mean).astype(float),
}


@pytest.mark.parametrize(
    ("law", "kind"),
    [
        (Power(0.45, 0.4), "spread"),
        (Pieces((0.5, 0.5), (0.3003, 0.3003), (False, True)), "all or nothing"),
        (Pieces((0.4, 0.3, 0.3), (0.45, 0.1, 0.38), (True,) * 3), "three values"),
    ],
)
def test_the_risk_holds_for_any_bounded_loss(law: Law, kind: str) -> None:
    rng, delta, limit = np.random.default_rng(0), 0.2, 0.3
    wrong = dict.fromkeys(PROCEDURES, 0)
    for _ in range(REPETITIONS):
        uncertainty, mean = law.draw(rng, 60)
        # In units of its own: -1 is nothing, 3 is the worst.
        loss = 4.0 * LOSSES[kind](rng, mean) - 1.0
        for procedure in PROCEDURES:
            found = threshold_for_risk(
                uncertainty,
                loss=loss,
                bounds=(-1.0, 3.0),
                max_risk=4.0 * limit - 1.0,
                confidence=1 - delta,
                procedure=procedure,
            )
            wrong[procedure] += wrong_risk(found, law, limit)
    assert max(wrong.values()) / REPETITIONS <= allowed(delta)


def test_all_groups_hold_together() -> None:
    rng, wrong, delta = np.random.default_rng(0), 0, 0.2
    laws = {"a": LAWS["uninformative"], "b": LAWS["five values"], "c": LAWS["informative"]}
    for _ in range(REPETITIONS):
        groups = rng.choice(list(laws), size=150, p=[0.4, 0.4, 0.2])
        uncertainty, correct = np.empty(150), np.empty(150, dtype=bool)
        for group, law in laws.items():
            rows = groups == group
            uncertainty[rows], chance = law.draw(rng, int(rows.sum()))
            correct[rows] = rng.random(int(rows.sum())) >= chance
        found = thresholds_by_group(
            uncertainty, correct, groups, max_risk=LIMIT, confidence=1 - delta
        )
        wrong += any(wrong_risk(found[group], law, LIMIT) for group, law in laws.items())
    assert wrong / REPETITIONS <= allowed(delta)


TYPICAL: dict[str, tuple[Law, int, float]] = {
    "few examples": (Power(0.6, 4.0), 60, 0.2),
    "a good score": (Power(0.5, 6.0), 300, 0.05),
    "much data": (Power(0.4, 4.0), 2000, 0.05),
    "a good classifier": (Pieces((1.0,), (0.02,), (False,)), 200, 0.1),
    "ten values": (
        Pieces((0.1,) * 10, tuple(0.4 * (j / 10) ** 3 for j in range(10)), (True,) * 10), 500, 0.1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPICAL)
def test_the_fixed_sequence_accepts_more_than_sgr(name: str) -> None:
    law, n, limit = TYPICAL[name]
    rng = np.random.default_rng(0)
    coverages: dict[Procedure, list[float]] = {procedure: [] for procedure in PROCEDURES}
    for _ in range(200):
        uncertainty, chance = law.draw(rng, n)
        correct = rng.random(n) >= chance
        for procedure, list_ in coverages.items():
            found = threshold_for_risk(uncertainty, correct, max_risk=limit, procedure=procedure)
            list_.append(found.coverage)
    gain = np.array(coverages["fixed_sequence"]) - np.array(coverages["sgr"])
    assert gain.mean() > 2 * gain.std() / np.sqrt(len(gain))
    assert gain.mean() > 0.005


# Coverage -------------------------------------------------------------------------------------

COVERAGE_LAWS: dict[str, Law] = {
    "continuous": Power(0.5, 1.0),
    "five values": LAWS["five values"],
    "point mass": LAWS["point mass"],
    "one value": LAWS["one value"],
    "many values": Pieces((0.025,) * 40, (0.1,) * 40, (True,) * 40),
}


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("coverage", [0.1, 0.45, 0.9])
@pytest.mark.parametrize("name", COVERAGE_LAWS)
def test_the_coverage_interval_holds_on_each_side(name: str, coverage: float, n: int) -> None:
    law, rng = COVERAGE_LAWS[name], np.random.default_rng(n)
    below = above = 0
    for _ in range(REPETITIONS):
        found = threshold_for_coverage(law.draw(rng, n)[0], coverage, confidence=0.8)
        assert found.threshold is not None
        true = law.coverage(found.threshold)
        below += true < found.coverage_interval[0] - 1e-12
        above += true > found.coverage_interval[1] + 1e-12
    assert max(below, above) / REPETITIONS <= allowed(0.1)
    if name == "continuous":
        # The lower end is exact.
        assert below / REPETITIONS == pytest.approx(0.1, abs=allowed(0.1) - 0.1)
        assert above / REPETITIONS > 0.0


# Drift ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coverage", "risk", "fixed", "rank"])
@pytest.mark.parametrize("name", ["continuous", "five values", "point mass"])
def test_no_drift_raises_few_alarms(name: str, kind: str) -> None:
    law, rng, alarms, looks = COVERAGE_LAWS[name], np.random.default_rng(0), 0, 0
    for _ in range(REPETITIONS):
        uncertainty, chance = law.draw(rng, 40)
        live = law.draw(rng, 60)[0]
        if kind == "coverage":
            found = threshold_for_coverage(uncertainty, 0.5)
            alarm = coverage_drift(found, live, confidence=0.9)
        elif kind == "risk":
            correct = rng.random(40) >= chance
            found = threshold_for_risk(uncertainty, correct, max_risk=0.35, confidence=0.7)
            if found.threshold is None:
                continue
            alarm = coverage_drift(found, live, confidence=0.9)
        else:
            at = 1.0 if kind == "fixed" else float(np.sort(uncertainty)[9])
            alarm = coverage_drift(uncertainty, live, threshold=at, confidence=0.9)
        looks += 1
        alarms += alarm.drifted
        assert alarm.drifted == (alarm.p_value <= 0.1 + 1e-12)
    assert looks > 200
    assert alarms / looks <= allowed(0.1, looks)
    if name == "continuous" and kind == "coverage":
        assert alarms / looks > 0.04

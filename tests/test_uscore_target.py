"""g taught on unlabelled inputs of the target domain: what is told of it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.scripts import scripts

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def target() -> Iterator[Any]:
    """The script."""
    with scripts("uscore", "target") as found:
        yield found.target


def test_gains_are_means_over_domains_and_their_spread_is_over_seeds(target: Any) -> None:
    rows = [
        {"way": way, "seed": seed, "softmax": 50.0, "g, train": 50.0 + gain, "g, target": 49.0,
         "g, both": 50.0}
        for way, seed, gain in (
            ("plain", 0, 1.0), ("plain", 0, 3.0), ("plain", 1, 4.0), ("plain", 1, 4.0),
            ("trajectory", 0, -7.0),
        )
    ]  # fmt: skip
    found = target.gains(rows, "plain")
    assert found["train"] == pytest.approx((3.0, math.sqrt(2)))
    assert found["target"] == pytest.approx((-1.0, 0.0))
    mean, spread = target.gains(rows, "trajectory")["train"]
    assert mean == pytest.approx(-7)
    assert math.isnan(spread)


def test_points_of_two_sets_keep_their_order(target: Any) -> None:
    sets = [
        (target.Inputs(torch.full((n, 2), float(n)), torch.arange(float(n))), torch.full((n,), n))
        for n in (2, 3)
    ]
    inputs, wanted = target.together(*sets)
    assert wanted.tolist() == [2, 2, 3, 3, 3]
    assert inputs.embedding[:, 0].tolist() == [2, 2, 3, 3, 3]
    assert inputs.log_odds.tolist() == [0, 1, 0, 1, 2]


@pytest.mark.skipif("REVAR_DATA" not in os.environ, reason="needs real data")
def test_a_run_tells_of_every_domain(target: Any) -> None:
    run = target.corrupted("trajectory", 0, images=60, epochs=3, unlabelled=20)
    rows = target.one("trajectory", 0, run, torch.device("cpu"))
    assert [row["domain"].partition("-")[0] for row in rows] == [
        name.partition(":")[0] for name in target.DOMAINS
    ]
    for row in rows:
        assert {f"g, {taught}" for taught in target.TAUGHT} < row.keys()
        assert 0 <= row["softmax"] <= 100


def test_a_tenth_of_the_patients_of_another_country_is_seen_whole(target: Any) -> None:
    patients = np.repeat(np.arange(200), np.arange(200) % 3 + 1)
    runs = [target.retinas("trajectory", seed) for seed in (0, 0, 1)]
    seen = [run.choose(patients) for run in runs]
    for chosen in seen:
        whole = set(patients[chosen])
        assert len(whole) == 20
        assert whole.isdisjoint(patients[~chosen])
    np.testing.assert_array_equal(seen[0], seen[1])
    assert (seen[0] != seen[2]).any()
    assert runs[0].cell.data.tests == ("aptos", "deepdrid")
    plain = dict(target.retinas("plain", 0).cell.settings)
    assert (plain["early"], plain["half_life"]) == ("0.0", "0.0")

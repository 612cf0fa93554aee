"""The benchmark of scaling runs at the smallest size, and its estimate is the formula it states."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.scripts import BENCHMARKS, scripts

SCRIPT = BENCHMARKS / "scaling.py"


def test_it_measures_both_ways(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    small = ["--backbone", "convnet", "--px", "8", "--batch", "4", "--steps", "2", "--warm", "0"]
    done = subprocess.run(
        [
            sys.executable, str(SCRIPT), *small, "--processes", "2", "--methods", "erm",
            "--estimate-px", "0", "--json", str(out),
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["scaling"]
    found = [(row["scaling"], row["processes"], row["batch"]) for row in rows]
    assert found == [("weak", 2, 8), ("strong", 2, 8)]
    # The gradients of four convolutions with their norms and of the last layer, in float32.
    convolutions = [(3, 32), (32, 32), (32, 64), (64, 128)]
    parameters = sum(9 * a * b + 2 * b for a, b in convolutions) + 128 * 10 + 10
    for row in rows:
        assert row["ms"] > 0
        # And two sums for each channel of each norm, on the way back.
        sums = 4 * parameters + sum(8 * width for _, width in convolutions)
        assert row["all_reduce_bytes"] == sums
        assert row["efficiency"] == 1, "of the fewest processes that were asked for"
    assert out.with_suffix(".png").stat().st_size > 5_000


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    with scripts("scaling", scaling="scaling") as found:
        yield found.scaling


def test_the_estimate_by_hand(module: Any) -> None:
    """8 GPUs, 100 MB reduced, 1 MB and 10 kB a row gathered, 10 + 30 calls of a weighted step."""
    counted = {
        "weighted all_reduce": {2: 100e6, 4: 100e6}, "weighted all_gather": {2: 1.02e6, 4: 1.04e6},
        "weighted all_reduce calls": {2: 10, 4: 10}, "weighted all_gather calls": {2: 30, 4: 30},
        "meta all_reduce": {2: 0, 4: 0}, "meta all_gather": {2: 0, 4: 0},
        "meta all_reduce calls": {2: 0, 4: 0}, "meta all_gather calls": {2: 0, 4: 0},
    }  # fmt: skip
    inputs = {
        "images": 3_600_000, "epochs": 1, "batch_per_gpu": 100, "plain_step_ms": 10.0,
        "weighted_step_ms": 20.0, "meta_step_ms": 100.0, "interval": 10, "warmup_share": 0.5,
        "bandwidth_in_host_gb": 100.0, "bandwidth_between_hosts_gb": 10.0, "gpus_per_host": 8,
        "latency_us": 100.0,
    }  # fmt: skip
    alone, host, *_ = module.estimate(counted, inputs)
    # 36,000 steps of 10 ms; half of 10 ms and half of 20 + 100 / 10.
    assert alone["erm_hours"] == pytest.approx(0.1)
    assert alone["revar_hours"] == pytest.approx(0.2)
    # (2 * 7/8 * 100 MB + 7 * 2 MB) / 100 GB/s is 1.89 ms, and 40 calls of 0.1 ms are 4 ms.
    assert host["sent_mb_per_step"] == pytest.approx(189)
    assert host["erm_hours"] == pytest.approx(4500 * (10 + 1.89 + 4) / 3.6e6)
    assert host["ratio"] == pytest.approx((20 + 5.89) / (10 + 5.89))

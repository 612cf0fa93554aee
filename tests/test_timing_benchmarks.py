"""Scripts that time training run, at the smallest size; their figures are for people."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.scripts import BENCHMARKS, scripts


def run(tmp_path: Path, script: str, *arguments: str) -> tuple[dict[str, Any], str]:
    """What it wrote, and what it printed."""
    out = tmp_path / "figures.json"
    done = subprocess.run(
        [
            sys.executable, str(BENCHMARKS / f"{script}.py"), "--backbone", "mlp", "--size", "0",
            "--batch", "16", *arguments, "--json", str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    assert {"command", "commit", "date", "processor", "load"} <= found.keys()
    return found, done.stdout


def test_epochs_with_a_uscore_against_plain_ones(tmp_path: Path) -> None:
    wanted = ["erm", "features", "network", "trajectory"]
    few = ["--intervals", "1", "--repeats", "2", "--scorer", "mlp"]
    found, said = run(tmp_path, "epoch", *few, "--settings", *wanted)
    assert list(found["settings"]) == wanted
    plain = found["settings"]["erm"]["milliseconds"]
    for name, one in found["settings"].items():
        assert name in said
        turns = [ours / theirs for ours, theirs in zip(one["milliseconds"], plain, strict=True)]
        assert one["ratio"] == pytest.approx(sum(turns) / 2)
        assert min(one["milliseconds"]) > 0


@pytest.mark.parametrize("size", ["0", "8"])
def test_our_loop_against_one_by_hand(tmp_path: Path, size: str) -> None:
    net = "mlp" if size == "0" else "convnet"
    found, said = run(
        tmp_path, "loop", "--backbone", net, "--size", size, "--steps", "3", "--repeats", "3"
    )
    ours, hand = (found["milliseconds"][name] for name in ("ours", "by hand"))
    turns = sorted(slow / fast for slow, fast in zip(hand, ours, strict=True))
    assert len(turns) == 3
    assert found["ratio"] == pytest.approx(turns[1])
    assert found["first_step_seconds"]["by hand"] > 0
    assert "by hand" in said


def test_ratios_of_turns_and_of_medians() -> None:
    """Of turns 3, 1 and 2.5 times as fast; medians are 2 and 4."""
    found = {"ours": [1.0, 4.0, 2.0], "by hand": [3.0, 4.0, 5.0]}
    with scripts("loop", loop="loop") as benchmark:
        by_turns = benchmark.loop.times_as_fast(found, turns=True)
        by_medians = benchmark.loop.times_as_fast(found, turns=False)
    assert by_turns == {"ours": 2.5, "by hand": 1.0}
    assert by_medians == {"ours": 2.0, "by hand": 1.0}


def test_how_the_cost_grows(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "cost", "--short")
    assert {row["quantity"] for row in found["rows"]} == {"interval", "passes", "backbone"}
    for row in found["rows"]:
        assert row["ratio"] == pytest.approx(row["revar_ms"] / row["erm_ms"])
    assert (tmp_path / "figures.png").stat().st_size > 1000

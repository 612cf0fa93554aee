"""Benchmarks run, at the smallest size; their figures are for people, not for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_meta_step_benchmark_measures_every_engine(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    arguments = ["--classifier", "convnet", "--scorer", "convnet", "--size", "8", "--batch", "4"]
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "meta_step.py"), *arguments,
            "--passes", "2", "--repeats", "1", "--warmup", "1", "--json", str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    engines = json.loads(out.read_text())["engines"]
    assert {"forward mode, shared trunk", "higher, T full passes"} <= engines.keys()
    for name, figures in engines.items():
        assert "error" not in figures, f"{name}: {figures}"
        assert figures["ms"] > 0
        assert figures["time_ratio"] > 0
    assert all(name in done.stdout for name in engines)

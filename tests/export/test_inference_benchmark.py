"""The benchmark runs, at the smallest size; its figures are for people."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_inference_benchmark_times_every_row(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "inference.py"), "--backbone", "convnet",
            "--size", "8", "--images", "4", "--calls", "1", "4", "--repeats", "1",
            "--scorers", "evidence", "--json", str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert {"command", "commit", "date", "processor", "clock"} <= found["setting"].keys()
    figures = found["scorers"]["evidence"]
    assert figures.keys() == {"1", "4"}
    names = {"plain forward", "softmax", "uscore", "fused", "every score", "onnxruntime, uscore"}
    for by_name in figures.values():
        assert names <= by_name.keys()
        assert by_name["plain forward"]["ratio"] == 1.0
        assert all(row["ms_per_image"] > 0 and row["ratio"] > 0 for row in by_name.values())
        assert all(name in done.stdout for name in by_name)

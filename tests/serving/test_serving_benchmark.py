"""The load test runs, at the smallest size; its figures are for people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_load_test_measures_both_servers(tmp_path: Path) -> None:
    out = tmp_path / "load.json"
    options = ["--models", "mlp", "--clients", "2", "--seconds", "0.3", "--json", str(out)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "serve.py"), *options],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert {"command", "commit", "date", "processor"} <= found["setting"].keys()
    for server in ("revar serve", "bare handler"):
        (row,) = found["models"]["mlp"][server]
        assert row["requests"] > 0
        assert row["refused"] == 0
        assert row["cpu_ms"] > 0
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
        assert f"| mlp | 2 | {server} |" in done.stdout

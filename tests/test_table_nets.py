"""The comparison of networks for tables: what it trains, keeps and says."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.scripts import BENCHMARKS, scripts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two small tables with a target, one with text in it and a gap."""
    generator = np.random.default_rng(0)
    made = tmp_path / "tables"
    made.mkdir()
    for name in ("first", "second"):
        frame = pd.DataFrame(generator.normal(size=(60, 3)), columns=["a", "b", "c"])
        frame["target"] = np.where(frame.a + frame.b > 0, "yes", "no")
        if name == "second":
            frame["d"] = np.where(frame.c > 0, "left", "right")
            frame.loc[3, "a"] = np.nan
        frame.to_csv(made / f"{name}.csv", index=False)
    return made


def call(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """On the two tables, with two networks and a seed."""
    runs = folder.parent / "runs.csv"
    return subprocess.run(
        [
            sys.executable, str(BENCHMARKS / "table_nets.py"), str(folder), "--runs", str(runs),
            "--tables", "first", "second", "--nets", "linear", "mlp-8x1", "--methods", "erm",
            "--seeds", "1", *more,
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_runs_are_made_once_and_compared(folder: Path) -> None:
    out = folder.parent / "summary.json"
    done = call(folder, "--json", str(out))
    assert done.returncode == 0, done.stderr
    first = (folder.parent / "runs.csv").read_text()
    with (folder.parent / "runs.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    auarc = {(row["table"], row["net"]): float(row["auarc"]) for row in rows}
    tables, nets = ("first", "second"), ("linear", "mlp-8x1")
    assert set(auarc) == {(table, net) for table in tables for net in nets}
    assert len(rows) == len(auarc)
    assert all(40 <= float(row["accuracy"]) <= 100 for row in rows)
    found = json.loads(out.read_text())
    assert found["rows"] == {"first": 60, "second": 60}
    gained = [auarc[table, "mlp-8x1"] - auarc[table, "linear"] for table in tables]
    mean = found["gains"]["mlp-8x1"]["erm"]["auarc"]["mean"]
    assert mean == pytest.approx(np.mean(gained), abs=1e-4)
    again = call(folder)
    assert again.returncode == 0, again.stderr
    assert (folder.parent / "runs.csv").read_text() == first


def test_a_table_that_cannot_be_learned_is_told_and_the_others_stay(folder: Path) -> None:
    pd.DataFrame({"a": [1.0, 2, 3], "target": ["x", "x", "x"]}).to_csv(
        folder / "second.csv", index=False
    )
    done = call(folder)
    assert done.returncode == 1
    assert "2 runs failed" in done.stderr
    assert set(pd.read_csv(folder.parent / "runs.csv").table) == {"first"}


def test_the_interval_is_over_tables() -> None:
    """Of differences 1, 2 and 3: mean 2, deviation 1, and t = 4.303 at two degrees of freedom."""
    with scripts("table_nets", table_nets="table_nets") as found:
        make = found.table_nets.Run
        runs = [
            make(table=table, method="erm", net=net, seed=seed, rows=9, accuracy=0.0,
                 auarc=50 + over * (net == "wide") + seed, nll=0.0, seconds=1.0)
            for over, table in enumerate("abc", 1) for net in ("narrow", "wide") for seed in (0, 1)
        ]  # fmt: skip
        gain = found.table_nets.gain(runs, "auarc", "wide", "narrow", list("abc"))
    half = 4.302653 / np.sqrt(3)
    assert gain["mean"] == pytest.approx(2)
    assert (gain["low"], gain["high"]) == pytest.approx((2 - half, 2 + half))
    assert gain["above"] == 3

"""Fused with the U-Score and without: what it adds where it knows something, and where not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.scripts import scripts


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    with scripts("uscore", "fusion", "store") as found:
        yield found


def _write(study: Any, out: Path, way: str, *, knows: bool) -> None:
    """A run whose g says the truth, or nothing; softmax and dropout say a little."""
    sets = {}
    for number, name in enumerate(("tune", "test")):
        rng = np.random.default_rng(number)
        right = rng.random(600) < 0.7
        wrong = (~right).astype(float)
        sets[name] = study.store.Scored(
            correct=right,
            scores={
                "softmax": wrong + rng.normal(0, 1.5, 600),
                "dropout_entropy": wrong + rng.normal(0, 1.5, 600),
                "uscore": 4 * knows * wrong + rng.normal(0, 1, 600),
            },
        )
    about = {"way": way, "method": way, "seed": 0, "own": "uscore", "default": "fused"}
    path = out / "cifar10" / f"{way}-0.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    study.store.write_run(path, about, sets)


def test_g_adds_where_it_knows_and_nothing_where_it_does_not(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(study, tmp_path, "knows", knows=True)
    _write(study, tmp_path, "silent", knows=False)
    out = tmp_path / "fusion.json"
    assert study.fusion.main([str(tmp_path), "--json", str(out)]) == 0
    rows = {row["way"]: row for row in json.loads(out.read_text())["rows"]}
    gains = {way: row["with"] - row["without"] for way, row in rows.items()}
    assert gains["knows"] > 5
    assert abs(gains["silent"]) < 0.5
    for row in rows.values():
        assert row["without"] > row["softmax"] + 0.5
        assert row["set"] == "test"
    assert "| knows | cifar10 test |" in capsys.readouterr().out


def test_runs_without_a_u_score_are_left_out(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study.fusion.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: no finished run")

"""Tables whose cells are damaged or not there: one line for each, and the rest is answered."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from revar.cli import run
from revar.report.tables import write_table
from revar.tables.catalogue import find_table
from revar.tables.cell import Cell
from revar.tables.executors import Here
from revar.tables.places import scale_of
from revar.tables.questions import Answer, wanted

SCALE = replace(scale_of("smoke"), seeds=1)
TABLES = ("plex-calibration", "plex-label", "plex-selective", "cost")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with what the tables need."""
    out = tmp_path_factory.mktemp("whole")
    grids = [grid for name in TABLES for grid in find_table(name).grids(SCALE)]
    Here().run(wanted(grids, 1), out / "cells", "cpu", lambda _: None)
    return out


def _first(name: str) -> Cell:
    return wanted(find_table(name).grids(SCALE), 1)[-1]


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("plex-calibration", "metrics.json", "{}"),
        ("plex-calibration", "metrics.json", "[1]"),
        ("plex-calibration", "metrics.json", '{"test": {"ece": "x"}, "shifted": {"ece": "x"}}'),
        ("plex-calibration", "metrics.json", None),
        ("plex-selective", "scores.json", '{"own": 3}'),
        ("plex-selective", "scores.json", "3"),
        ("plex-label", "cell.json", "{}"),
        ("plex-label", "predictions/test.safetensors", None),
        ("plex-label", "predictions/test.safetensors", "x"),
        ("cost", "log.jsonl", None),
        ("cost", "log.jsonl", ""),
        ("cost", "log.jsonl", '{"accuracy": 0.1, "seconds": 1.0}\n{"accu'),
        ("cost", "log.jsonl", '{"loss": 0.1}\n'),
        ("cost", "log.jsonl", '{"accuracy": NaN, "seconds": 1.0}\n'),
    ],
)
@pytest.mark.parametrize("executor", ["none", "here"])
def test_a_damaged_cell_is_named_in_its_place(
    name: str,
    file: str,
    text: str | None,
    executor: str,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    damaged = out / "cells" / _first(name).digest / file
    damaged.unlink()
    if text is not None:
        damaged.write_text(text)
    command = ["paper", name, "--scale", "smoke", "--seeds", "1", "--out", str(out), "--json"]
    assert run([*command, "--executor", executor, "--device", "cpu"]) == 1
    said = capsys.readouterr()
    lines = [line for line in said.err.splitlines() if line.startswith("incomplete:")]
    assert lines
    assert all(damaged.parent.name in line for line in lines)
    assert all(Path(file).stem in line for line in lines)
    places = json.loads(said.out)["tables"]
    assert any(damaged.parent.name in (place["reason"] or "") for place in places)
    assert any(place["mean"] is not None for place in places)


def test_nothing_is_drawn_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture without a line would be a warning, which is an error here."""
    command = ["paper", "plex-selective", "--scale", "smoke", "--out", str(tmp_path)]
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "plex-selective.png").write_bytes(b"of an earlier call")
    assert run([*command, "--executor", "none"]) == 1
    assert (tmp_path / "tables" / "plex-selective.csv").exists()
    assert not list((tmp_path / "tables").glob("*.png"))


@pytest.mark.parametrize("at", [0, -1])
def test_a_panel_without_answers_leaves_the_others(at: int, tmp_path: Path) -> None:
    grid = find_table("plex-selective").grids(SCALE)[0]
    answered = grid.columns[at]
    answers = {
        (row, column): Answer({0: 0.5} if column == answered else {})
        for row in grid.rows
        for column in grid.columns
    }
    written = write_table(tmp_path, grid, answers, None, {})
    assert tmp_path / "plex-selective.png" in written

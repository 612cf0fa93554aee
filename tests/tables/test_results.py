"""What is committed under results/ is what the code says, and what the page shows."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from revar.cli import run
from revar.tables.catalogue import TABLES, find_table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"<!-- table (\S+) -->\n(.*?)<!-- end -->", PAGE, flags=re.DOTALL)


def test_committed_runs_give_the_committed_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["paper", "merge", str(RESULTS / "lesion" / "cells.zip"), str(tmp_path)]) == 0
    command = ["paper", "lesion", "--scale", "small", "--out", str(tmp_path)]
    assert run([*command, "--executor", "none"]) == 0
    for suffix in (".csv", ".md"):
        ours = (tmp_path / "tables" / f"lesion{suffix}").read_bytes()
        assert ours == (RESULTS / "lesion" / f"lesion{suffix}").read_bytes()


@pytest.mark.parametrize(("grid", "text"), SHOWN, ids=[grid for grid, _ in SHOWN])
def test_the_page_shows_the_committed_numbers(grid: str, text: str) -> None:
    name = max((t.name for t in TABLES if grid.startswith(t.name)), key=len)
    file = RESULTS / name / f"{grid}.md"
    wanted = [line for line in file.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert text.split("\n") == ["", *wanted, "", ""]
    made = json.loads((file.parent / "provenance.json").read_text())
    # The scale itself has one seed of controls: two are more than it trains in half an hour.
    controls = " --seeds 2" if find_table(name).control else ""
    assert made["command"] == f"revar paper {name} --scale small{controls}"
    with file.with_suffix(".csv").open(encoding="utf-8", newline="") as content:
        seeds = {len(row["values"].split()) for row in csv.DictReader(content)}
    assert len(made["seeds"]) == max(seeds)
    assert made["commit"]
    assert made["hardware"]


def test_every_committed_table_is_shown_and_every_other_is_named() -> None:
    shown = {max((t.name for t in TABLES if g.startswith(t.name)), key=len) for g, _ in SHOWN}
    _, _, missing = PAGE.partition("## Not run yet")
    for table in TABLES:
        there = (RESULTS / table.name / "provenance.json").exists()
        assert there == (table.name in shown)
        if not there and table.name != "imagenet1k-coverage":
            assert f"`{table.name}`" in missing

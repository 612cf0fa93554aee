"""What is committed under results/ is what the code says, and what the page shows."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from revar.cli import run
from revar.tables.catalogue import TABLES, find_table
from revar.tables.controls import CALIBRATORS
from support.scripts import scripts

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


def test_published_tables_are_what_the_code_makes_of_their_numbers() -> None:
    with scripts("publish", publish="publish_tables") as here:
        made = dict(here.publish.published_again(RESULTS))
    assert len(made) > 30
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, path


def committed(grid: str, name: str | None = None) -> dict[tuple[str, str], list[float]]:
    folder = max((t.name for t in TABLES if grid.startswith(t.name)), key=len)
    file = RESULTS / folder / f"{name or grid}.csv"
    with file.open(encoding="utf-8", newline="") as content:
        rows = list(csv.DictReader(content))
    return {(r["row"], r["column"]): [float(v) for v in r["values"].split()] for r in rows}


def test_committed_runs_give_the_rows_that_go_by_other_probabilities(tmp_path: Path) -> None:
    """AUC and ECE of ``mcd`` by the mean of passes, calibrators by what was fitted on tune data."""
    assert run(["paper", "merge", str(RESULTS / "lesion" / "cells.zip"), str(tmp_path)]) == 0
    seen = 0
    for name in ("dr-coverage", "simple-calibrators"):
        command = ["paper", name, "--scale", "small", "--out", str(tmp_path)]
        assert run([*command, "--executor", "none"]) == 1
        for file in (tmp_path / "tables").glob(f"{name}*.json"):
            published = committed(file.stem)
            for line in json.loads(file.read_text()):
                if line["row"] in ("mcd", *CALIBRATORS) and len(line["values"]) == 3:
                    found = list(line["values"].values())
                    assert found == pytest.approx(published[line["row"], line["column"]], abs=1e-9)
                    seen += 1
    assert seen == 3 * 15 + 4 * 2


def test_what_the_row_conformal_was_before() -> None:
    values = committed("simple-calibrators", "lac")
    means = [
        f"{100 * np.mean(values['conformal-lac', c]):.2f}" for c in ("cifar100", "imagenet-100")
    ]
    assert f"{means[0]} and {means[1]} there" in PAGE
    # Of two classes both rank as the softmax does.
    ours = committed("simple-calibrators")
    for column in ("eyepacs", "aptos"):
        assert ours["conformal", column] == values["conformal-lac", column]
        assert ours["conformal", column] == committed("main")["sr", column]


def marks(grid: str) -> dict[tuple[str, str], str]:
    """``best``, ``close`` or ``told`` by row and column, as the page has it."""
    text = dict(SHOWN)[grid].strip().splitlines()
    columns = [cell.strip() for cell in text[0].split("|")[2:-1]]
    found = {}
    for line in text[2:]:
        row, *cells = (cell.strip() for cell in line.split("|")[1:-1])
        for column, cell in zip(columns, cells, strict=True):
            found[row, column] = "best" if "**" in cell else "close" if "~" in cell else "told"
    return found


def of(grid: str, row: str | None = None, place: str = "") -> set[str]:
    """The marks of a row, or of all, in the columns of one place, or of all."""
    return {
        mark
        for (name, column), mark in marks(grid).items()
        if (row is None or name == row) and column.startswith(place)
    }


def test_what_the_page_says_can_be_told() -> None:
    assert of("main", "revar", "eyepacs") == of("main", "revar", "cifar100") == {"best"}
    assert of("main", "sr", "eyepacs") == of("main", "sr", "cifar100") == {"close"}
    assert of("main", "revar", "imagenet-100") == {"told"}
    assert of("main", "gamblers", "aptos") == of("dr-coverage", "gamblers", "aptos@1.0") == {"best"}
    assert "told" not in of("dr-coverage", place="deepdrid")
    for place in ("eyepacs", "aptos"):
        assert of("calibration", "revar", place) == {"best"}
        assert of("calibration", "sr", place) == {"close"}
    assert of("calibration", "revar", "cifar100") == of("calibration", "revar", "imag") == {"told"}
    for row in ("l2r", "fsr"):
        assert of("label-noise", row) == {"told"}
    assert "told" not in of("label-noise", "mwn") | of("lesion", "novarmin")
    assert of("parameter-control", "selectivenet") == of("parameter-control", "sat") == {"close"}
    for grid in ("uscore-architecture", "vit", "wrn", "wrn-auc", "wrn-error", "label-uncertainty",
                 "plex-label", "two-phase-adaptation",
                 "entropy-regularisation"):  # fmt: skip
        assert "told" not in of(grid), grid

"""Every table at the smallest size, and what people and machines see of it."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from matplotlib.image import imread

from revar.cli import run
from revar.commands.tables import run_tables
from revar.published import TABLES as PUBLISHED
from revar.published import published
from revar.registry import DATASETS
from revar.report import tables as report
from revar.report.tables import place_of
from revar.tables.catalogue import TABLES, find_table
from revar.tables.names import ELSEWHERE, NAMES
from revar.tables.places import SCALES, scale_of
from revar.tables.questions import Answer, Grid, wanted
from revar.tables.ways import WAYS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every table at smoke, one seed, in this process."""
    out = tmp_path_factory.mktemp("paper")
    answers = run_tables(["all"], "smoke", out, seeds=1, device="cpu")
    assert not answers.failures
    return out


def test_every_table_of_the_paper_is_there() -> None:
    assert tuple(table.name for table in TABLES) == NAMES
    assert set(PUBLISHED) - set(NAMES) == set(ELSEWHERE)
    for name in NAMES:
        assert find_table(name).summary


@pytest.mark.parametrize("name", SCALES)
def test_every_scale_can_be_asked_and_shares_its_cells(name: str) -> None:
    scale = scale_of(name)
    grids = [grid for table in TABLES for grid in table.grids(scale)]
    cells = [cell for cell in wanted(grids, 1) if not cell.timed]
    places = sum(len(grid.questions) for grid in grids)
    assert len(cells) < places / 3
    for cell in cells:
        cell.recipe()
    known = {"generated", *(entry.name for entry in DATASETS)}
    assert {cell.data.name for cell in cells} <= known
    others = {test.partition(":")[0] for cell in cells for test in cell.data.tests}
    assert {test for test in others if test.startswith("imagenet-")} <= known
    for grid in grids:
        assert all(grid.stands_for.values())
        assert {row for row, _ in grid.questions} <= set(grid.rows)
        assert {column for _, column in grid.questions} <= set(grid.columns)
    if name == "small":  # what one GPU trains in half an hour
        assert len(wanted(grids, scale.seeds)) <= 240


EMPTY = {
    # Nothing stands in for ImageNet-1K at this size.
    ("small", "imagenet1k-coverage"),
}
"""Tables without columns: their scale and name."""


@pytest.mark.parametrize("name", SCALES)
def test_every_table_has_columns_and_cells_at_every_scale(name: str) -> None:
    scale = scale_of(name)
    for table in TABLES:
        grids = table.grids(scale)
        assert table.has_columns(scale) == ((name, table.name) not in EMPTY), table.name
        for grid in grids:
            # A column is asked, or it is said why not.
            assert not set(grid.left_out) & {place_of(column) for column in grid.columns}
            assert set(grid.left_out) <= set(scale.left_out)
            if (name, table.name) not in EMPTY:
                assert grid.columns
                assert set(grid.questions) == {(r, c) for r in grid.rows for c in grid.columns}


def test_a_table_without_columns_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for scale, table in EMPTY:
        assert run(["paper", table, "--scale", scale, "--out", str(tmp_path)]) == 2
        captured = capsys.readouterr()
        (line,) = captured.err.strip().splitlines()
        assert f'"{table}" has no columns at scale "{scale}" (imagenet-1k: ' in line
        assert "use --scale smoke or paper" in line
        assert not captured.out
    assert not list(tmp_path.iterdir())


def test_columns_that_cannot_be_asked_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["paper", "label-uncertainty", "--scale", "paper", "--out", str(tmp_path)]
    assert run([*command, "--executor", "none"]) == 1
    captured = capsys.readouterr()
    assert "left out: imagenet-100h: no such labels were found" in captured.err
    assert "cifar100h" in captured.out
    assert "CIFAR-10H" in captured.out
    assert run([*command[:1], "all", *command[2:], "--executor", "none"]) == 1
    assert capsys.readouterr().err.count("left out: imagenet-100h") == 1


def test_controls_have_fewer_seeds_unless_a_number_is_asked_for() -> None:
    scale = scale_of("small")
    assert scale.control_seeds is not None
    assert scale.control_seeds < scale.seeds
    cells = {}
    for asked in (scale, scale_of("small", 4)):
        for name in ("wrn", "main"):
            grids = find_table(name).grids(asked)
            cells[asked.seeds, name] = {cell.seed for cell in wanted(grids, asked.seeds)}
    assert cells[3, "wrn"] == {0}
    assert cells[3, "main"] == {0, 1, 2}
    assert cells[4, "wrn"] == cells[4, "main"] == {0, 1, 2, 3}
    (grid, *_) = find_table("wrn").grids(scale)
    place = next(iter(grid.questions.values()))
    assert list(place.asked_of(scale.seeds)) == [0]


def test_time_is_asked_of_one_seed_and_epochs_of_all() -> None:
    (grid,) = find_table("cost").grids(scale_of("small"))
    timed = [cell for cell in wanted([grid], 3) if cell.timed]
    assert {cell.seed for cell in timed} == {0}
    assert {cell.seed for cell in wanted([grid], 3) if not cell.timed} == {0, 1, 2}


def test_rows_are_named_as_in_the_paper() -> None:
    for name in ("main", "calibration", "label-noise", "reweighting"):
        assert set(published(name).rows) <= set(WAYS)


def test_all_tables_answer(folder: Path) -> None:
    for grid in (grid for table in TABLES for grid in table.grids(scale_of("smoke"))):
        stem = folder / "tables" / grid.name.replace("/", "-")
        lines = json.loads(stem.with_suffix(".json").read_text())
        assert len(lines) == len(grid.questions)
        answered = [line for line in lines if line["mean"] is not None]
        assert len(answered) >= 0.6 * len(lines), grid.name
        if grid.percent:
            assert all(0 <= line["mean"] <= 1 for line in answered)
        text = stem.with_suffix(".md").read_text()
        assert all(f"| {row} |" in text for row in grid.rows)
        # Nobody may take generated pictures for the data a column is named after.
        assert "generated pictures" in text
        assert {line["data"] for line in lines} == {"generated pictures"}
    with (folder / "tables" / "main.csv").open() as file:
        first = next(csv.DictReader(file))
    printed = published("main").values["sr", "eyepacs"].mean
    assert float(first["paper"]) == pytest.approx(printed / 100)
    assert (folder / "cells" / first["cells"] / "cell.json").exists()
    assert (folder / "tables" / "dr-coverage.png").stat().st_size > 5000


def test_a_second_call_trains_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("*")}
    command = ["paper", "lesion", "--scale", "smoke", "--seeds", "1", "--out", str(folder)]
    assert run([*command, "--executor", "none", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {line["row"] for line in said["tables"]} >= {"revar", "novarmin", "mcd"}
    assert {path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("*")} == before


def test_the_terminal_shows_ours_and_the_papers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["paper", "label-noise", "--scale", "smoke", "--seeds", "1", "--out", str(folder)]
    assert run([*command, "--executor", "none"]) == 0
    text = capsys.readouterr().out
    assert "revar-paper" in text
    assert "Not the paper's data" in text
    theirs = published("label-noise").values["mwn", "clothing1m"].mean
    assert f"({theirs:g})" in text


def test_pictures_of_three_countries(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["paper", "dr-images", "--scale", "smoke", "--out", str(folder)]
    assert run(command) == 0
    all_countries, to_show = (
        imread(folder / "tables" / name) for name in ("dr-images.png", "dr-images-deepdrid.png")
    )
    assert all_countries.shape[0] > 2 * to_show.shape[0]
    assert run([*command, "--seed", "7"]) == 2
    assert run([*command, "--coverage", "1.5"]) == 2
    errors = capsys.readouterr().err
    assert "dr-coverage --scale smoke" in errors
    assert "--coverage must be between 0 and 1" in errors


def test_missing_cells_are_named_in_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["paper", "ood", "--scale", "smoke", "--seeds", "1", "--out", str(tmp_path)]
    assert run([*command, "--executor", "none"]) == 1
    captured = capsys.readouterr()
    assert "not trained yet" in captured.err
    assert "not run" in captured.out


def test_cells_travel_in_one_file(folder: Path, tmp_path: Path) -> None:
    parcel, other = tmp_path / "cells.zip", tmp_path / "other"
    assert run(["paper", "pack", str(folder), str(parcel)]) == 0
    assert run(["paper", "merge", str(parcel), str(other)]) == 0
    command = ["paper", "lesion", "--scale", "smoke", "--seeds", "1"]
    assert run([*command, "--out", str(other), "--executor", "none"]) == 0
    for suffix in (".csv", ".json", ".md"):
        name = f"tables/lesion{suffix}"
        assert (other / name).read_bytes() == (folder / name).read_bytes()
    assert run(["paper", "merge", str(parcel), str(other)]) == 0
    assert run(["paper", "pack", str(folder), str(parcel)]) == 2


def test_damaged_parcels_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import zipfile

    bad = tmp_path / "bad.zip"
    bad.write_bytes(b"no zip")
    assert run(["paper", "merge", str(bad), str(tmp_path / "o")]) == 2
    with zipfile.ZipFile(tmp_path / "half.zip", "w") as archive:
        archive.writestr("abc/cell.json", "{}")
    assert run(["paper", "merge", str(tmp_path / "half.zip"), str(tmp_path / "o")]) == 2
    with zipfile.ZipFile(tmp_path / "up.zip", "w") as archive:
        archive.writestr("abc/../../x", "{}")
    assert run(["paper", "merge", str(tmp_path / "up.zip"), str(tmp_path / "o")]) == 2
    assert capsys.readouterr().err.count("no parcel of cells") == 3
    assert not (tmp_path / "o").exists()


def test_bad_names_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["paper", "mian"]) == 2
    assert run(["paper", "main", "--scale", "tiny", "--out", str(tmp_path)]) == 2
    assert run(["paper", "main", "--executor", "slurm", "--out", str(tmp_path)]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 3
    assert not list(tmp_path.iterdir())


def test_list_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "tables", "--json"]) == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)]
    assert names == [*NAMES, "controlled"]


def _grid(higher: bool | None = True) -> Grid:
    return Grid(
        name="t", title="t", metric="m", higher=higher, rows=("a", "b", "c"), columns=("x",),
        questions={},
    )  # fmt: skip


def test_the_best_and_those_that_cannot_be_told_from_it() -> None:
    answers = {
        ("a", "x"): Answer({0: 0.90, 1: 0.91, 2: 0.92, 3: 0.90}),
        ("b", "x"): Answer({0: 0.91, 1: 0.90, 2: 0.93, 3: 0.88}),
        ("c", "x"): Answer({0: 0.80, 1: 0.81, 2: 0.82, 3: 0.805}),
    }
    best, close = report.best_and_close(_grid(), answers, "x")
    assert (best, close) == ("a", {"b"})
    best, close = report.best_and_close(_grid(higher=False), answers, "x")
    assert (best, close) == ("c", set())
    assert report.best_and_close(_grid(higher=None), answers, "x") == (None, set())


def test_one_seed_tells_nothing() -> None:
    answers = {(row, "x"): Answer({0: value}) for row, value in (("a", 0.9), ("b", 0.1))}
    assert report.best_and_close(_grid(), answers, "x") == ("a", {"b"})
    assert math.isnan(answers["a", "x"].spread)


def test_a_row_that_lacks_a_seed_is_not_told_from_the_best() -> None:
    answers = {
        ("a", "x"): Answer({0: 0.9, 1: 0.91, 2: 0.9}),
        ("b", "x"): Answer({0: 0.1, 1: 0.11}),
        ("c", "x"): Answer({0: 0.2, 1: 0.2, 2: 0.21}),
    }
    assert report.best_and_close(_grid(), answers, "x") == ("a", {"b"})

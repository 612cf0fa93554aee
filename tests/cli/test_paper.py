"""``revar paper controlled`` as a user runs it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from revar.cli import run
from revar.commands.paper import run_controlled
from revar.data.synthetic import SCENARIOS
from revar.studies.controlled import ENTRANTS, SCALES, Scale, cells


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper") / "study"
    assert run(["paper", "controlled", "--scale", "smoke", "--out", str(folder)]) == 0
    return folder


def test_smoke_writes_the_table_and_the_figures(study: Path) -> None:
    with (study / "controlled.csv").open() as file:
        lines = list(csv.DictReader(file))
    found = {(line["scenario"], line["method"]) for line in lines}
    assert found == {(scenario, method) for scenario in SCENARIOS for method in ENTRANTS}
    first = next(line for line in lines if (line["scenario"], line["method"]) == ("1", "mwn"))
    assert first["paper_r2"] == "0.77"
    assert first["seeds"] == str(SCALES["smoke"].seeds)
    assert float(first["spearman_error"]) > 0
    constant = next(line for line in lines if line["scenario"] == "3")
    assert constant["spearman"] == ""
    assert float(constant["cv"]) > 0
    for name in ("controlled.png", "controlled.svg", "interpolation.png", "interpolation.csv"):
        assert (study / name).stat().st_size > 500
    assert json.loads((study / "provenance.json").read_text())["seeds"] == 2
    page = (study / "controlled.md").read_text().splitlines()
    assert page[0].startswith("| S | method | Spearman |")
    assert len(page) == 2 + len(lines)
    assert {row.count("|") for row in page} == {page[0].count("|")}
    assert any(row.startswith("| 1 | mwn |") and row.endswith("| 0.77 |") for row in page)


def test_a_second_call_trains_nothing(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (study / "cells.jsonl").read_bytes()
    monkeypatch.setattr("revar.studies.controlled.run_cells", None)
    command = ["paper", "controlled", "--scale", "smoke", "--out", str(study), "--json"]
    assert run(command) == 0
    assert (study / "cells.jsonl").read_bytes() == before
    said = json.loads(capsys.readouterr().out)
    assert len(said["table"]) == len(SCENARIOS) * len(ENTRANTS)


def test_a_line_that_was_cut_off_is_computed_again(study: Path, tmp_path: Path) -> None:
    def lines(folder: Path) -> list[str]:
        return sorted((folder / "cells.jsonl").read_text().splitlines())

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    assert any(None in json.loads(line, parse_constant=refuse).values() for line in lines(study))
    broken = tmp_path / "broken"
    shutil.copytree(study, broken)
    text = (study / "cells.jsonl").read_text()
    (broken / "cells.jsonl").write_text(text[:-20])
    assert run(["paper", "controlled", "--scale", "smoke", "--out", str(broken)]) == 0
    places = ("part", "method", "scenario", "shift", "seed")
    wanted, found = (
        [{k: json.loads(line)[k] for k in places} for line in lines(folder)]
        for folder in (study, broken)
    )
    assert found == wanted
    for name in ("controlled.csv", "interpolation.csv"):
        assert (broken / name).exists()


def test_other_settings_need_another_folder(
    study: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["paper", "controlled", "--scale", "small", "--out", str(study)]) == 2
    assert "other settings" in capsys.readouterr().err
    (tmp_path / "mine.txt").write_text("mine")
    assert run(["paper", "controlled", "--scale", "smoke", "--out", str(tmp_path)]) == 2
    assert "something else" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scale", "smal"], "small"),
        (["--scale", "smoke", "--seeds", "0"], "at least 1"),
        (["--scale", "smoke", "--classifier", "linaer"], "linear"),
    ],
)
def test_bad_wishes_are_one_line(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["paper", "controlled", *options, "--out", str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_small_asks_what_the_issue_asks() -> None:
    scale = SCALES["small"]
    asked = cells(scale)
    table = [cell for cell in asked if cell.part == "table"]
    assert len(table) == len(SCENARIOS) * len(ENTRANTS) * 10
    shifts = {c.shift for c in asked if c.part == "interpolation" and c.scenario == "4"}
    assert len(shifts) >= 6
    assert len({cell.key for cell in asked}) == len(asked)


def test_the_u_score_finds_noise_that_varies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 3b a short run of IBR, the cheapest form, ranks the noise, and better than MWN does."""
    short = Scale(seeds=3, n=6400, epochs=5, shifts=(0,), ablate=False)
    monkeypatch.setitem(SCALES, "short", short)
    monkeypatch.setattr("revar.studies.controlled.SCENARIOS", {"3b": SCENARIOS["3b"]})
    kept = {name: ENTRANTS[name] for name in ("mwn", "ibr")}
    monkeypatch.setattr("revar.studies.controlled.ENTRANTS", kept)
    from revar.studies import controlled

    rows = controlled.run_cells([c for c in cells(short) if c.name == "ibr"], short, "linear")
    loss_based = controlled.run_cells([c for c in cells(short) if c.name == "mwn"], short, "linear")
    for row, other in zip(rows, loss_based, strict=True):
        assert row["spearman"] > 0.5
        assert row["spearman"] > other["spearman"]


def test_an_unknown_scale_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="scale"):
        run_controlled("huge", tmp_path / "x")

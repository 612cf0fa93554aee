"""``revar report`` as a user types it."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from revar.cli import run

Capture = pytest.CaptureFixture[str]


def data_of(path: Path) -> dict[str, Any]:
    html = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def table(n: int, seed: int) -> str:
    """Ages and cities that say a little about the outcome."""
    generator = np.random.default_rng(seed)
    lines = ["age,city,site,outcome"]
    for i in range(n):
        age, city = generator.integers(20, 80), generator.choice(["Ulm", "Bonn"])
        outcome = "ill" if age + 12 * generator.normal() > 50 else "well"
        lines.append(f"{'' if i % 17 == 0 else age},{city},s{i % 3},{outcome}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on a table, tested on another."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "first.csv").write_text(table(200, 0))
    (folder / "later.csv").write_text(table(90, 1))
    train = ["train", "--data", str(folder / "first.csv"), "--target", "outcome"]
    assert run([*train, "--out", str(folder / "run"), "--epochs", "3"]) == 0
    assert run(["evaluate", str(folder / "run"), "--on", str(folder / "later.csv")]) == 0
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_without_its_test_data(rows: Path, here: Path, capsys: Capture) -> None:
    assert run(["report", str(rows / "run"), "--out", "page.html"]) == 0
    captured = capsys.readouterr()
    assert "page.html" in captured.out
    assert "page.csv" in captured.out
    assert "not at hand" in captured.err
    (found,) = data_of(Path("page.html"))["runs"]
    panel = found["sets"]["on-later"]
    assert panel["gallery"] == []
    assert "not at hand" in panel["note"]
    # The training data is where it was, so its points are shown.
    assert found["train_contents"]
    shown = next(iter(found["train_contents"].values()))
    assert [name for name, _ in shown["cells"]] == ["age", "city", "site"]
    assert dict(shown["cells"])["city"] in ("Ulm", "Bonn")


def test_rows_and_groups_of_the_data_that_is_given(rows: Path, here: Path, capsys: Capture) -> None:
    later = str(rows / "later.csv")
    arguments = ["report", str(rows / "run"), "--data", later, "--group", "site", "--json"]
    assert run(arguments) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["page"] == "report.html"
    assert said["bytes"] == Path("report.html").stat().st_size
    assert said["notes"] == []
    (found,) = data_of(Path("report.html"))["runs"]
    panel = found["sets"]["on-later"]
    assert panel["groups"] == ["s0", "s1", "s2"]
    assert panel["group_name"] == "site"
    with (rows / "later.csv").open() as file:
        lines = list(csv.DictReader(file))
    titles = [shelf["title"] for shelf in panel["gallery"]]
    assert titles[:2] == ["Most uncertain", "Most confident mistakes"]
    for shelf in panel["gallery"]:
        for one in shelf["examples"]:
            content = found["contents"]["on-later"][str(one["row"])]
            line = lines[one["row"]]
            assert dict(content["cells"])["city"] == line["city"]
            assert found["classes"][one["label"]] == line["outcome"]


def test_other_data_is_not_taken_for_the_test_set(rows: Path, here: Path, capsys: Capture) -> None:
    changed = (rows / "later.csv").read_text().replace("Ulm", "Bonn")
    Path("changed.csv").write_text(changed)
    assert run(["report", str(rows / "run"), "--data", "changed.csv"]) == 2
    assert "none of the examples" in capsys.readouterr().err
    assert not Path("report.html").exists()


def test_pictures_of_a_folder_of_images(here: Path) -> None:
    generator = np.random.default_rng(0)
    for part, n in (("train", 60), ("test", 24)):
        for i in range(n):
            folder = Path("data") / part / ("bright" if i % 2 else "dark")
            folder.mkdir(parents=True, exist_ok=True)
            pixels = generator.integers(0, 160, (104, 98, 3)) + 60 * (i % 2)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:03d}.png")
    train = ["train", "--data", "data", "--out", "run", "--epochs", "1", "--method", "erm"]
    assert run(train) == 0
    assert run(["report", "run", "--out", "deep/page.html", "--title", "Photos"]) == 0
    data = data_of(Path("deep/page.html"))
    assert data["title"] == "Photos"
    (found,) = data["runs"]
    pictures = list(found["contents"]["test"].values())
    assert pictures
    for picture in pictures:
        assert picture["picture"].startswith("iVBOR")
        assert re.fullmatch(r"test/(bright|dark)/\d+\.png", picture["name"])
    assert Path("deep/page.html").stat().st_size < 5_000_000
    shutil.rmtree("data")
    assert run(["report", "run", "--out", "deep/page.html"]) == 0
    (found,) = data_of(Path("deep/page.html"))["runs"]
    assert found["contents"]["test"] == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no run at"),
        (["{run}", "{run}"], "given twice"),
        (["{run}", "--out", "page.txt"], "no HTML file"),
        (["{run}", "--out", "mine.html"], "is no report"),
        (["{run}", "--out", "beside.html"], "is no report"),
        (["{run}", "--data", "nothing.csv"], 'no data at "nothing.csv"'),
        (["{run}", "--group", "site"], "is for a column of a .csv"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: list[str], words: str, rows: Path, here: Path, capsys: Capture
) -> None:
    Path("mine.html").write_text("<p>my page</p>")
    Path("beside.csv").write_text("my,figures\n1,2\n")
    given = [argument.format(run=rows / "run") for argument in arguments]
    assert run(["report", *given]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
    assert Path("mine.html").read_text() == "<p>my page</p>"


def test_a_run_without_a_test_set_says_how_to_get_one(here: Path, capsys: Capture) -> None:
    Path("first.csv").write_text(table(120, 0))
    train = ["train", "--data", "first.csv", "--target", "outcome", "--method", "erm"]
    assert run([*train, "--out", "run", "--epochs", "1"]) == 0
    assert run(["report", "run"]) == 2
    assert "revar evaluate run --on DATA" in capsys.readouterr().err


def test_the_demo_ends_with_the_report(here: Path, capsys: Capture) -> None:
    assert run(["demo", "--epochs", "1"]) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert "revar-demo/report.html" in last
    data = data_of(Path("revar-demo/report.html"))
    assert [one["method"] for one in data["runs"]] == ["erm", "trajectory"]
    assert list(data["runs"][0]["sets"]) == ["test", "shifted"]
    assert data["runs"][1]["contents"]["shifted"]

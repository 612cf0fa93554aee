"""Further files for a run on a table are read as the first one was."""

from __future__ import annotations

import csv
import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revar.cli import run
from revar.errors import DataWarning
from revar.run import RunFolder

Capture = pytest.CaptureFixture[str]
QUICK = ("--method", "erm", "--epochs", "2", "--set", "test_passes=0")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(
    path: str, labels: tuple[str, ...], *, n: int = 120, seed: int = 0, **columns: tuple[str, ...]
) -> None:
    """A table whose numbers tell the label; further columns take turns."""
    generator = np.random.default_rng(seed)
    lines = [",".join(["x", *columns, "y"])]
    for i in range(n):
        k = int(generator.integers(len(labels)))
        cells = [values[i % len(values)] for values in columns.values()]
        lines.append(",".join([f"{k + 0.2 * generator.normal():.4f}", *cells, labels[k]]))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def train(*more: str, data: str = "t.csv", code: int = 0) -> None:
    assert run(["train", "--data", data, "--target", "y", "--out", "run", *QUICK, *more]) == code


def figures(capsys: Capture, on: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["evaluate", "run", "--on", on, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_labels_in_digits_stay_text_where_the_classes_are(capsys: Capture) -> None:
    write("t.csv", ("01", "02", "03A"))
    write("later.csv", ("01", "02"), seed=1)
    train()
    assert figures(capsys, "later.csv")["n"] == 120
    write("calibration.csv", ("01", "02"), seed=2)
    assert run(["select", "run", "--on", "calibration.csv", "--coverage", "0.9"]) == 0
    assert run(["report", "run", "--data", "later.csv", "--out", "page.html"]) == 0
    write("meta.csv", ("01", "02"), seed=3)
    train("--meta", "meta.csv", "--out", "other")


def test_labels_come_back_as_they_stood(capsys: Capture) -> None:
    write("t.csv", ("007", "012", "100"))
    train()
    capsys.readouterr()
    assert run(["predict", "run", "t.csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["label"] for row in rows} <= {"007", "012", "100"}
    assert "probability_007" in rows[0]


def test_truth_has_many_spellings(capsys: Capture) -> None:
    write("t.csv", ("False", "True"))
    train()
    for k, words in enumerate([("FALSE", "TRUE"), ("false", "true"), ("0", "1")]):
        write("later.csv", words, seed=1)
        assert figures(capsys, "later.csv")["accuracy"] > 0.8, k


def test_blanks_make_no_classes_and_no_categories(capsys: Capture) -> None:
    write("t.csv", ("ok", "ok ", "bad"), kind=("u", "u  ", "v"))
    write("later.csv", ("bad  ", "ok"), kind=("u ",))
    train()
    described = RunFolder(Path("run")).store.read_json("model.json")
    assert described["classes"] == ["bad", "ok"]
    assert described["inputs"]["columns"][1]["categories"] == ["u", "v"]
    assert figures(capsys, "later.csv")["n"] == 120


def test_a_meta_set_has_the_categories_of_the_training_set() -> None:
    """Its codes look like numbers, once the others are not there."""
    write("t.csv", ("a", "b"), code=("007", "012", "A12"))
    write("text.csv", ("a", "b"), seed=1, code=("007", "012"))
    write("unseen.csv", ("a", "b"), seed=1, code=("7", "12"))
    more = ("--set", "meta_fraction=0.1")
    prints = []
    for number, meta in enumerate(("text.csv", "unseen.csv")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            train("--meta", meta, "--out", f"run{number}", *more)
        recipe = RunFolder(Path(f"run{number}")).recipe()
        prints.append(recipe["data"]["fingerprints"]["meta"])
    assert prints[0] != prints[1]


def test_a_report_reads_data_as_the_run_does(capsys: Capture) -> None:
    write("t.csv", ("a", "b"), code=("007", "012", "A12"))
    write("later.csv", ("a", "b"), seed=1, code=("007", "012"))
    train()
    assert figures(capsys, "later.csv")["n"] == 120
    assert run(["report", "run", "--data", "later.csv", "--group", "code"]) == 0
    assert "no examples" not in capsys.readouterr().err
    assert '"007"' in Path("report.html").read_text(encoding="utf-8")


def test_sets_of_one_name_stay_beside_each_other(capsys: Capture) -> None:
    write("t.csv", ("a", "b"))
    write("A/later.csv", ("a", "b"), seed=1)
    write("B/later.csv", ("a", "b"), seed=2, n=90)
    train()
    folder = RunFolder(Path("run"))
    for _ in range(2):
        assert figures(capsys, "A/later.csv")["n"] == 120
        assert run(["evaluate", "run", "--on", "B/later.csv"]) == 0
        said = capsys.readouterr().err
        assert said == 'the set "later" of the run is other data and stays: this one is "B-later"\n'
        names = [name for name in folder.prediction_names() if name.startswith("on-")]
        assert names == ["on-B-later", "on-later"]
    assert len(folder.predictions("on-later")) == 120
    # The same place, and other data once more.
    write("B/later.csv", ("a", "b"), seed=3, n=80)
    assert figures(capsys, "B/later.csv")["n"] == 80
    assert "on-later-2" in folder.prediction_names()
    assert len(folder.predictions("on-B-later")) == 90
    write("B/later.csv", ("a", "b"), seed=2, n=90)
    assert run(["report", "run", "--data", "A/later.csv", "--data", "B/later.csv"]) == 0
    noted = [line for line in capsys.readouterr().err.splitlines() if "not at hand" in line]
    assert ["later-2" in line for line in noted] == [True]


def test_a_group_that_no_data_has_is_refused(capsys: Capture) -> None:
    write("t.csv", ("a", "b"), dept=("p", "q"))
    write("later.csv", ("a", "b"), dept=("p", "q"), seed=1)
    write("third.csv", ("a", "b"), seed=1)
    train()
    figures(capsys, "later.csv")
    given = ["report", "run", "--data", "later.csv"]
    assert run([*given, "--group", "Dept"]) == 2
    assert 'did you mean "dept"?' in capsys.readouterr().err
    assert run([*given, "--group", "site"]) == 2
    assert '--group "site" is no column of "later.csv": columns: x, dept' in capsys.readouterr().err
    assert run(["report", "run", "--group", "dept"]) == 2
    assert "give one with --data" in capsys.readouterr().err
    assert run([*given, "--group", "dept"]) == 0


def test_columns_are_left_out(capsys: Capture) -> None:
    write("t.csv", ("a", "b"), visit=tuple(f"v{i}" for i in range(120)), kind=("u", "v"))
    train("--out", "first")
    said = capsys.readouterr().err
    assert 'warning: columns of text that look like names or dates: "visit" (120 levels)' in said
    assert '--leave-out "visit"' in said
    train("--leave-out", "visit")
    assert "warning" not in capsys.readouterr().err
    columns = RunFolder(Path("run")).store.read_json("model.json")["inputs"]["columns"]
    assert [column["name"] for column in columns] == ["x", "kind"]
    write("later.csv", ("a", "b"), seed=1, kind=("u",), visit=("v1",))
    assert figures(capsys, "later.csv")["n"] == 120
    write("later.csv", ("a", "b"), seed=1, kind=("u",))
    assert figures(capsys, "later.csv")["n"] == 120
    train("--leave-out", "visits", "--out", "third", code=2)
    assert '--leave-out "visits" is no column of "t.csv": did you mean "visit"?' in (
        capsys.readouterr().err
    )


def test_a_run_goes_on_with_the_columns_it_was_begun_with(capsys: Capture) -> None:
    write("t.csv", ("a", "b"), id=("p", "q", "r", "s"), kind=("u", "v"))
    train("--group", "id", "--leave-out", "kind")
    train("--leave-out", "kind", "--resume", code=2)
    assert '"run" was begun with --group "id": give that again' in capsys.readouterr().err
    train("--group", "id", "--resume", code=2)
    assert '"run" was begun with --leave-out "kind"' in capsys.readouterr().err
    train("--group", "id", "--leave-out", "kind", "--resume")
    train("--group", "y", "--out", "other", code=2)
    assert '--target and --group are both "y": give two columns' in capsys.readouterr().err


def test_a_run_of_an_older_version_goes_on_reading_as_it_did(capsys: Capture) -> None:
    """Labels were numbers wherever they could be, and blanks after a text were part of it."""
    write("t.csv", ("7", "12"), kind=("u", "v"))
    train()
    folder = RunFolder(Path("run"))
    recipe = folder.recipe()
    for key in ("cells", "leave_out"):
        del recipe["data"][key]
    folder.store.write_json("recipe.json", recipe)
    write("t.csv", ("007", "012"), kind=("u", "v"))
    train("--resume")
    write("later.csv", ("007", "012"), seed=1, kind=("u", "v"))
    assert figures(capsys, "later.csv")["accuracy"] > 0.8
    write("t.csv", ("007", "012"), kind=("u", "v", "u ", "v"))
    train("--resume", code=2)
    assert '"run" holds another run' in capsys.readouterr().err


def test_classes_are_weighed_on_request() -> None:
    write("t.csv", ("a", "b"))
    train("--set", "class_weight=balanced")
    assert RunFolder(Path("run")).recipe()["class_weight"] == "balanced"
    train("--set", "class_weight=1,2", "--out", "other")
    assert RunFolder(Path("other")).recipe()["class_weight"] == [1.0, 2.0]

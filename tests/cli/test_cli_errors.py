"""Bad input: one line that names the culprit, exit code 2, no traceback, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from revar.cli import run

Make = Callable[[], None]


def archive(name: str = "d.npz", **arrays: object) -> Make:
    def make() -> None:
        generator = np.random.default_rng(0)
        good = {"x": generator.normal(size=(60, 3)), "y": np.arange(60) % 2}
        np.savez(name, **{**good, **arrays})  # type: ignore[arg-type]

    return make


def text(name: str, content: str) -> Make:
    def make() -> None:
        Path(name).write_text(content)

    return make


def used_folder() -> None:
    Path("o").mkdir()
    Path("o/x").touch()


def nothing() -> None:
    """No files are needed."""


NAN = np.where(np.arange(180).reshape(60, 3) == 7, np.nan, 1.0)
CASES: dict[str, tuple[Make, list[str], str]] = {
    "unknown command": (nothing, ["tran"], "No such command 'tran'"),
    "unknown option": (nothing, ["train", "--dta", "digits"], "--dta"),
    "no data": (nothing, ["train"], "Missing option '--data'"),
    "unknown dataset": (nothing, ["train", "--data", "digts"], 'did you mean "digits"'),
    "missing file": (nothing, ["train", "--data", "gone.npz"], 'no data at "gone.npz"'),
    "unknown method": (
        nothing,
        ["train", "--data", "digits", "--method", "revr"],
        'did you mean "revar"',
    ),
    "unknown backbone": (
        nothing,
        ["train", "--data", "digits", "--backbone", "convnt"],
        'did you mean "convnet"',
    ),
    "unknown field": (
        nothing,
        ["train", "--data", "digits", "--set", "intervall=3"],
        'did you mean "interval"',
    ),
    "field of the wrong type": (
        nothing,
        ["train", "--data", "digits", "--set", "interval=often"],
        "a whole number",
    ),
    "field without a value": (
        nothing,
        ["train", "--data", "digits", "--set", "interval"],
        "field=value",
    ),
    "epochs of the wrong type": (
        nothing,
        ["train", "--data", "digits", "--epochs", "x"],
        "--epochs",
    ),
    "no epochs": (nothing, ["train", "--data", "digits", "--epochs", "0"], "epochs is 0"),
    "negative seed": (nothing, ["train", "--data", "digits", "--seed", "-1"], "seed is -1"),
    "unknown device": (nothing, ["train", "--data", "digits", "--device", "tpu"], '"tpu"'),
    "csv without a target": (
        text("t.csv", "a,b\n1,2\n"),
        ["train", "--data", "t.csv"],
        "columns: a, b",
    ),
    "unknown target": (
        text("t.csv", "a,b\n1,2\n"),
        ["train", "--data", "t.csv", "--target", "c"],
        '"c" is no column',
    ),
    "empty csv": (text("t.csv", ""), ["train", "--data", "t.csv", "--target", "a"], '"t.csv"'),
    "ragged csv": (
        text("t.csv", "a,b\n1,2\n1,2,3\n"),
        ["train", "--data", "t.csv", "--target", "a"],
        "line 3",
    ),
    "nan in an array": (
        archive(x=NAN),
        ["train", "--data", "d.npz"],
        "NaN in 1 rows, first in row 2",
    ),
    "infinity in an array": (
        archive(x=np.where(np.isnan(NAN), np.inf, NAN)),
        ["train", "--data", "d.npz"],
        "infinity",
    ),
    "y of another length": (
        archive(y=np.zeros(59)),
        ["train", "--data", "d.npz"],
        "60 rows, y has 59",
    ),
    "one class": (archive(y=np.zeros(60, int)), ["train", "--data", "d.npz"], "two classes"),
    "object arrays": (
        archive(y=np.array([None] * 60)),
        ["train", "--data", "d.npz"],
        "Python objects",
    ),
    "not an npz": (text("d.npz", "hello"), ["train", "--data", "d.npz"], '"d.npz" is no .npz'),
    "no y": (
        lambda: np.savez("d.npz", x=np.zeros((3, 2))),
        ["train", "--data", "d.npz"],
        'no array "y"',
    ),
    "empty folder": (lambda: Path("f").mkdir(), ["train", "--data", "f"], "class folders"),
    "unknown kind of file": (
        text("d.txt", "x"),
        ["train", "--data", "d.txt"],
        '"d.txt" is none of',
    ),
    "phase that never starts": (
        archive(),
        [
            "train",
            "--data",
            "d.npz",
            "--epochs",
            "1",
            "--set",
            "interval=999",
            "--set",
            "warmup=0.5",
        ],
        "never be updated",
    ),
    "unlabelled that nobody uses": (
        archive(),
        ["train", "--data", "d.npz", "--unlabelled", "d.npz"],
        "unlabelled=pooled",
    ),
    "no run": (nothing, ["evaluate", "gone"], 'no run at "gone"'),
    "a folder that is no run": (lambda: Path("f").mkdir(), ["evaluate", "f"], "no recipe.json"),
    "predict without a run": (archive(), ["predict", "gone", "d.npz"], 'no run at "gone"'),
    "unknown list": (nothing, ["list", "method"], 'did you mean "methods"'),
    "out is a file": (text("f", "x"), ["train", "--data", "digits", "--out", "f"], '"f" is a file'),
    "out is not empty": (
        used_folder,
        ["train", "--data", "digits", "--out", "o"],
        "not empty",
    ),
}


@pytest.mark.parametrize(("make", "arguments", "words"), CASES.values(), ids=CASES.keys())
def test_one_line_exit_code_2_nothing_left(
    make: Make,
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    make()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1, captured.err
    assert words in captured.err
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    assert not (tmp_path / "runs").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    archive(str(folder / "d.npz"))()
    out = folder / "run"
    base = ["train", "--data", str(folder / "d.npz"), "--out", str(out), "--method", "erm"]
    assert run([*base, "--epochs", "1"]) == 0
    return out


@pytest.mark.parametrize(
    ("make", "arguments", "words"),
    [
        (nothing, ["evaluate", "RUN"], "without a test split: give one with --on"),
        (archive(y=np.full(60, 7)), ["evaluate", "RUN", "--on", "d.npz"], "label 7 was not among"),
        (archive(x=np.ones((60, 4))), ["predict", "RUN", "d.npz"], "shape (4,)"),
        (archive(), ["predict", "RUN", "gone.npz"], 'no data at "gone.npz"'),
        (archive(), ["predict", "RUN", "d.npz", "--coverage", "1.5"], "coverage is 1.5"),
        (text("p.csv", "a\n1\n"), ["predict", "RUN", "p.csv", "--out", "p.csv"], '"p.csv"'),
        (nothing, ["train", "--data", "digits", "--out", "RUN"], "holds a run already"),
        (nothing, ["train", "--data", "digits", "--out", "RUN", "--resume"], "another run"),
        (archive(), ["evaluate", "RUN", "--on", "d.npz"], "of these rows are in the train split"),
    ],
)
def test_bad_input_for_a_run(
    make: Make,
    arguments: list[str],
    words: str,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    make()
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    assert run([str(trained) if word == "RUN" else word for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1, captured.err
    assert words in captured.err
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before

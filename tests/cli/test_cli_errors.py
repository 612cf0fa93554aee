"""Bad input: one line that names the culprit, exit code 2, no traceback, nothing left behind."""

from __future__ import annotations

import errno
import os
import signal
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from revar.cli import run
from revar.commands.predict import PredictionTable
from revar.errors import InputError

Make = Callable[[], None]
GOOD: dict[str, Any] = {
    "x": np.random.default_rng(0).normal(size=(60, 3)),
    "y": np.arange(60) % 2,
}
HOLE = np.arange(180).reshape(60, 3) == 7
TABLE = "a,b,kind\n" + "".join(f"{i},{i % 7}.5,{'xy'[i % 2]}\n" for i in range(60))


def nothing() -> None:
    """No files are needed."""


def archive(**arrays: Any) -> Make:
    """A good archive d.npz with some arrays replaced, left out (None) or added."""

    def make() -> None:
        chosen = {k: v for k, v in {**GOOD, **arrays}.items() if v is not None}
        np.savez("d.npz", **chosen)

    return make


def text(name: str, content: str | bytes) -> Make:
    def make() -> None:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return make


def folder(*, classes: int = 2, bad: bytes | None = None, size: int = 8) -> Make:
    """Class folders f/c0, f/c1, ... of ten images each, with a bad one among them if given."""

    def make() -> None:
        for k in range(classes):
            Path(f"f/c{k}").mkdir(parents=True)
            for i in range(10):
                Image.new("RGB", (size, size), (20 * i, 80 * k, 0)).save(f"f/c{k}/{i}.png")
        if bad is not None:
            Path("f/c0/bad.jpg").write_bytes(bad)

    return make


def odd_name() -> None:
    folder()()
    Path("f/c0/0.png").rename("f/c0/caf\udce9.png")


def odd_class() -> None:
    folder()()
    Path("f/c0").rename("f/caf\udce9")


def used_folder() -> None:
    Path("o").mkdir()
    Path("o/x").touch()


def cut_archive() -> None:
    archive()()
    Path("d.npz").write_bytes(Path("d.npz").read_bytes()[:900])


def cut_jpeg() -> bytes:
    buffer = BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()[:700]


def huge_png() -> bytes:
    """A picture that claims to be 60,000 pixels wide and high."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header
    chunk += struct.pack(">I", zlib.crc32(b"IHDR" + header))
    data = zlib.compress(b"")
    body = (
        struct.pack(">I", len(data))
        + b"IDAT"
        + data
        + struct.pack(">I", zlib.crc32(b"IDAT" + data))
    )
    return b"\x89PNG\r\n\x1a\n" + chunk + body


def path_table(rows: str) -> Make:
    def make() -> None:
        Image.new("RGB", (8, 8)).save("one.png")
        Path("p.csv").write_text("file,kind\n" + rows)

    return make


TRAIN = ["train", "--data"]
NPZ = [*TRAIN, "d.npz"]
CSV = [*TRAIN, "t.csv", "--target", "kind"]
DIGITS = [*TRAIN, "digits"]
REVAR = [*DIGITS, "--method", "revar"]
PATHS = [*TRAIN, "p.csv", "--target", "kind", "--image"]
ON = ["evaluate", "TABLE_RUN", "--on", "d.npz"]
PREDICT = ["predict", "TABLE_RUN", "d.npz"]

CASES: dict[str, tuple[Make, list[str], str]] = {
    # What is typed.
    "unknown command": (nothing, ["tran"], "No such command 'tran'"),
    "unknown option": (nothing, ["train", "--dta", "digits"], "--dta"),
    "an empty word": (archive(), [*TRAIN, ""], "nothing is given after --data"),
    "an empty input": (archive(), [*PREDICT[:2], ""], "nothing is given after"),
    "a name of other bytes": (
        archive(), [*PREDICT, "--out", "caf\udce9.csv"], r'"caf\xe9.csv" is not UTF-8',
    ),
    "an image of such a name": (
        odd_name, ["predict", "IMAGE_RUN", "f"], r'the name of "f/c0/caf\xe9.png" is not UTF-8',
    ),
    "a class of such a name": (odd_class, [*TRAIN, "f"], r'"f/caf\xe9/0.png" is not UTF-8'),
    "more processes than a host can hold": (
        archive(), [*NPZ, "--processes", "5000"], "--processes is 5000, this host with",
    ),
    "an empty place": (archive(), ["demo", "--out="], "nothing is given in --out="),
    "an empty score": (archive(), [*PREDICT, "--score", ""], "nothing is given after --score"),
    "unknown score": (archive(), [*PREDICT, "--score", "sofmax"], 'did you mean "softmax"'),
    "a report of a folder's name": (nothing, ["report", "TABLE_RUN", "--out", "."], ".html"),
    "tables in a file": (
        text("f", "x"), ["paper", "main", "--scale", "smoke", "--out", "f"], '"f" is a file',
    ),
    "text that is called an archive": (text("d.npz", "hello"), NPZ, "another kind of file"),
    "no data": (nothing, ["train"], "Missing option '--data'"),
    "unknown dataset": (nothing, [*TRAIN, "digts"], 'did you mean "digits"'),
    "unknown part": (nothing, [*TRAIN, "digits:tset"], 'did you mean "test"'),
    "unknown method": (nothing, [*DIGITS, "--method", "revr"], 'did you mean "revar"'),
    "unknown backbone": (nothing, [*DIGITS, "--backbone", "convnt"], 'did you mean "convnet"'),
    "unknown field": (nothing, [*REVAR, "--set", "intervall=3"], 'did you mean "interval"'),
    "whole number": (nothing, [*REVAR, "--set", "interval=often"], "a whole number"),
    "number": (nothing, [*REVAR, "--set", "warmup=long"], "a number"),
    "choice": (nothing, [*REVAR, "--set", "update=cubic"], "one of linear, proximal"),
    "yes or no": (nothing, [*DIGITS, "--set", "deterministic=maybe"], "true or false"),
    "none where one is needed": (nothing, [*REVAR, "--set", "interval=none"], 'interval="none"'),
    "out of range": (nothing, [*DIGITS, "--set", "dropout_rate=1.5"], "rate is 1.5"),
    "field without a value": (nothing, [*DIGITS, "--set", "interval"], "field=value"),
    "epochs of the wrong type": (nothing, [*DIGITS, "--epochs", "x"], "--epochs"),
    "no epochs": (nothing, [*DIGITS, "--epochs", "0"], "epochs is 0"),
    "negative seed": (nothing, [*DIGITS, "--seed", "-1"], "seed is -1"),
    "unknown device": (nothing, [*DIGITS, "--device", "tpu"], '"tpu"'),
    "unknown list": (nothing, ["list", "method"], 'did you mean "methods"'),
    "no such timm model": (nothing, ["list", "backbones", "--timm", "zzz*"], '"zzz*"'),
    "timm's names of another list": (
        nothing, ["list", "methods", "--timm", "x*"], "goes with backbones only",
    ),
    "a column of an archive": (archive(), [*NPZ, "--target", "y"], '--target "y" is for a column'),
    "groups of a dataset": (nothing, [*DIGITS, "--group", "g"], '--group "g" is for a column'),
    "images of a folder": (folder(), [*TRAIN, "f", "--image", "p"], '--image "p" is for a column'),
    "a column to evaluate on": (archive(), [*ON, "--target", "kind"], '"d.npz" is none'),
    "a column of nothing": (nothing, [*ON[:2], "--target", "kind"], "give one with --on"),
    "a demo of nothing": (nothing, ["demo", "--epochs", "0"], "epochs is 0"),
    # Where to write.
    "out is a file": (text("f", "x"), [*DIGITS, "--out", "f"], '"f" is a file'),
    "out is below a file": (text("f", "x"), [*DIGITS, "--out", "f/run"], "f/run"),
    "a run in a file cannot go on": (
        text("f", "x"), [*DIGITS, "--out", "f", "--resume"], '"f" is a file',
    ),
    "a demo in a file": (text("f", "x"), ["demo", "--out", "f"], '"f" is a file'),
    "decisions in no folder": (
        archive(), [*PREDICT, "--out", "gone/d.csv"], 'no folder "gone" to write "d.csv" in',
    ),
    "out is not empty": (used_folder, [*DIGITS, "--out", "o"], "not empty"),
    "out cannot be written": (nothing, [*DIGITS, "--out", "/proc/no/run"], "/proc/no"),
    "out holds a run": (nothing, [*DIGITS, "--out", "TABLE_RUN"], "holds a run already"),
    "out holds another run": (
        nothing, [*DIGITS, "--out", "TABLE_RUN", "--resume"], "holds another run",
    ),
    # Files.
    "missing file": (nothing, [*TRAIN, "gone.npz"], 'no data at "gone.npz"'),
    "unknown kind of file": (text("d.txt", "x"), [*TRAIN, "d.txt"], '"d.txt" is none of'),
    "not an npz": (text("d.npz", "hello"), NPZ, '"d.npz" is no .npz'),
    "a cut npz": (cut_archive, NPZ, '"d.npz"'),
    "objects in an npz": (archive(y=np.array([None] * 60)), NPZ, "Python objects"),
    "no x": (archive(x=None), NPZ, 'no array "x"'),
    "no y": (archive(y=None), NPZ, 'no array "y"'),
    "misspelt array": (archive(x_tets=GOOD["x"]), NPZ, 'did you mean "x_test"'),
    "labels of nothing": (archive(y_test=GOOD["y"]), NPZ, 'no "x_test"'),
    "meta without labels": (archive(x_meta=GOOD["x"]), NPZ, 'no "y_meta"'),
    "groups of another length": (archive(groups=np.arange(9)), NPZ, "groups has 9"),
    "y of another length": (archive(y=np.zeros(59)), NPZ, "60 rows, y has 59"),
    # Values.
    "NaN": (archive(x=np.where(HOLE, np.nan, 1.0)), NPZ, "NaN in 1 rows, first in row 2"),
    "infinity": (archive(x=np.where(HOLE, np.inf, 1.0)), NPZ, "infinity in 1 rows"),
    "too large for float32": (archive(x=np.where(HOLE, 1e300, 1.0)), NPZ, "float32"),
    "complex numbers": (archive(x=GOOD["x"] * 1j), NPZ, "Complex data not supported"),
    "text in an array": (archive(x=np.full((60, 2), "a")), NPZ, "pandas frame"),
    "a flat x": (archive(x=np.zeros(60)), NPZ, "shape (60,)"),
    "x of five axes": (archive(x=np.zeros((60, 2, 2, 2, 2))), NPZ, "shape (60, 2, 2, 2, 2)"),
    "no columns": (archive(x=np.zeros((60, 0))), NPZ, "0 feature(s)"),
    "one class": (archive(y=np.zeros(60, int)), NPZ, "two classes"),
    "continuous y": (archive(y=np.linspace(0, 1, 60)), NPZ, "continuous"),
    "missing labels": (archive(y=np.where(HOLE[:, 1], np.nan, 1.0)), NPZ, "missing labels"),
    "y with two columns": (archive(y=np.zeros((60, 2))), NPZ, "shape (60, 2)"),
    "hardly a label twice": (archive(y=np.arange(60)), NPZ, "60 distinct labels in 60"),
    "too few examples": (
        archive(x=GOOD["x"][:2], y=GOOD["y"][:2]), [*NPZ, "--method", "revar"], "too few",
    ),
    "no meta set for a method that learns from it": (
        archive(), [*NPZ, "--method", "mwn", "--set", "meta_fraction=0"], "meta",
    ),
    "test is train": (
        archive(x_test=GOOD["x"], y_test=GOOD["y"]), NPZ, "are in the train split",
    ),
    "a phase that never starts": (
        nothing, [*REVAR, "--epochs", "1", "--set", "interval=999", "--set", "warmup=0.5"],
        "never be updated",
    ),
    "averages that never begin": (
        archive(), [*NPZ, "--epochs", "2", "--set", "start_epochs=2"], "nothing would be averaged",
    ),
    "unlabelled data nobody uses": (
        archive(), [*NPZ, "--unlabelled", "d.npz"], "unlabelled=pooled",
    ),
    "no unlabelled data": (
        archive(), [*NPZ, "--method", "revar", "--set", "unlabelled=pooled"],
        "needs unlabelled inputs",
    ),
    # Tables.
    "csv without a target": (text("t.csv", TABLE), [*TRAIN, "t.csv"], "columns: a, b, kind"),
    "unknown target": (text("t.csv", TABLE), [*TRAIN, "t.csv", "--target", "c"], '"c" is no col'),
    "unknown group": (text("t.csv", TABLE), [*CSV, "--group", "g"], '--group "g" is no column'),
    "empty csv": (text("t.csv", ""), CSV, '"t.csv"'),
    "only a header": (text("t.csv", "a,kind\n"), CSV, "no rows"),
    "ragged csv": (text("t.csv", TABLE + "1,2,x,9\n"), CSV, "line 62"),
    "rows wider than the header": (text("t.csv", "a,kind\n1,2,x\n3,4,y\n"), CSV, "header"),
    "an open quote": (text("t.csv", TABLE + '1,"2,x\n'), CSV, "EOF inside string"),
    "another encoding": (text("t.csv", (TABLE + "1,2,ü\n").encode("latin-1")), CSV, "not UTF-8"),
    "two columns of one name": (text("t.csv", " a,a,kind\n1,2,x\n"), CSV, '"a"'),
    "a missing label": (text("t.csv", TABLE + "1,2,\n"), CSV, "line 62"),
    "infinity in a table": (text("t.csv", TABLE + "inf,2,x\n"), CSV, '"a" is "inf" in line 62'),
    "a name as target": (text("t.csv", TABLE), [*TRAIN, "t.csv", "--target", "a"], "distinct"),
    "nothing but the target": (text("t.csv", "kind\n" + "x\ny\n" * 20), CSV, "no columns"),
    # Images.
    "empty folder": (lambda: Path("f").mkdir(), [*TRAIN, "f"], "class folders"),
    "one class folder": (folder(classes=1), [*TRAIN, "f"], "two classes"),
    "an empty image": (folder(bad=b""), [*TRAIN, "f"], "f/c0/bad.jpg"),
    "a text as image": (folder(bad=b"hello"), [*TRAIN, "f"], "f/c0/bad.jpg"),
    "a cut image": (folder(bad=cut_jpeg()), [*TRAIN, "f"], "f/c0/bad.jpg"),
    "a bomb": (folder(bad=huge_png()), [*TRAIN, "f"], "too many pixels"),
    "unknown image column": (path_table("one.png,x\n"), [*PATHS, "fiel"], '"fiel" is no column'),
    "an image that is gone": (
        path_table("one.png,x\ngone.png,y\n"), [*PATHS, "file"], '"gone.png" of line 3 is not',
    ),
    "no image path": (path_table("one.png,x\n,y\n"), [*PATHS, "file"], "line 3"),
    # Runs.
    "no run": (nothing, ["evaluate", "gone"], 'no run at "gone"'),
    "no run to predict with": (archive(), ["predict", "gone", "d.npz"], 'no run at "gone"'),
    "a folder that is no run": (lambda: Path("f").mkdir(), ["evaluate", "f"], "no recipe.json"),
    "no test split": (nothing, ["evaluate", "TABLE_RUN"], "give one with --on"),
    "nothing to evaluate on": (nothing, ["evaluate", "TABLE_RUN", "--on", "gone.npz"], "gone.npz"),
    "evaluated without labels": (archive(y=None), ON, 'no array "y"'),
    "a label never seen": (archive(y=np.full(60, 7)), ON, "label 7 was not among"),
    "evaluated on training data": (archive(), ON, "are in the train split"),
    "another number of columns": (archive(x=np.ones((60, 4))), PREDICT, "X has 4 features"),
    "images for a table": (archive(x=np.ones((60, 8, 8))), PREDICT, "(1, 8, 8)"),
    "a picture for a table": (folder(), ["predict", "TABLE_RUN", "f"], "is no table"),
    "no x to predict on": (archive(x=None), PREDICT, 'no array "x"'),
    "nothing to predict on": (nothing, PREDICT, 'no data at "d.npz"'),
    "no rows to predict on": (archive(x=GOOD["x"][:0], y=None), PREDICT, "no rows"),
    "a coverage of nothing": (archive(), [*PREDICT, "--coverage", "0"], "coverage is 0"),
    "a coverage above one": (archive(), [*PREDICT, "--coverage", "1.5"], "coverage is 1.5"),
    "an output that is there": (
        text("p.csv", "a\n"), ["predict", "TABLE_RUN", "p.csv", "--out", "p.csv"], '"p.csv" exists',
    ),
    "a column is missing": (
        text("t.csv", "a\n1\n"), ["predict", "FRAME_RUN", "t.csv"], 'column "b" is missing',
    ),
    "text where numbers were": (
        text("t.csv", "a,b\n1,much\n"), ["predict", "FRAME_RUN", "t.csv"], '"b" is "much" in line',
    ),
    "an array for a table": (archive(), ["predict", "FRAME_RUN", "d.npz"], "named columns"),
    "a table for images": (
        text("t.csv", TABLE), ["predict", "IMAGE_RUN", "t.csv"], "text columns",
    ),
    "images of another shape": (
        archive(x=np.zeros((3, 9, 9, 3), np.uint8)), ["predict", "IMAGE_RUN", "d.npz"], "(3, 9, 9)",
    ),
    "images of another range": (
        archive(x=np.full((3, 8, 8, 3), 0.5)), ["predict", "IMAGE_RUN", "d.npz"], "from 0 to 255",
    ),
    "a folder without images": (
        lambda: Path("f").mkdir(), ["predict", "IMAGE_RUN", "f"], "no image files",
    ),
    "a bad image to predict on": (
        folder(bad=b"x"), ["predict", "IMAGE_RUN", "f"], 'error: "f/c0/bad.jpg" cannot be read',
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A run on arrays, one on a table with names, one on image files."""
    home = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        archive()()
        text("t.csv", TABLE)()
        folder()()
        quick = ["--method", "erm", "--epochs", "1", "--out"]
        assert run([*NPZ, *quick, "TABLE_RUN"]) == 0
        assert run([*CSV, *quick, "FRAME_RUN"]) == 0
        assert run([*TRAIN, "f", *quick, "IMAGE_RUN"]) == 0
    return {name: str(home / name) for name in ("TABLE_RUN", "FRAME_RUN", "IMAGE_RUN")}


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize(("make", "arguments", "words"), CASES.values(), ids=CASES.keys())
def test_one_line_exit_code_2_nothing_left(
    make: Make,
    arguments: list[str],
    words: str,
    runs: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def everything() -> dict[Path, bytes]:
        homes = [tmp_path, *map(Path, runs.values())]
        return {p: p.read_bytes() for home in homes for p in home.rglob("*") if p.is_file()}

    monkeypatch.chdir(tmp_path)
    make()
    before = everything()
    assert run([runs.get(word, word) for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1, captured.err
    assert words in captured.err
    assert everything() == before
    assert not (tmp_path / "runs").exists()


def test_unreadable_images_are_skipped_and_counted_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder(bad=cut_jpeg())()
    Path("f/c1/empty.png").touch()
    assert run([*TRAIN, "f", "--method", "erm", "--epochs", "1", "--skip-unreadable"]) == 0
    assert "warning: 2 unreadable images were skipped" in capsys.readouterr().err
    assert run(["predict", "runs/f-erm-seed0", "f", "--skip-unreadable"]) == 0
    captured = capsys.readouterr()
    assert "warning: 2 unreadable images were skipped" in captured.err
    assert len(captured.out.splitlines()) == 21


def test_a_full_gpu_is_one_line_with_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nSee somewhere.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("revar.training.take_step", full)
    archive()()
    assert run(["train", "--data", "d.npz", "--out", "run"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "the GPU has no memory left, use less by --set batch_size=N, --set recompute" in error
    assert "Tried to allocate 9 GiB." in error
    assert "somewhere" not in error

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("another one")

    monkeypatch.setattr("revar.training.take_step", broken)
    with pytest.raises(RuntimeError, match="another one"):
        run(["train", "--data", "d.npz", "--out", "other"])


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_signal_before_the_first_step_is_one_line(
    number: signal.Signals,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    archive()()

    def load(*_: object) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr("revar.commands.train.load_source", load)
    assert run([*NPZ, "--out", "o"]) == code
    said = "stopped before its first step, nothing was lost: to go on use --resume\n"
    assert capsys.readouterr().err == said
    assert not Path("o").exists()


def test_ctrl_c_elsewhere_is_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("revar.cli.using.check_run", stop)
    assert run(["evaluate", "o"]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_a_table_that_cannot_be_written_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [["a", "b"], ["c", "\udce9"]]
    table = PredictionTable(["x", "y"], rows, "", 0)
    with pytest.raises(UnicodeEncodeError):
        table.save(tmp_path / "d.csv")
    assert list(tmp_path.iterdir()) == []
    rows.pop()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r'cannot write ".*d\.csv": No space'):
            table.save(tmp_path / "d.csv")
    assert list(tmp_path.iterdir()) == []
    table.save(tmp_path / "d.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]
    assert (tmp_path / "d.csv").read_bytes() == b"x,y\na,b\n"

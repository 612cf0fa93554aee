"""``revar evaluate --calibrator``"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revar.calibrators import CALIBRATORS
from revar.cli import run
from support.problems import blobs

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes that overlap, trained until the probabilities are too sure."""
    folder = tmp_path_factory.mktemp("calibrated")
    (x, y), (x_test, y_test) = blobs(600, 2, spread=3.0), blobs(600, 2, seed=1, spread=3.0)
    np.savez(folder / "data.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    command = ["train", "--data", str(folder / "data.npz"), "--method", "erm", "--epochs", "60"]
    settings = ["--set", "tune_fraction=0.4", "--set", "dropout_rate=0.05"]
    assert run([*command, *settings, "--out", str(folder / "run")]) == 0
    return folder / "run"


def figures(capsys: Capture, trained: Path, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["evaluate", str(trained), "--json", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_temperature_mends_overconfidence_and_leaves_the_ranking(
    trained: Path, capsys: Capture
) -> None:
    plain, tempered = (
        figures(capsys, trained, *more) for more in ([], ["--calibrator", "temperature"])
    )
    assert tempered["ece"] < plain["ece"]
    assert tempered["nll"] < plain["nll"]
    assert tempered["accuracy"] == plain["accuracy"]
    ranked = [result["scores"]["softmax"]["auarc"] for result in (plain, tempered)]
    assert ranked[0] == pytest.approx(ranked[1], abs=1e-12)
    assert "fused" not in tempered["scores"]


@pytest.mark.parametrize("name", [entry.name for entry in CALIBRATORS])
def test_every_calibrator_can_be_asked_for(name: str, trained: Path, capsys: Capture) -> None:
    result = figures(capsys, trained, "--calibrator", name)
    assert result["default_score"] in result["scores"]
    assert result["n"] == 600


def test_a_run_without_a_tune_split_refuses_before_it_looks(
    tmp_path: Path, capsys: Capture
) -> None:
    """What was refused was not evaluated on, and may still set a threshold."""
    (x, y), (x_new, y_new) = blobs(200), blobs(100, seed=1)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    np.savez(tmp_path / "new.npz", x=x_new, y=y_new)
    out, new = str(tmp_path / "run"), str(tmp_path / "new.npz")
    assert run(["train", "--data", str(tmp_path / "data.npz"), "--epochs", "2", "--out", out]) == 0
    capsys.readouterr()
    assert run(["evaluate", out, "--on", new, "--calibrator", "temperature"]) == 2
    said = capsys.readouterr().err.strip()
    assert "no tune split to fit a calibrator on: train with --set tune_fraction=0.1" in said
    assert "\n" not in said
    assert run(["select", out, "--on", new, "--coverage", "0.8"]) == 0


def test_the_run_keeps_its_plain_figures(trained: Path, capsys: Capture) -> None:
    before = (trained / "manifest.json").read_bytes()
    figures(capsys, trained, "--calibrator", "isotonic")
    assert (trained / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--calibrator", "temprature"], 'did you mean "temperature"'),
        (["--calibrator", "lac", "--augmentations", "2"], "cannot be mixed"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    more: list[str], words: str, trained: Path, capsys: Capture
) -> None:
    assert run(["evaluate", str(trained), *more]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1

"""Every method from the command line, with no option of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from revar.cli import run
from revar.registry import METHODS


@pytest.mark.parametrize("name", [entry.name for entry in METHODS])
def test_train_and_evaluate_on_the_digits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--data", "digits", "--method", name, "--epochs", "3"]) == 0
    capsys.readouterr()
    assert run(["evaluate", f"runs/digits-{name}-seed0", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    entry = next(entry for entry in METHODS if entry.name == name)
    assert figures["default_score"] == entry.scores[0]
    assert figures["own_score"] == entry.own
    # What would have to be fitted on held-out labels is there only if it is used.
    unfitted = set() if entry.scores[0] == "fused" else {"fused"}
    assert set(figures["scores"]) == {*entry.scores, "own"} - unfitted
    assert figures["accuracy"] > 0.5

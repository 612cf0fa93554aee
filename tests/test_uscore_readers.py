"""Runs of the study as each other's second readers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.scripts import scripts


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The scripts."""
    with scripts("uscore", "readers", "store") as found:
        yield found


def kept(
    study: Any, out: Path, way: str, sets: dict[str, tuple[NDArray[Any], NDArray[Any]]]
) -> Any:
    """A run of two classes: by set whether it was right, and its log-odds of being wrong."""
    scored = {
        name: study.store.Scored(correct=right, scores={"softmax": odds})
        for name, (right, odds) in sets.items()
    }
    about = {"method": "erm", "own": "softmax", "default": "softmax", "seed": 0}
    study.store.write_run(out / "eyepacs" / f"{way}-0.npz", about, scored)
    return study.store.Run(out / "eyepacs" / f"{way}-0.npz")


def test_another_opinion_is_turned_round_where_answers_differ(study: Any, tmp_path: Path) -> None:
    first = np.array([True, True, False, False]), np.array([-3.0, -2.0, -1.0, -0.5])
    second = np.array([True, False, True, False]), np.array([-4.0, -5.0, -6.0, -7.0])
    runs = [kept(study, tmp_path, way, {"test": s}) for way, s in (("a", first), ("b", second))]
    np.testing.assert_array_equal(
        study.readers.both(*runs, "test"), [[-3, -4], [-2, 5], [-1, 6], [-0.5, -7]]
    )


def drawn(seed: int) -> dict[str, tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Whether f is right, what it says of that, and what somebody says who knows more."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in ("tune", "test", "aptos", "deepdrid"):
        right = rng.random(600) < 0.7
        knows = np.where(right, -1.0, 1.0) + rng.normal(size=600)
        own = np.where(right, -3.0, -2.5) + rng.normal(size=600) / 2
        found[name] = right, own, knows
    return found


def test_a_reader_that_knows_more_gains_and_one_that_agrees_does_not(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = drawn(0)
    kept(study, tmp_path, "trajectory+meta", {n: (r, own) for n, (r, own, _) in sets.items()})
    for way in study.readers.READERS:
        if way == "erm+meta":
            # Against f's answer: the reader gives the other class, and is right where f is not.
            told = {n: (np.where(of > 0, ~r, r), -np.abs(of)) for n, (r, _, of) in sets.items()}
        else:
            told = {n: (r, own) for n, (r, own, _) in sets.items()}
        kept(study, tmp_path, way, told)
    file = tmp_path / "found.json"
    assert study.readers.main([str(tmp_path), "--json", str(file)]) == 0
    assert "erm+meta 1 seeds" in capsys.readouterr().out
    gains = json.loads(file.read_text())["gains"]
    for name in study.readers.SETS:
        assert gains["erm+meta"][name][0] > 5
        assert gains["sat+meta"][name] == gains["gamblers+meta"][name] == [0.0]


def test_without_runs_it_says_so_in_one_line(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study.readers.main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "has no seed of eyepacs by all of trajectory+meta, erm+meta" in said
    assert said.count("\n") == 1

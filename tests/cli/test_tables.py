"""Tables fit a terminal of 80 columns."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from revar.commands.listing import list_names
from revar.report.terminal import auarc_table, evaluation_table, names_table

LONGEST = "ensemble_mutual_information"


def printed(table: Any) -> str:
    console = Console(file=StringIO(), width=80)
    console.print(table)
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def figures(*scores: str) -> dict[str, Any]:
    values = {
        "auarc": 1.0,
        "augrc": 0.1234,
        "failure_auroc": None,
        "accuracy_at_coverage": dict.fromkeys(("0.5", "0.7", "0.8", "0.9"), 1.0),
    }
    return {
        "n": 100_000,
        "accuracy": 0.987,
        "ece": 0.05,
        "default_score": scores[0],
        "own_score": scores[-1],
        "scores": dict.fromkeys(scores, values),
    }


def test_the_figures_of_the_longest_score_are_not_cut_off() -> None:
    text = printed(evaluation_table("test", figures("softmax", LONGEST, "uscore")))
    assert "\u2026" not in text
    row = next(line for line in text.splitlines() if line.startswith(LONGEST))
    assert row.split() == [LONGEST, "100.00", "12.34", "-", *["100.00"] * 4]
    assert "acc@50 acc@70 acc@80 acc@90" in text
    assert "softmax *" in text
    assert "uscore +" in text


def test_what_rounding_leaves_below_zero_is_zero() -> None:
    found = figures("softmax")
    found["scores"]["softmax"]["auarc"] = -1e-17
    text = printed(evaluation_table("test", found))
    row = next(line for line in text.splitlines() if line.startswith("softmax"))
    assert "0.00" in row.split()
    assert "-0.00" not in text


def test_the_table_of_the_demo_explains_the_marks_it_has() -> None:
    both = {name: figures("softmax", "mutual_information") for name in ("test", "shifted")}
    text = printed(auarc_table({"erm": both, "revar": both}, ("test", "shifted")))
    assert "\u2026" not in text
    assert "* used unless told otherwise" in text
    assert "+" not in text


@pytest.mark.parametrize("kind", ["methods", "scores", "calibrators", "backbones", "datasets"])
def test_no_name_is_cut_off(kind: str) -> None:
    entries = list_names(kind)
    text = printed(names_table(kind, entries))
    assert "\u2026" not in text
    shown = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert {entry["name"] for entry in entries} <= shown

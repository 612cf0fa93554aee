"""The paper's numbers: well formed, and in agreement with each other."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from revar.errors import InputError
from revar.library import SPECS
from revar.published import TABLES, PublishedTable, PublishedValue, parts, published
from revar.published.base import read_grid

EVERY = [part for name in TABLES for part in parts(name)]
EMPTY = {
    "lesion", "two-phase-adaptation", "dr-coverage/ece", "controlled/interpolation",
}  # fmt: skip
"""Pictures and text without a number of the metric."""
RANGES = {
    "AUARC": (5, 100),
    "accuracy": (60, 100),
    "AUC": (75, 100),
    "error": (1, 20),
    "ECE": (0.5, 20),
    "KL": (0, 1),
    "R2": (0, 1),
    "correlation": (0, 1),
    "ratio to plain training": (1, 2),
    "count": (1, 200_000),
}


def by_name(table: PublishedTable) -> str:
    return table.name


@pytest.mark.parametrize("table", EVERY, ids=by_name)
def test_a_table_is_complete_or_says_why_not(table: PublishedTable) -> None:
    assert table.caption
    assert "\n" not in table.caption
    assert (not table.values) == (table.name in EMPTY)
    if table.name in EMPTY:
        assert table.notes
    elif table.name != "dataset-statistics":
        assert set(table.values) == {(row, col) for row in table.rows for col in table.columns}


@pytest.mark.parametrize("table", EVERY, ids=by_name)
def test_values_are_of_the_size_of_their_metric(table: PublishedTable) -> None:
    if not table.values:
        return
    low, high = RANGES[table.metric]
    for value in table.values.values():
        assert low <= value.mean <= high
        assert value.spread is None or 0 <= value.spread < 1
    assert len({value.spread is None for value in table.values.values()}) == 1


@pytest.mark.parametrize("table", EVERY, ids=by_name)
def test_the_unit_and_the_direction_go_with_the_metric(table: PublishedTable) -> None:
    assert table.percent == (table.metric in {"AUARC", "accuracy", "AUC", "error", "ECE"})
    worse = {"error", "ECE", "KL", "ratio to plain training"}
    assert table.higher_is_better == (table.metric not in worse)


def test_names_are_unique_and_all_are_reached() -> None:
    names = [table.name for table in EVERY]
    assert not [name for name, times in Counter(names).items() if times > 1]
    assert [table.name for table in EVERY if "/" not in table.name] == list(TABLES)
    assert all(table is published(table.name) for table in EVERY)
    assert len(EVERY) == 29 + 9


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match='unknown published table "mian": did you mean "main"'):
        published("mian")
    with pytest.raises(InputError, match="unknown published table"):
        parts("nonsense")


def test_values_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        published("main").values["revar", "aptos"] = PublishedValue(100.0)  # type: ignore[index]


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        (("sr", "sr"), ("aptos",), "has a row twice"),
        (("sr",), ("aptos", "aptos"), "has a column twice"),
        (("mcd",), ("aptos",), r"unknown \(sr, aptos\)"),
        (("sr",), ("eyepacs",), r"unknown \(sr, aptos\)"),
    ],
)
def test_a_table_that_does_not_hold_together(
    rows: tuple[str, ...], columns: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        PublishedTable(
            name="x",
            label="",
            caption="x",
            metric="AUARC",
            rows=rows,
            columns=columns,
            values={("sr", "aptos"): PublishedValue(1.0)},
        )


def test_blocks_of_columns_are_joined() -> None:
    grid = read_grid("a b\nx 1 2±0.5\ny - 3\n\n c\nx 4\ny 5")
    assert grid.rows == ("x", "y")
    assert grid.columns == ("a", "b", "c")
    assert grid.values == {
        ("x", "a"): PublishedValue(1.0),
        ("x", "b"): PublishedValue(2.0, 0.5),
        ("y", "b"): PublishedValue(3.0),
        ("x", "c"): PublishedValue(4.0),
        ("y", "c"): PublishedValue(5.0),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b\nx 1", 'row "x" has 1 numbers, the line of columns 2'),
        ("a\nx one", '"one" is no number'),
        ("a\nx 1\n\nb\ny 2", "every block needs the same"),
        ("a\nx 1\n\na\nx 2", "every column comes once"),
    ],
)
def test_what_is_no_grid(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_grid(text)


def test_the_numbers_need_no_arrays() -> None:
    script = "import sys, revar.published\nassert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_sizes_of_data_sets_are_those_of_the_library() -> None:
    table = published("dataset-statistics")
    specs = {spec.name: spec for spec in SPECS}
    for name in table.rows:
        sizes = {
            part: table.values[name, column].mean
            for part, column in (("train", "train"), ("val", "validation"), ("test", "test"))
            if (name, column) in table.values
        }
        assert sizes == specs[name].paper


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("dr-coverage", "revar", "aptos@0.4"), ("adaptation", "revar", "aptos@0.4")),
        (("dr-coverage", "revar", "aptos@0.8"), ("uscore-architecture", "resnet18", "aptos@0.8")),
        (("main", "mcd", "aptos"), ("reweighting", "mcd", "aptos")),
        (("main", "revar", "aptos"), ("parameter-control", "revar", "aptos")),
        (("main", "revar", "cifar100"), ("entropy-correlation", "revar", "cifar100")),
        (("calibration", "sr", "aptos"), ("reweighting/ece", "mcd", "aptos+variance")),
        (("ood", "sat", "imagenet-a"), ("hard-samples", "sat", "imagenet-a")),
        (("ood", "revar", "imagenet-c"), ("adaptation-ood", "revar", "imagenet-c")),
        (("hard-samples", "gamblers", "imagenet-a"), ("matched-sets", "gamblers", "own-selection")),
    ],
)
def test_what_the_paper_prints_twice(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert published(one[0]).values[one[1:]].mean == published(other[0]).values[other[1:]].mean


@pytest.mark.parametrize(
    ("one", "other", "means"),
    [
        (("main", "imagenet-100"), ("simple-calibrators", "imagenet-100"), (94.95, 94.5)),
        (("main", "imagenet-100"), ("entropy-correlation", "imagenet-100"), (94.95, 94.5)),
        (("main", "aptos"), ("simple-calibrators", "aptos"), (89.94, 89.4)),
    ],
)
def test_what_the_paper_prints_in_two_ways_has_a_note(
    one: tuple[str, str], other: tuple[str, str], means: tuple[float, float]
) -> None:
    first, second = published(one[0]), published(other[0])
    assert first.values["revar", one[1]].mean == means[0]
    assert second.values["revar", other[1]].mean == means[1]
    assert any(other[0] in note and str(means[0]) in note for note in first.notes)
    assert any("main" in note and str(means[0]) in note for note in second.notes)


def test_the_notes_on_a_wider_net_name_all_that_the_text_does_not_hold_for() -> None:
    """Gains over the tables of the net it replaces, as the notes have them."""

    def gains(grid: str, other: str, sign: int) -> dict[tuple[str, str], float]:
        before = published(other).values
        return {
            place: round(sign * (value.mean - before[place].mean), 2)
            for place, value in published(grid).values.items()
        }

    found = gains("wrn", "dr-coverage", 1)
    beyond = {place: gain for place, gain in found.items() if gain < -0.3 or gain > 0.5}
    assert beyond == {
        ("sat", "eyepacs@0.4"): -0.7, ("sat", "eyepacs@0.5"): -0.6,
        ("selectivenet", "aptos@0.8"): 0.6, ("selectivenet", "aptos@1.0"): 0.6,
    }  # fmt: skip
    assert sum(0 < gain <= 0.2 for gain in found.values()) == 7
    note = published("wrn").notes[0]
    for words in ("0.7 at 0.4", "0.6 at 0.5", "by 0.6 at 0.8 and at 1.0", "seven others"):
        assert words in note
    errors = gains("wrn/error", "imagenet100-coverage", -1)
    (note,) = [note for note in published("wrn/error").notes if "errors" in note]
    for coverage, words in (("0.6", "0.06 to 0.13"), ("0.7", "0.19 to 0.30")):
        those = [gain for (_, column), gain in errors.items() if column.endswith(coverage)]
        assert f"{min(those):.2f} to {max(those):.2f}" == words
        assert words in note
    rest = {place for place, gain in errors.items() if not 0.3 <= gain <= 0.8}
    for row, at, words in (
        ("selectivenet", "0.8", "0.18"), ("selectivenet", "1.0", "0.81"), ("sat", "0.9", "0.26"),
    ):  # fmt: skip
        place = (row, f"imagenet-100@{at}")
        assert f"{errors[place]:.2f}" == words
        assert words in note
        rest.remove(place)
    assert {column.partition("@")[2] for _, column in rest} == {"0.6", "0.7"}

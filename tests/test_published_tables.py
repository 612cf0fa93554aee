"""The paper's numbers: well formed, and every one where the paper's source prints it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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
SOURCE = Path(os.environ.get("REVAR_DATA", "nowhere")).parent / "paper" / "revar.tex"
needs_source = pytest.mark.skipif(
    not SOURCE.is_file(), reason="needs the paper's source beside REVAR_DATA"
)


def by_name(table: PublishedTable) -> str:
    return table.name


# Structure.


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


# What must agree, with or without the paper's source.


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


# Against the paper's source.

HEADS = {
    "SR": "sr", "CE": "sr", "MCD": "mcd", "DG": "gamblers", "SN": "selectivenet", "SAT": "sat",
    "VR": "vr", "MBR": "mbr", "Ours": "revar", "MMCE": "mmce", "Brier": "brier",
    "FLSD-53": "flsd53", "FSLD-53": "flsd53", "AdaFocal": "adafocal", "MWN": "mwn", "IBR": "ibr",
    "L2R": "l2r", "FSR": "fsr", "Revar": "revar", "Revar-PV": "revar-pv",
    r"\ouralgo": "revar", r"\ouralgo-PV": "revar-pv", r"\ouralgo-DSV": "revar-dsv",
    "VR-DSV": "vr-dsv", "VR-PV": "vr-pv", "Plex": "plex", "Plex+ours": "plex-revar",
    "RN-18": "resnet18", "RN-32": "resnet32", "RN-50": "resnet50", "RN-101": "resnet101",
    "ViT-S": "vit-small", "Probout": "probout", "Platt scaling": "platt",
    "Temp Scaling": "temperature", "Confomal prediction": "conformal", "Entropy based": "entropy",
    "Correlation": "revar", "Time per epoch": "time-per-epoch", "Num epochs": "epochs",
    "PSS": "own-selection", "OSS": "revar-selection",
    "DR(In-Dist.)": "eyepacs", "DR-In-D": "eyepacs", "DR (ID)": "eyepacs", "DR": "eyepacs",
    "DR (Kaggle)": "eyepacs", "DR(OOD)": "aptos", "DR (OOD)": "aptos", "DR (APTOS)": "aptos",
    "CIFAR-100": "cifar100", "ImageNet-100": "imagenet-100", "Im-100": "imagenet-100",
    "IN-100": "imagenet-100", "ImageNet-1K": "imagenet-1k", "Im-1k": "imagenet-1k",
    "IN-1K": "imagenet-1k", "ImageNet-A": "imagenet-a", "ImagNet-A": "imagenet-a",
    "ImageNet-C": "imagenet-c", "ImageNet-R": "imagenet-r", "Camelyon": "camelyon17",
    "iWildCam": "iwildcam", "Inst.CIFAR-100": "inst-cifar100", "Clothing1M": "clothing1m",
    "IN-100H": "imagenet-100h", "CF-100H": "cifar100h", "In-Dist.": "in-distribution",
    "OOD": "out-of-distribution", r"\#labels": "classes", "Train": "train", "Val": "validation",
    "Test": "test", "Size": "side", "1": "1.0",
}  # fmt: skip
"""Heads of rows and columns in the source, by our names."""
NO_ROW = ("", "Coverage", "Dataset", "Data", "Method", "S", "Ours")
"""First cells of a line of heads; the table of shifted ImageNets starts with a method."""


class Line(NamedTuple):
    head: str
    values: list[tuple[float, float | None]]


class Printed(NamedTuple):
    heads: list[str]
    lines: list[Line]
    text: str


def _clean(cell: str) -> str:
    cell = re.sub(r"\\(top|mid|bottom)rule|\\hline|\\scriptsize", "", cell)
    cell = cell.replace(r"\textbf", "").replace(r"$\pm$", "±").replace(r"\pm", "±")
    cell = re.sub(r"(\d+)\s*\$\\times\$\s*\1", r"\1", cell).replace("5 (binarized)", "5")
    cell = re.sub(r"[{}$]", "", cell)
    return " ".join(re.sub(r"(?<=\d),(?=\d{3})", "", cell).split())


def _value(cell: str) -> tuple[float, float | None] | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:±\s*(\d+(?:\.\d+)?))?", cell)
    if not found:
        return None
    return float(found[1]), None if found[2] is None else float(found[2])


def _read(tabular: str) -> Printed:
    heads: list[str] = []
    lines: list[Line] = []
    for raw in tabular.split(r"\\"):
        cells = [_clean(cell) for cell in raw.split("&")]
        if len(cells) == 1 or "multicolumn" in raw:
            continue
        values = [_value(cell) for cell in cells[1:]]
        if not lines and (cells[0] in NO_ROW and not (cells[0] == "Ours" and None not in values)):
            heads = cells
        elif (first := _value(cells[0])) and None not in values and not heads[0]:
            lines.append(Line("", [first, *(value for value in values if value)]))
        else:
            lines.append(Line(cells[0], [value for value in values if value]))
    return Printed(heads, lines, tabular)


def _tabulars(label: str) -> Iterator[Printed]:
    """The tabular nearest to every place where the label stands; one label stands in four."""
    source = SOURCE.read_text(encoding="utf-8")
    spans = [m.span() for m in re.finditer(r"\\begin{tabular}.*?\\end{tabular}", source, re.S)]
    for place in re.finditer(re.escape(rf"\label{{{label}}}"), source):
        at = place.start()
        start, end = min(spans, key=lambda span: min(abs(span[0] - at), abs(span[1] - at)))
        inside = source[start:end].removesuffix(r"\end{tabular}")
        yield _read(re.sub(r"^\\begin{tabular}(\[.\])?{[^}]*}", "", inside))


def _tabular(label: str, lines: int, word: str) -> Printed:
    found = [one for one in _tabulars(label) if len(one.lines) == lines and word in one.text]
    assert found, label
    return found[0]


def _pair(value: PublishedValue) -> tuple[float, float | None]:
    return value.mean, value.spread


def _down(name: str) -> list[Line]:
    """The lines that a table has in the source, where they are our rows."""
    table = published(name)
    return [
        Line(
            row,
            [_pair(table.values[row, c]) for c in table.columns if (row, c) in table.values],
        )
        for row in table.rows
    ]


def _across(name: str) -> list[Line]:
    """The same where they are our columns; a coverage goes without its data set."""
    table = published(name)
    return [
        Line(column.rpartition("@")[2], [_pair(table.values[row, column]) for row in table.rows])
        for column in table.columns
    ]


def _ours(line: Line) -> Line:
    return Line(HEADS.get(line.head, line.head), line.values)


def _known(heads: list[str]) -> list[str]:
    """Heads of columns by our names, without the first and without words that are no column."""
    names = [HEADS.get(head, head) for head in heads[1:]]
    return [name for name in names if name and name not in ("Architecture", "Target")]


DOWN = {
    "shifted-validation": "Camelyon", "plex-label": "Plex", "imagenet100-coverage": "MCD",
    "imagenet1k-coverage": "SAT", "uscore-architecture": "RN-18", "vit": "ViT-S",
    "wrn/error": "SAT", "cost": "Num epochs", "parameter-control": "RN101",
    "adaptation-ood": "Revar", "dataset-statistics": "Kaggle",
}  # fmt: skip
ACROSS = {
    "main": "SAT", "calibration": "AdaFocal", "shifted-validation": "Camelyon",
    "label-noise": "Clothing1M", "label-uncertainty": "Plex", "adaptation": "VR-PV",
    "controlled": "IBR", "plex-calibration": "MMCE", "plex-label": "Plex",
    "simple-calibrators": "Probout", "hard-samples": "ImageNet-A", "matched-sets": "OSS",
}  # fmt: skip
del DOWN["shifted-validation"], DOWN["plex-label"]


@needs_source
@pytest.mark.parametrize("name", DOWN)
def test_tables_whose_lines_are_our_rows(name: str) -> None:
    table = published(name)
    printed = _tabular(table.label, len(table.rows), DOWN[name])
    assert [_ours(line) for line in printed.lines] == _down(name)
    assert _known(printed.heads) == [column.rpartition("@")[2] for column in table.columns]


@needs_source
@pytest.mark.parametrize("name", ACROSS)
def test_tables_whose_lines_are_our_columns(name: str) -> None:
    table = published(name)
    printed = _tabular(table.label, len(table.columns), ACROSS[name])
    lines = [_ours(line) for line in printed.lines]
    if name in ("adaptation", "controlled"):
        lines = list(printed.lines)
    assert lines == _across(name)
    assert _known(printed.heads) == list(table.rows)


@needs_source
def test_the_one_line_of_the_shifted_imagenets() -> None:
    table = published("ood")
    (printed,) = _tabulars(table.label)
    (line,) = printed.lines
    assert line.values == [value for block in _across("ood") for value in block.values]
    assert [HEADS[head] for head in printed.heads] == [*table.rows] * 3
    places = [printed.text.index(name) for name in ("ImageNet-A", "ImageNet-C", "ImageNet-R")]
    assert places == sorted(places)
    assert table.columns == ("imagenet-a", "imagenet-c", "imagenet-r")


@needs_source
@pytest.mark.parametrize("name", ["dr-coverage", "wrn", "entropy-regularisation"])
def test_retinal_tables_have_auc_before_accuracy(name: str) -> None:
    accuracy, auc = published(name), published(f"{name}/auc")
    (printed,) = _tabulars(accuracy.label)
    assert auc.label == accuracy.label
    shares = [int(share) / 100 for share in re.findall(r"(\d+)\\% retained", printed.text)]
    assert _known(printed.heads) == [r"AUC(\%)", r"Acc.(\%)"] * len(shares)
    assert printed.text.index("Kaggle Dataset") < printed.text.index("APTOS Dataset")
    wanted = [
        Line(
            row,
            [
                _pair(part.values[row, f"{domain}@{share}"])
                for share in shares
                for part in (auc, accuracy)
            ],
        )
        for domain in ("eyepacs", "aptos")
        for row in accuracy.rows
    ]
    assert [_ours(line) for line in printed.lines] == wanted
    assert len(accuracy.columns) == 2 * len(shares)


@needs_source
def test_the_pretrained_model_at_coverage() -> None:
    accuracy, auc = published("plex-selective"), published("plex-selective/auc")
    printed = next(_tabulars(accuracy.label))
    at = printed.heads[1:7]
    assert printed.heads[1:] == [*at[:5], "AUC"] * 2
    assert accuracy.columns == tuple(f"{d}@{c}" for d in ("eyepacs", "aptos") for c in at[:5])
    wanted = []
    for row in accuracy.rows:
        values = [_pair(accuracy.values[row, column]) for column in accuracy.columns]
        ends = [_pair(auc.values[row, domain]) for domain in ("eyepacs", "aptos")]
        wanted.append(Line(row, [*values[:5], ends[0], *values[5:], ends[1]]))
    assert [_ours(line) for line in printed.lines] == wanted


@needs_source
def test_reweighting_has_areas_before_calibration_errors() -> None:
    areas, errors = _down("reweighting"), _down("reweighting/ece")
    (printed,) = _tabulars(published("reweighting").label)
    both = [Line(a.head, [*a.values, *b.values]) for a, b in zip(areas, errors, strict=True)]
    assert [_ours(line) for line in printed.lines] == both
    assert _known(printed.heads) == ["aptos", "imagenet-1k"] * 3


@needs_source
def test_entropy_and_its_correlation() -> None:
    (printed,) = _tabulars(published("entropy-correlation").label)
    wanted = _down("entropy-correlation") + _down("entropy-correlation/correlation")
    assert [_ours(line) for line in printed.lines] == wanted
    assert _known(printed.heads) == list(published("entropy-correlation").columns)


@needs_source
def test_every_table_is_checked_and_no_label_is_forgotten() -> None:
    checked = {*DOWN, *ACROSS, "ood", "dr-coverage", "wrn", "entropy-regularisation"}
    checked |= {"plex-selective", "reweighting", "entropy-correlation"}
    followed = {name.partition("/")[0] for name in checked}
    assert {t.name.partition("/")[0] for t in EVERY if t.values} == followed
    source = SOURCE.read_text(encoding="utf-8")
    held = {table.label for table in EVERY if table.label}
    assert all(rf"\label{{{label}}}" in source for label in held)
    other = {"tab:my_label"} | {label for label in re.findall(r"\\label{(eq:[^}]*)}", source)}
    floats = set(re.findall(r"\\label{((?:tab|fig):[^}]*)}", source)) - other
    assert floats <= held
    assert source.count(r"\begin{tabular}") == len(
        {t.label for t in EVERY if t.values} - {"tab:my_label"}
    ) + len([t for t in EVERY if t.label == "tab:my_label"])


@needs_source
def test_no_caption_is_the_papers() -> None:
    source = " ".join(SOURCE.read_text(encoding="utf-8").lower().split())
    for table in EVERY:
        for sentence in (table.caption, *table.notes):
            words = re.sub(r"[^a-z0-9 ]", "", sentence.lower()).split()
            for start in range(len(words) - 7):
                assert " ".join(words[start : start + 8]) not in source


@needs_source
def test_schedule_and_text_only_numbers() -> None:
    source = SOURCE.read_text(encoding="utf-8")
    assert "230 epochs" in source
    assert "70 epochs" in source
    assert any("230" in note and "70" in note for note in published("two-phase-adaptation").notes)

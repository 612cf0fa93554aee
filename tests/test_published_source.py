"""The paper's numbers, every one in its place in the paper's source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from revar.published import TABLES, PublishedValue, parts, published
from support.latex import Line, Printed, read_value, tabulars

SOURCE = Path(os.environ.get("REVAR_DATA", "nowhere")).parent / "paper" / "revar.tex"
pytestmark = pytest.mark.skipif(
    not SOURCE.is_file(), reason="needs the paper's source beside REVAR_DATA"
)
EVERY = [part for name in TABLES for part in parts(name)]
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


def _source() -> str:
    return SOURCE.read_text(encoding="utf-8")


def _printed(label: str) -> Iterator[Printed]:
    return tabulars(_source(), label)


def _tabular(label: str, lines: int, word: str) -> Printed:
    """The one of this size with this word; one label stands in four places."""
    found = [one for one in _printed(label) if len(one.lines) == lines and word in one.text]
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
    "imagenet100-coverage": "MCD",
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


@pytest.mark.parametrize("name", DOWN)
def test_tables_whose_lines_are_our_rows(name: str) -> None:
    table = published(name)
    printed = _tabular(table.label, len(table.rows), DOWN[name])
    assert [_ours(line) for line in printed.lines] == _down(name)
    assert _known(printed.heads) == [column.rpartition("@")[2] for column in table.columns]


@pytest.mark.parametrize("name", ACROSS)
def test_tables_whose_lines_are_our_columns(name: str) -> None:
    table = published(name)
    printed = _tabular(table.label, len(table.columns), ACROSS[name])
    lines = [_ours(line) for line in printed.lines]
    if name in ("adaptation", "controlled"):
        lines = list(printed.lines)
    assert lines == _across(name)
    assert _known(printed.heads) == list(table.rows)


def test_the_one_line_of_the_shifted_imagenets() -> None:
    table = published("ood")
    (printed,) = _printed(table.label)
    (line,) = printed.lines
    # It has no head, so its first number stands there.
    values = [read_value(line.head), *line.values]
    assert values == [value for block in _across("ood") for value in block.values]
    assert [HEADS[head] for head in printed.heads] == [*table.rows] * 3
    places = [printed.text.index(name) for name in ("ImageNet-A", "ImageNet-C", "ImageNet-R")]
    assert places == sorted(places)
    assert table.columns == ("imagenet-a", "imagenet-c", "imagenet-r")


@pytest.mark.parametrize("name", ["dr-coverage", "wrn", "entropy-regularisation"])
def test_retinal_tables_have_auc_before_accuracy(name: str) -> None:
    accuracy, auc = published(name), published(f"{name}/auc")
    (printed,) = _printed(accuracy.label)
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


def test_the_pretrained_model_at_coverage() -> None:
    accuracy, auc = published("plex-selective"), published("plex-selective/auc")
    printed = next(_printed(accuracy.label))
    at = printed.heads[1:7]
    assert printed.heads[1:] == [*at[:5], "AUC"] * 2
    assert accuracy.columns == tuple(f"{d}@{c}" for d in ("eyepacs", "aptos") for c in at[:5])
    wanted = []
    for row in accuracy.rows:
        values = [_pair(accuracy.values[row, column]) for column in accuracy.columns]
        ends = [_pair(auc.values[row, domain]) for domain in ("eyepacs", "aptos")]
        wanted.append(Line(row, [*values[:5], ends[0], *values[5:], ends[1]]))
    assert [_ours(line) for line in printed.lines] == wanted


def test_reweighting_has_areas_before_calibration_errors() -> None:
    areas, errors = _down("reweighting"), _down("reweighting/ece")
    (printed,) = _printed(published("reweighting").label)
    both = [Line(a.head, [*a.values, *b.values]) for a, b in zip(areas, errors, strict=True)]
    assert [_ours(line) for line in printed.lines] == both
    assert _known(printed.heads) == ["aptos", "imagenet-1k"] * 3


def test_entropy_and_its_correlation() -> None:
    (printed,) = _printed(published("entropy-correlation").label)
    wanted = _down("entropy-correlation") + _down("entropy-correlation/correlation")
    assert [_ours(line) for line in printed.lines] == wanted
    assert _known(printed.heads) == list(published("entropy-correlation").columns)


def test_every_table_is_checked_and_no_label_is_forgotten() -> None:
    checked = {*DOWN, *ACROSS, "ood", "dr-coverage", "wrn", "entropy-regularisation"}
    checked |= {"plex-selective", "reweighting", "entropy-correlation"}
    followed = {name.partition("/")[0] for name in checked}
    assert {table.name.partition("/")[0] for table in EVERY if table.values} == followed
    source = _source()
    held = {table.label for table in EVERY if table.label}
    assert all(rf"\label{{{label}}}" in source for label in held)
    floats = re.findall(r"\\label{((?:tab|fig):[^}]*)}", source)
    assert {*floats} <= held
    # One label stands for two tables, so it is counted by table.
    numbered = {table.label for table in EVERY if table.values} - {"tab:my_label"}
    shared = [table for table in EVERY if table.label == "tab:my_label"]
    assert source.count(r"\begin{tabular}") == len(numbered) + len(shared)


def test_no_caption_is_the_papers() -> None:
    source = " ".join(re.sub(r"[^a-z0-9 ]", "", " ".join(_source().lower().split())).split())
    for table in EVERY:
        for sentence in (table.caption, *table.notes):
            words = re.sub(r"[^a-z0-9 ]", "", sentence.lower()).split()
            for start in range(len(words) - 7):
                assert " ".join(words[start : start + 8]) not in source


def test_the_two_phases_are_those_of_the_text() -> None:
    source = _source()
    assert "230 epochs" in source
    assert "70 epochs" in source
    assert any("230" in note and "70" in note for note in published("two-phase-adaptation").notes)

"""Specs of published data sets: complete, light, honest about what is there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from revar.cli import run
from revar.commands.listing import list_names
from revar.data.columns import read_columns, whole_numbers
from revar.data.datasets import dataset_spec, read_dataset
from revar.data.published import how_to_get, locate
from revar.data.source import load_source
from revar.errors import DataWarning, InputError
from revar.library import SPECS
from revar.library.classes import IMAGENET_100
from revar.library.specs import DatasetSpec
from revar.registry import load
from support.layouts import class_tree, write

PAPER = {
    "eyepacs": {"train": 35_697, "val": 2_617, "test": 42_690},
    "aptos": {"test": 2_917},
    "imagenet-100": {"train": 130_000, "test": 5_000},
    "cifar100": {"train": 50_000, "test": 10_000},
}
"""Its table of data sets."""
DOCS = Path(__file__).parents[2] / "docs" / "datasets.md"


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_spec_says_all_that_a_user_needs(spec: DatasetSpec) -> None:
    assert spec.n_classes >= 2
    assert spec.summary
    assert spec.citation
    assert spec.obtain
    assert spec.licence
    assert bool(spec.forms) != bool(spec.target)
    for form in spec.forms:
        assert callable(load(form.reader))
        assert callable(load(form.counter))
        assert form.sizes
        assert "test" in form.sizes
        assert all(size > 0 for size in form.sizes.values())
        assert form.place in how_to_get(spec)
        assert form.layout in how_to_get(spec)
    assert "\n" not in how_to_get(spec)
    assert not spec.base or dataset_spec(spec.base).name == spec.base


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_page_has_a_row_for_every_spec(spec: DatasetSpec) -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert re.search(rf"^\| .*`{re.escape(spec.name)}`", page, re.MULTILINE)
    for form in spec.forms:
        assert f"`{form.place}`" in page, form.place
    for address in re.split(r", which has it| and | \(", spec.obtain)[:1]:
        assert address in page


def test_the_sizes_of_the_paper_are_those_of_its_table() -> None:
    for name, sizes in PAPER.items():
        assert dict(dataset_spec(name).paper) == sizes


def test_the_sides_of_images_in_the_paper_are_those_of_its_table() -> None:
    sides = {name: dataset_spec(name).paper_side for name in PAPER}
    assert sides == {"eyepacs": 512, "aptos": 512, "imagenet-100": 256, "cifar100": 28}


def test_imagenet_100_has_a_hundred_classes() -> None:
    assert len(IMAGENET_100) == 100
    assert all(re.fullmatch(r"n\d{8}", name) for name in IMAGENET_100)


def test_the_first_form_that_is_there_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    spec = dataset_spec("cifar10")
    (tmp_path / "cifar-10-batches-py").mkdir()
    assert locate(spec).form.place == "cifar-10-batches-py"
    (tmp_path / "cifar10").mkdir()
    found = locate(spec)
    assert found.form.place == "cifar10"
    assert found.path == tmp_path / "cifar10"
    assert found.shape == (3, 32, 32)
    assert replace(found, image_shape=(1, 8, 8)).shape == (1, 8, 8)


def test_too_many_classes_are_refused_and_missing_images_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    class_tree(tmp_path / "imagenet-r", {"n01": 2, "n02": 1})
    message = 'dataset "imagenet-r" is not complete: test has 3 examples, not 30,000'
    with pytest.warns(DataWarning, match=message):
        load_source("imagenet-r")
    spec = replace(dataset_spec("imagenet-r"), n_classes=1)
    with pytest.raises(InputError, match='"imagenet-r" has 2 classes, it should have 1'):
        read_dataset(spec)


def test_without_the_folder_the_list_says_how_to_get_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REVAR_DATA", raising=False)
    assert run(["list", "datasets", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows.keys() == {spec.name for spec in SPECS}
    assert rows["digits"]["sizes"] == {"train": 1_198, "test": 599}
    assert rows["digits"]["missing"] is None
    for name, row in rows.items():
        if not name.startswith("digits"):
            assert row["sizes"] is None
            assert row["missing"].startswith("get it from ")
    assert run(["list", "datasets"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "not here: get it from" in text
    assert "(42,690)" in text
    assert "(512x512)" in text


def test_the_list_on_real_data_has_the_sizes_that_readers_give(real_data: Path) -> None:
    rows = {row["name"]: row for row in list_names("datasets")}
    for name in (
        "fashion-mnist", "cifar10", "cifar10n-worst", "cifar10h", "aptos", "deepdrid", "eyepacs",
        "usps-to-mnist", "pacs", "pacs-sketch", "heart-disease", "tiny-imagenet-100",
    ):  # fmt: skip
        assert rows[name]["state"] == "here"
        assert rows[name]["sizes"] == dict(dataset_spec(name).forms[0].sizes)
        assert rows[name]["incomplete"] is None


def test_columns_are_read_as_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '\ufeffx, y,z\n1," 2, 3",\n\n4,5,6\n')
    got = read_columns(path, "z", "y")
    assert {name: cells.tolist() for name, cells in got.items()} == {
        "z": ["", "6"],
        "y": ["2, 3", "5"],
    }
    assert whole_numbers(path, "x", read_columns(path, "x")["x"]).dtype == np.int64
    with pytest.raises(InputError, match=r'no column "w" \(it has x, y, z\)'):
        read_columns(path, "w")
    with pytest.raises(InputError, match='y is "2, 3", not a whole number'):
        whole_numbers(path, "y", got["y"])
    with pytest.raises(InputError, match="cut short in line 2"):
        read_columns(write(tmp_path / "b.csv", "x,y\n1\n"), "x")
    with pytest.raises(InputError, match="cannot be read"):
        read_columns(tmp_path / "none.csv", "x")

"""``revar list datasets``: what is there is counted, what is missing is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revar.cli import run
from revar.commands.listing import list_names
from revar.data.shares import held_out
from revar.data.source import Source, load_source
from revar.errors import DataWarning
from revar.splits import take_off
from support.holdings import (
    aptos,
    camelyon,
    cifar10,
    cifar100,
    clothing,
    corruptions,
    deepdrid,
    eyepacs,
    eyepacs_files,
    heart,
    imagenet,
    iwildcam,
    mnist,
    pacs,
    pacs_packed,
    tiny,
    tiny_packed,
    usps,
)
from support.layouts import idx, sheet, table, write
from support.pictures import pixels


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    return tmp_path


def row(name: str) -> dict[str, Any]:
    return next(row for row in list_names("datasets") if row["name"] == name)


def read_sizes(name: str) -> dict[str, int]:
    """Sizes as the reader has them."""
    with pytest.warns(DataWarning, match="is not complete"):
        source: Source = load_source(name)
    if not source.tests:
        return {"test": len(source.train)}
    own = {} if source.meta is None else {"meta": source.meta}
    parts = {"train": source.train, **own, **source.splits, **source.tests}
    return {part: len(those) for part, those in parts.items()}


def counted(name: str) -> None:
    """The list has what the reader reads, and says that it is not the whole."""
    got = row(name)
    assert got["state"] == "here", got["missing"]
    assert got["sizes"] == read_sizes(name)
    assert got["missing"] is None
    assert " examples, not " in got["incomplete"]


def damaged(name: str, reason: str) -> None:
    got = row(name)
    assert got["state"] == "damaged"
    assert got["sizes"] is None
    assert reason in got["missing"]


LAYOUTS = {
    "eyepacs": (eyepacs, "diabetic_retinopathy/eyepacs_test.jpg", 'eyepacs_test.jpg" is missing'),
    "eyepacs-grade3": (
        eyepacs_files, "eyepacs/test/90_right.jpeg", "1 of 2 images are missing, the first is",
    ),
    "deepdrid": (
        deepdrid, "DeepDRiD/regular_fundus_images/regular-fundus-training/Images/2",
        "1 of 3 images are missing",
    ),
    "aptos": (eyepacs, "diabetic_retinopathy/aptos.jpg", 'aptos.jpg" is missing'),
    "aptos-grade3": (aptos, "aptos/train_images", "2 of 2 images are missing, the first is"),
    "pacs": (pacs, "PACS/art_painting", 'art_painting" is missing'),
    "pacs-art-painting": (pacs_packed, "pacs/art_painting.jpg", 'art_painting.jpg" is missing'),
    "heart-disease": (heart, "heart_disease/processed.va.csv", 'processed.va.csv" is missing'),
    "camelyon17": (camelyon, "camelyon17_v1.0/patches/patient_042_node_3", "1 of 5 images are"),
    "iwildcam": (iwildcam, "iwildcam_v2.0/train/3.jpg", 'train/3.jpg"'),
    "clothing1m": (clothing, "clothing1m/images/c.jpg", "3 of 8 images are missing"),
    "tiny-imagenet-100": (tiny, "tiny-imagenet-200/val/images/a.JPEG", "1 of 2 images are"),
    "imagenet-1k": (imagenet, "imagenet/val", 'val" is missing'),
    "imagenet-100": (imagenet, "imagenet/train", 'train" is missing'),
    "imagenet-c": (corruptions, "imagenet-c/fog", "has no folders <corruption>/<severity>"),
    "mnist": (mnist, "mnist/train-images-idx3-ubyte.gz", 'train-images-idx3-ubyte" is missing'),
    "usps-to-mnist": (
        usps, "digits/mnist-t10k-labels-idx1-ubyte", 'mnist-t10k-labels-idx1-ubyte" is missing',
    ),
    "cifar100": (cifar100, "cifar-100-python/test", 'test" is missing'),
}  # fmt: skip
"""What lays it out, what is then taken away, and what the list says."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_examples_are_counted_and_missing_files_are_named(data: Path, name: str) -> None:
    lay_out, lost, reason = LAYOUTS[name]
    lay_out(data)
    counted(name)
    path = data / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    damaged(name, reason)


def test_packed_forms_are_counted_too(data: Path) -> None:
    pacs_packed(data)
    tiny_packed(data)
    counted("pacs")
    counted("tiny-imagenet-100")
    (data / "tiny_imagenet_100" / "images.tar.xz").write_bytes(b"\xfd7zXZ\x00 cut")
    damaged("tiny-imagenet-100", "cannot be read as an archive")
    sheet(data / "pacs" / "photo.jpg", 3, 64)
    damaged("pacs", "has 4 tiles, its labels are 15")


EMPTY = {
    "imagenet-c": "imagenet-c", "PACS": "pacs", "heart_disease": "heart-disease",
    "cifar-100-python": "cifar100", "cifar-10-batches-bin": "cifar10",
    "tiny-imagenet-200": "tiny-imagenet-100", "tiny_imagenet_100": "tiny-imagenet-100",
    "fashion_mnist": "fashion-mnist", "cifar10": "cifar10", "imagenet": "imagenet-100",
    "imagenet-r": "imagenet-r", "cifar-100-binary": "cifar100", "cifar-10-batches-py": "cifar10",
}  # fmt: skip


@pytest.mark.parametrize("folder", EMPTY)
def test_an_empty_folder_holds_nothing(data: Path, folder: str) -> None:
    (data / folder).mkdir()
    damaged(EMPTY[folder], folder)


def test_two_lines_of_a_table_are_no_data_set(data: Path) -> None:
    header = "patient,node,x_coord,y_coord,tumor,center,split"
    table(data / "camelyon17_v1.0" / "metadata.csv", header, [("004", 4, 1, 2, 1, 0, 0)])
    damaged("camelyon17", 'has no rows of the split "id_val"')
    table(data / "aptos" / "train.csv", "id_code,diagnosis", [])
    damaged("aptos", "has no examples of test")


def test_one_odd_file_does_not_hide_the_other_data_sets(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "cifar10").mkdir()
    cifar10(data)
    np.savez(data / "cifar10" / "labels.npz", train=np.int64(3), test=np.int64(1))
    assert run(["list", "datasets", "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["cifar10"]["state"] == "damaged"
    assert "TypeError" in found["cifar10"]["missing"]
    assert found["digits"]["state"] == "here"


def test_an_idx_file_that_was_cut_is_damaged(data: Path) -> None:
    mnist(data)
    packed, plain = (
        data / "mnist" / name for name in ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte")
    )
    whole = packed.read_bytes()
    packed.write_bytes(whole[:-20])
    damaged("mnist", 'train-images-idx3-ubyte.gz" cannot be read')
    packed.write_bytes(whole)
    plain.write_bytes(plain.read_bytes()[:-1])
    damaged("mnist", 't10k-images-idx3-ubyte" is no idx file of bytes, or cut short')
    idx(plain, pixels(1, 784).reshape(1, 28, 28))
    damaged("mnist", "has 1 images, its labels are 2")


def test_labels_of_people_need_the_images_they_belong_to(data: Path) -> None:
    people = data / "cifar_human_labels"
    people.mkdir()
    for name, array in (("cifar10n", "worse_label"), ("cifar100n", "noisy_label")):
        labels = {"clean_label": np.zeros(4), array: np.ones(4)}
        np.savez(people / f"{name}.npz", allow_pickle=False, **labels)
    np.savez(people / "cifar10h.npz", counts=np.ones((2, 10)))
    got = row("cifar100n")
    assert got["state"] == "absent"
    assert got["lacking"] == "cifar100"
    assert got["missing"].startswith('the images of "cifar100" are not here: get it from www.cs.')
    (data / "cifar10").mkdir()
    damaged("cifar10n-worst", 'the images of "cifar10" are not here: "')
    cifar10(data)
    for name in ("cifar10", "cifar10n-worst", "cifar10h"):
        assert row(name)["sizes"] == {"train": 4, "test": 2}
    damaged("cifar10n-random1", 'has no array "random_label1"')
    cifar10(data, 5)
    damaged("cifar10", "has 4 tiles, its labels are 5")
    cifar10(data, 3)
    damaged("cifar10n-worst", 'has labels of 4 images, train of "cifar10" has 3')
    np.savez(people / "cifar10h.npz", counts=np.ones((1, 10)))
    damaged("cifar10h", 'has labels of 1 images, test of "cifar10" has 2')


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    def table_of() -> list[str]:
        assert run(["list", "datasets"]) == 0
        return capsys.readouterr().out.splitlines()

    return table_of


def test_the_table_has_the_columns_of_the_paper(
    data: Path, printed: Callable[[], list[str]]
) -> None:
    eyepacs(data)
    iwildcam(data)
    heart(data)
    lines = [line.split() for line in printed()]
    assert ["name", "#labels", "train", "val", "test", "size"] in lines
    # The validation part of its own, and the meta set where that is what it has.
    assert ["iwildcam", "182", "1", "1", "2", "224x224"] in lines
    mine = row("eyepacs")["sizes"]
    own = [str(mine[part]) for part in ("train", "meta", "test")]
    assert ["eyepacs", "2", *own, "96x96"] in lines
    assert ["(35,697)", "(2,617)", "(42,690)", "(512x512)"] in lines
    assert ["heart-disease", "2", "18", "-", "5", "-"] in lines
    assert ["digits", "10", "1,198", "-", "599", "8x8"] in lines


def test_the_table_says_what_is_damaged_or_not_complete(
    data: Path, printed: Callable[[], list[str]]
) -> None:
    (data / "imagenet-c").mkdir()
    aptos(data)
    write(data / "cifar_human_labels" / "cifar100n.npz", "")
    text = "".join("".join(printed()).split())
    assert f'imagenet-cdamaged:"{data}/imagenet-c"hasnofolders' in text
    assert "notcomplete:testhas2examples,not3,662" in text
    assert "nothere:theimagesofcifar100aremissing,getthemfromwww.cs.toronto.edu" in text


def test_json_keeps_its_keys(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "datasets", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    old = {
        "name", "summary", "classes", "sizes", "paper", "missing", "layout", "obtain", "licence",
        "citation",
    }  # fmt: skip
    assert all(old <= row.keys() for row in rows)
    assert {row["state"] for row in rows} == {"here", "absent"}
    assert {row["name"]: row["image_size"] for row in rows}["digits"] == "8x8"


@pytest.mark.parametrize("n", [2, 7, 15, 41, 303])
def test_sizes_of_a_share_are_those_of_the_split(n: int) -> None:
    labels = np.random.default_rng(n).integers(0, 3, n)
    labels[:2] = 0
    rows = take_off(labels, None, {"test": 0.2}, seed=0)
    assert held_out(labels, 0.2) == {part: len(those) for part, those in rows.items()}

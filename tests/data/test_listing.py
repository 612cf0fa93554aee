"""Which files and folders count, and as what."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from revar.data.folders import read_class_folders
from revar.data.listing import image_files
from revar.data.source import Reading, load_inputs
from revar.errors import DataWarning, InputError
from support.pictures import pixels, save

AS_THEY_ARE = Reading(image_shape=(1, 4, 4))


def folders(root: Path, *names: str) -> Path:
    """One image in each folder."""
    for name in names:
        save(root / name / "0.png", pixels(4, 4))
    return root


def test_parts_may_be_written_in_capitals(tmp_path: Path) -> None:
    folders(tmp_path, "Train/a", "Train/b", "TEST/a", "Meta/b")
    source = read_class_folders(tmp_path, Reading())
    assert source.train.names == ("Train/a/0.png", "Train/b/0.png")
    assert source.meta is not None
    assert source.meta.names == ("Meta/b/0.png",)
    assert source.tests["test"].names == ("TEST/a/0.png",)


@pytest.mark.parametrize(
    "names",
    [
        ("training/a", "training/b", "test/a"),
        ("Training/a/deep", "Testing/a"),
        ("test/a", "val/a", "other/a"),
        ("test/a", "test/b"),
        ("train/a", "Train/a"),
        ("Train", "Test"),
    ],
    ids=["training", "both", "no train", "test alone", "twice", "no classes"],
)
def test_what_looks_like_parts_is_not_taken_for_classes(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    folders(tmp_path, *names)
    with pytest.raises(InputError) as caught:
        read_class_folders(tmp_path, Reading())
    assert "\n" not in str(caught.value)
    assert f'{names[0].partition("/")[0]}"' in str(caught.value)


def test_parts_of_other_names_beside_train_are_told(tmp_path: Path) -> None:
    folders(tmp_path, "train/a", "train/b", "val/a", "train/val", "elsewhere/c")
    said = r'"val" is not read, parts are called train, meta and test: .* give ".*/val" to --on'
    with pytest.warns(DataWarning, match=said):
        source = read_class_folders(tmp_path, Reading())
    assert source.tests == {}
    assert source.splits == {}
    assert source.train.y is not None
    assert source.train.y.tolist() == ["a", "b", "val"]


def test_classes_may_be_called_as_parts_are(tmp_path: Path) -> None:
    flat = folders(tmp_path / "flat", "valid", "invalid")
    ships = folders(tmp_path / "ships", "Train", "Ship")
    for root, classes in ((flat, ["invalid", "valid"]), (ships, ["Ship", "Train"])):
        found = read_class_folders(root, Reading()).train.y
        assert found is not None
        assert found.tolist() == classes
    nested = folders(tmp_path / "nested", "control/site1", "test/site1", "test/site2")
    with pytest.warns(DataWarning, match="nested/test.* is taken for a class"):
        found = read_class_folders(nested, Reading()).train.y
    assert found is not None
    assert found.tolist() == ["control", "test", "test"]


def test_what_is_hidden_is_no_image(tmp_path: Path) -> None:
    root = folders(tmp_path / ".data", "a", "a/.ipynb_checkpoints", "a/deep/.thumbs", "b")
    save(root / "a" / "._0.png", pixels(4, 4))
    names = read_class_folders(root, Reading()).train.names
    assert names == ("a/0.png", "b/0.png")


def test_links_are_followed_and_lead_nowhere_twice(tmp_path: Path) -> None:
    store = folders(tmp_path / "store", "one", "two/deep")
    root = folders(tmp_path / "data", "a", "b")
    (root / "a" / "link").symlink_to(store / "two")
    (root / "a" / "more").symlink_to(store / "two" / "deep")
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "self").symlink_to(root / "a")
    (store / "two" / "deep" / "back").symlink_to(store / "two")
    (root / "c").symlink_to(store / "one")
    (root / "b" / "1.png").symlink_to(store / "one" / "0.png")
    names = read_class_folders(root, Reading()).train.names
    assert names == ("a/0.png", "a/link/deep/0.png", "b/0.png", "b/1.png", "c/0.png")


@pytest.mark.parametrize("name", ["1.png", "site"])
def test_a_link_to_nothing_is_an_unreadable_image(name: str, tmp_path: Path) -> None:
    folders(tmp_path, "a", "b")
    (tmp_path / "a" / name).symlink_to("/gone/away")
    (tmp_path / "a" / "notes.txt").symlink_to("/gone/notes")
    said = rf'a/{name}" cannot be read as an image: it is a link to "/gone/away", which is not'
    with pytest.raises(InputError, match=said):
        read_class_folders(tmp_path, Reading())
    with pytest.raises(InputError, match=said):
        load_inputs(str(tmp_path), AS_THEY_ARE).x[:]
    with pytest.warns(DataWarning, match=rf"1 unreadable images were skipped.*{name}"):
        source = read_class_folders(tmp_path, Reading(skip_unreadable=True))
    assert source.train.names == ("a/0.png", "b/0.png")


def test_a_class_folder_that_is_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    folders(tmp_path, "a", "b")
    (tmp_path / "c").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r'/c" is a link to a folder that is gone'):
        read_class_folders(tmp_path, Reading())


def test_a_name_that_is_not_utf8_is_shown_escaped(tmp_path: Path) -> None:
    folders(tmp_path, "a", "b")
    (tmp_path / "a" / "0.png").rename(tmp_path / "a" / os.fsdecode(b"caf\xe9.png"))
    with pytest.raises(InputError, match=r'the name of ".*/a/caf\\xe9\.png" is not UTF-8') as error:
        image_files(tmp_path)
    str(error.value).encode()


def deep(path: Path, largest: int) -> None:
    save(path, np.linspace(0, largest, 16).reshape(4, 4).astype(np.uint16))


def test_sixteen_bits_of_a_camera_of_fewer_are_told_once(tmp_path: Path) -> None:
    for i, name in enumerate(("train/a", "train/b", "test/a", "test/b")):
        deep(tmp_path / name / "0.png", 4080 - i)
    said = r'a/0\.png" has 16 bits, its largest value is 4080, and 16 levels of grey are left'
    for read in (
        lambda: read_class_folders(tmp_path, Reading()),
        lambda: load_inputs(str(tmp_path / "train"), AS_THEY_ARE),
    ):
        with pytest.warns(DataWarning, match=said) as caught:
            read()
        assert len(caught) == 1
    deep(tmp_path / "train" / "b" / "bright.png", 60000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_class_folders(tmp_path, Reading())


def test_further_pages_are_told_once(tmp_path: Path) -> None:
    from PIL import Image

    folders(tmp_path, "a", "b")
    sheets = [Image.new("L", (4, 4), shade) for shade in (0, 9, 99)]
    sheets[0].save(tmp_path / "a" / "1.tif")
    for name in ("2.tif", "3.tiff"):
        sheets[0].save(tmp_path / "b" / name, save_all=True, append_images=sheets[1:])
    with pytest.warns(DataWarning, match=r'b/2\.tif" has 3 pages, .* the first alone') as caught:
        read_class_folders(tmp_path, Reading())
    assert len(caught) == 1

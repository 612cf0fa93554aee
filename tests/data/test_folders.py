from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from revar.data import folders, stored
from revar.data.folders import common_shape, read_class_folders
from revar.data.images import decode, header
from revar.data.listing import image_files
from revar.data.source import Reading, load_source
from revar.data.stored import ImageFiles
from revar.errors import DataWarning, InputError
from support.pictures import damaged, pixels, save


def test_class_folders_become_images_labels_and_names(tmp_path: Path) -> None:
    dog = save(tmp_path / "dog" / "1.png", pixels(5, 7, 3, seed=1))
    cat = save(tmp_path / "cat" / "deep" / "2.PNG", pixels(5, 7, 3, seed=2))
    cat_bmp = save(tmp_path / "cat" / "1.bmp", pixels(5, 7, 3, seed=3))
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "readme.txt").write_text("not a class")
    (tmp_path / ".git").mkdir()
    save(tmp_path / ".git" / "hidden.png", pixels(9, 9))
    source = read_class_folders(tmp_path, Reading())
    assert source.train.y is not None
    assert source.train.y.tolist() == ["cat", "cat", "dog"]
    assert source.train.names == ("cat/1.bmp", "cat/deep/2.PNG", "dog/1.png")
    assert isinstance(source.train.x, ImageFiles)
    assert source.train.x[:].dtype == torch.uint8
    expected = np.moveaxis(np.stack([cat_bmp, cat, dog]), -1, 1)
    np.testing.assert_array_equal(source.train.x[:], expected)
    assert source.meta is None
    assert source.tests == {}
    assert source.unlabelled is None


def test_train_meta_and_test_folders_become_parts(tmp_path: Path) -> None:
    for part, classes in (("train", "ab"), ("meta", "b"), ("test", "a")):
        for i, name in enumerate(classes):
            save(tmp_path / part / name / "0.png", pixels(4, 4, seed=i + len(part)))
    save(tmp_path / "elsewhere" / "c" / "0.png", pixels(4, 4))
    source = read_class_folders(tmp_path, Reading())
    assert source.train.names == ("train/a/0.png", "train/b/0.png")
    assert source.train.y is not None
    assert source.train.y.tolist() == ["a", "b"]
    assert source.meta is not None
    assert source.meta.y is not None
    assert source.meta.y.tolist() == ["b"]
    assert set(source.tests) == {"test"}
    np.testing.assert_array_equal(source.meta.x[:][0, 0], pixels(4, 4, seed=4))
    np.testing.assert_array_equal(source.tests["test"].x[:][0, 0], pixels(4, 4, seed=4))


def test_all_parts_are_read_at_one_shape(tmp_path: Path) -> None:
    save(tmp_path / "train" / "a" / "0.png", pixels(8, 8))
    save(tmp_path / "train" / "b" / "0.png", pixels(8, 8))
    save(tmp_path / "test" / "a" / "0.png", pixels(8, 8, 3))
    source = read_class_folders(tmp_path, Reading())
    assert source.train.x.shape == (2, 3, 8, 8)
    assert source.tests["test"].x.shape == (1, 3, 8, 8)


def test_a_given_shape_is_kept(tmp_path: Path) -> None:
    save(tmp_path / "a" / "0.png", pixels(8, 8, 3))
    save(tmp_path / "b" / "0.png", pixels(8, 8, 3))
    assert read_class_folders(tmp_path, Reading(image_shape=(1, 6, 5))).train.x.shape == (
        2,
        1,
        6,
        5,
    )


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="no images in class folders: expected <class>/<image>"):
        read_class_folders(tmp_path, Reading())
    save(tmp_path / "train" / "a" / "0.png", pixels(4, 4))
    (tmp_path / "test").mkdir()
    with pytest.raises(InputError, match=r"test.* has no images in class folders"):
        read_class_folders(tmp_path, Reading())


def test_greyscale_stays_greyscale_only_if_all_are(tmp_path: Path) -> None:
    grey, colour = tmp_path / "grey.png", tmp_path / "colour.png"
    save(grey, pixels(6, 5))
    save(colour, pixels(6, 5, 3))
    bits = tmp_path / "bits.png"
    save(bits, pixels(6, 5) > 127)
    assert common_shape([grey, bits]) == (1, 6, 5)
    assert common_shape([grey, colour]) == common_shape([colour, grey]) == (3, 6, 5)


def test_one_size_is_kept_up_to_the_largest_side(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for path in paths:
        save(path, pixels(100, 224))
    assert common_shape(paths) == (1, 100, 224)
    for path in paths:
        save(path, pixels(100, 225))
    assert common_shape(paths) == (1, 100, 100)
    for path in paths:
        save(path, pixels(300, 400))
    assert common_shape(paths) == (1, 224, 224)


def test_mixed_sizes_become_squares_of_the_median_image(tmp_path: Path) -> None:
    """One large picture among many thumbnails must not blow the thumbnails up."""
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for path, side in zip(paths, (20, 20, 20, 30, 200), strict=True):
        save(path, pixels(side, side + 3))
    assert common_shape(paths) == (1, 20, 20)
    assert ImageFiles(tuple(paths), (1, 20, 20))[:].shape == (5, 1, 20, 20)


def test_pictures_taken_sideways_are_measured_upright(tmp_path: Path) -> None:
    turned, plain = tmp_path / "turned.jpg", tmp_path / "plain.jpg"
    save(turned, pixels(6, 9, 3), orientation=6)
    save(plain, pixels(9, 6, 3))
    assert common_shape([turned, plain]) == (3, 9, 6)


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n broken"])
def test_an_unreadable_image_is_named(tmp_path: Path, content: bytes) -> None:
    save(tmp_path / "a" / "0.png", pixels(4, 4))
    (tmp_path / "a" / "broken.png").write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.png.* cannot be read as an image"):
        read_class_folders(tmp_path, Reading())
    # A shape that is given needs no look at the files: they are named when they are read.
    source = read_class_folders(tmp_path, Reading(image_shape=(1, 4, 4)))
    with pytest.raises(InputError, match=r"broken\.png.* cannot be read as an image"):
        source.train.x[:]


def test_the_first_unreadable_image_is_named_in_the_order_of_the_files(tmp_path: Path) -> None:
    for name in ("b", "c", "d"):
        damaged(tmp_path / name / "0.png")
    save(tmp_path / "a" / "0.png", pixels(4, 4))
    with pytest.raises(InputError, match=r"b/0\.png"):
        read_class_folders(tmp_path, Reading())


def test_files_are_listed_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/10.png", "a.JPEG", "c.webp"):
        save(tmp_path / name, pixels(4, 4, 3))
    (tmp_path / "fake.png").mkdir()
    found = [str(path.relative_to(tmp_path)) for path in image_files(tmp_path)]
    assert found == ["a.JPEG", "b/10.png", "b/2.png", "c.webp"]
    assert image_files(tmp_path / "a.JPEG") == [tmp_path / "a.JPEG"]


# --- images that cannot be read, left out


def test_unreadable_images_are_skipped_counted_and_the_first_is_named(tmp_path: Path) -> None:
    cat = save(tmp_path / "cat" / "1.png", pixels(5, 5, seed=1))
    dog = save(tmp_path / "dog" / "2.png", pixels(5, 5, seed=2))
    damaged(tmp_path / "cat" / "0.png")
    damaged(tmp_path / "dog" / "1.png")
    # Its header is in order, so that only decoding tells.
    cut = tmp_path / "dog" / "3.png"
    save(cut, pixels(5, 5, seed=3))
    cut.write_bytes(cut.read_bytes()[:-25])
    with pytest.warns(DataWarning) as caught:
        source = read_class_folders(tmp_path, Reading(skip_unreadable=True))
    (warning,) = caught
    first = tmp_path / "cat" / "0.png"
    assert str(warning.message) == f'3 unreadable images were skipped, the first is "{first}"'
    assert source.train.names == ("cat/1.png", "dog/2.png")
    assert source.train.y is not None
    assert source.train.y.tolist() == ["cat", "dog"]
    np.testing.assert_array_equal(source.train.x[:][:, 0], np.stack([cat, dog]))


def test_every_part_counts_its_own_unreadable_images(tmp_path: Path) -> None:
    for part in ("train", "meta", "test"):
        for name in "ab":
            save(tmp_path / part / name / "0.png", pixels(4, 4, seed=len(part)))
    damaged(tmp_path / "train" / "a" / "bad.png")
    for i in range(2):
        damaged(tmp_path / "test" / "b" / f"bad{i}.png")
    with pytest.warns(DataWarning) as caught:
        source = load_source(str(tmp_path), Reading(skip_unreadable=True))
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2
    assert messages[0].startswith("1 unreadable")
    assert "train" in messages[0]
    assert messages[1].startswith("2 unreadable")
    assert "test" in messages[1]
    assert [len(part) for part in (source.train, source.tests["test"])] == [2, 2]


def test_nothing_is_said_where_every_image_can_be_read(tmp_path: Path) -> None:
    for name in "ab":
        save(tmp_path / name / "0.png", pixels(4, 4))
    assert len(read_class_folders(tmp_path, Reading(skip_unreadable=True)).train) == 2


def test_folders_without_one_readable_image_are_refused(tmp_path: Path) -> None:
    damaged(tmp_path / "a" / "0.png")
    damaged(tmp_path / "b" / "0.png")
    with pytest.raises(InputError, match=r"none of 2 files can be read, .*a/0\.png"):
        read_class_folders(tmp_path, Reading(skip_unreadable=True))
    given = Reading(skip_unreadable=True, image_shape=(1, 4, 4))
    with (
        pytest.warns(DataWarning, match="2 unreadable"),
        pytest.raises(InputError, match=r"none of 2 images can be read, .*a/0\.png"),
    ):
        read_class_folders(tmp_path, given)


# --- many files


def test_many_files_are_listed_by_their_headers_and_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "picture.png"
    save(picture, pixels(4, 4))
    root = tmp_path / "data"
    n = 20_000
    for i in range(n):
        folder = root / f"class{i % 20}"
        if i < 20:
            folder.mkdir(parents=True)
        # A file has a limited number of names; this many are allowed everywhere.
        if i % 10_000 == 0:
            original = folder / f"{i}.png"
            original.write_bytes(picture.read_bytes())
        else:
            os.link(original, folder / f"{i}.png")
    calls: list[str] = []

    def counted_header(path: Path) -> tuple[int, int, bool]:
        calls.append("header")
        return header(path)

    def counted_decode(path: Path, shape: tuple[int, ...]) -> object:
        calls.append("decode")
        return decode(path, shape)

    monkeypatch.setattr(folders, "header", counted_header)
    monkeypatch.setattr(folders, "decode", counted_decode)
    monkeypatch.setattr(stored, "decode", counted_decode)
    source = load_source(str(root))
    assert len(source.train) == n
    assert Counter(calls) == {"header": n}
    resident = stored.settle(source.train.x, "resident", torch.device("cpu"))
    assert isinstance(resident, torch.Tensor)
    seen = stored.scan(resident)
    assert len(set(seen.hashes.tolist())) == 1
    assert Counter(calls) == {"header": n, "decode": n}


def test_threads_that_read_files_leave_the_filters_of_warnings_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    save(path, pixels(4, 4))
    before, kept = warnings.filters, list(warnings.filters)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        common_shape([path] * 2000)
        ImageFiles((path,) * 2000, (1, 4, 4))[:]
    finally:
        sys.setswitchinterval(usual)
    assert warnings.filters is before
    assert list(warnings.filters) == kept

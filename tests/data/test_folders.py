from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from revar.data.folders import common_shape, image_files, read_class_folders, read_images
from revar.errors import InputError
from support.pictures import pixels, save


def test_class_folders_become_images_labels_and_names(tmp_path: Path) -> None:
    dog = save(tmp_path / "dog" / "1.png", pixels(5, 7, 3, seed=1))
    cat = save(tmp_path / "cat" / "deep" / "2.PNG", pixels(5, 7, 3, seed=2))
    cat_bmp = save(tmp_path / "cat" / "1.bmp", pixels(5, 7, 3, seed=3))
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "readme.txt").write_text("not a class")
    (tmp_path / ".git").mkdir()
    save(tmp_path / ".git" / "hidden.png", pixels(9, 9))
    source = read_class_folders(tmp_path)
    assert source.train.y is not None
    assert source.train.y.tolist() == ["cat", "cat", "dog"]
    assert source.train.names == ("cat/1.bmp", "cat/deep/2.PNG", "dog/1.png")
    assert source.train.x.dtype == np.uint8
    expected = np.moveaxis(np.stack([cat_bmp, cat, dog]), -1, 1)
    np.testing.assert_array_equal(source.train.x, expected)
    assert source.meta is None
    assert source.tests == {}
    assert source.unlabelled is None


def test_train_meta_and_test_folders_become_parts(tmp_path: Path) -> None:
    for part, classes in (("train", "ab"), ("meta", "b"), ("test", "a")):
        for i, name in enumerate(classes):
            save(tmp_path / part / name / "0.png", pixels(4, 4, seed=i + len(part)))
    save(tmp_path / "elsewhere" / "c" / "0.png", pixels(4, 4))
    source = read_class_folders(tmp_path)
    assert source.train.names == ("train/a/0.png", "train/b/0.png")
    assert source.train.y is not None
    assert source.train.y.tolist() == ["a", "b"]
    assert source.meta is not None
    assert source.meta.y is not None
    assert source.meta.y.tolist() == ["b"]
    assert set(source.tests) == {"test"}
    np.testing.assert_array_equal(source.meta.x[0, 0], pixels(4, 4, seed=4))
    np.testing.assert_array_equal(source.tests["test"].x[0, 0], pixels(4, 4, seed=4))


def test_all_parts_are_read_at_one_shape(tmp_path: Path) -> None:
    save(tmp_path / "train" / "a" / "0.png", pixels(8, 8))
    save(tmp_path / "train" / "b" / "0.png", pixels(8, 8))
    save(tmp_path / "test" / "a" / "0.png", pixels(8, 8, 3))
    source = read_class_folders(tmp_path)
    assert source.train.x.shape == (2, 3, 8, 8)
    assert source.tests["test"].x.shape == (1, 3, 8, 8)


def test_a_given_shape_is_kept(tmp_path: Path) -> None:
    save(tmp_path / "a" / "0.png", pixels(8, 8, 3))
    save(tmp_path / "b" / "0.png", pixels(8, 8, 3))
    assert read_class_folders(tmp_path, (1, 6, 5)).train.x.shape == (2, 1, 6, 5)


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="no images in class folders: expected <class>/<image>"):
        read_class_folders(tmp_path)
    save(tmp_path / "train" / "a" / "0.png", pixels(4, 4))
    (tmp_path / "test").mkdir()
    with pytest.raises(InputError, match=r"test.* has no images in class folders"):
        read_class_folders(tmp_path)


def test_greyscale_stays_greyscale_only_if_all_are(tmp_path: Path) -> None:
    grey, colour = tmp_path / "grey.png", tmp_path / "colour.png"
    values = save(grey, pixels(6, 5))
    save(colour, pixels(6, 5, 3))
    bits = tmp_path / "bits.png"
    save(bits, pixels(6, 5) > 127)
    assert common_shape([grey, bits]) == (1, 6, 5)
    assert common_shape([grey, colour]) == common_shape([colour, grey]) == (3, 6, 5)
    read = read_images([grey, colour], (3, 6, 5))
    for channel in range(3):
        np.testing.assert_array_equal(read[0, channel], values)
    np.testing.assert_array_equal(read_images([bits], (1, 6, 5))[0, 0], (values > 127) * 255)


def test_colour_read_as_greyscale_is_its_luma(tmp_path: Path) -> None:
    values = save(tmp_path / "c.png", pixels(6, 5, 3))
    luma = values @ np.array([0.299, 0.587, 0.114])
    read = read_images([tmp_path / "c.png"], (1, 6, 5))[0, 0]
    np.testing.assert_allclose(read, luma, atol=1)


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
    assert read_images(paths, (1, 20, 20)).shape == (5, 1, 20, 20)


def test_resizing_keeps_what_a_picture_shows(tmp_path: Path) -> None:
    halves = np.zeros((40, 60), dtype=np.uint8)
    halves[:, 30:] = 200
    save(tmp_path / "h.png", halves)
    read = read_images([tmp_path / "h.png"], (1, 10, 12))[0, 0]
    assert (read[:, :5] == 0).all()
    assert (read[:, 7:] == 200).all()


def test_the_orientation_tag_of_cameras_changes_nothing(tmp_path: Path) -> None:
    values = pixels(6, 9, 3)
    tag = Image.Exif()
    tag[0x0112] = 6
    save(tmp_path / "turned.png", values, exif=tag)
    save(tmp_path / "plain.png", values)
    paths = [tmp_path / "turned.png", tmp_path / "plain.png"]
    assert common_shape(paths) == (3, 6, 9)
    turned, plain = read_images(paths, (3, 6, 9))
    np.testing.assert_array_equal(turned, plain)


def test_transparency_and_palettes_are_read_as_colour(tmp_path: Path) -> None:
    values = pixels(4, 4, 4)
    values[..., 3] = 255
    save(tmp_path / "alpha.png", values)
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, 250, 120, 10])
    palette.save(tmp_path / "palette.gif")
    paths = [tmp_path / "alpha.png", tmp_path / "palette.gif"]
    assert common_shape(paths) == (3, 4, 4)
    read = read_images(paths, (3, 4, 4))
    np.testing.assert_array_equal(read[0], np.moveaxis(values[..., :3], -1, 0))
    assert read[1, :, 2, 3].tolist() == [250, 120, 10]


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits_are_scaled_to_eight_and_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    path = tmp_path / f"deep{suffix}"
    save(path, values)
    assert common_shape([path]) == (1, 8, 8)
    np.testing.assert_array_equal(read_images([path], (1, 8, 8))[0, 0], values // 256)
    np.testing.assert_array_equal(read_images([path], (3, 8, 8))[0, 2], values // 256)


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n broken"])
def test_an_unreadable_image_is_named(tmp_path: Path, content: bytes) -> None:
    save(tmp_path / "a" / "0.png", pixels(4, 4))
    (tmp_path / "a" / "broken.png").write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.png.* cannot be read as an image"):
        read_class_folders(tmp_path)
    with pytest.raises(InputError, match=r"broken\.png.* cannot be read as an image"):
        read_class_folders(tmp_path, (1, 4, 4))


def test_a_truncated_image_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    save(path, pixels(64, 64, 3))
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(InputError, match=r"cut\.jpg.* cannot be read"):
        read_images([path], (3, 64, 64))


def test_files_are_listed_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/10.png", "a.JPEG", "c.webp"):
        save(tmp_path / name, pixels(4, 4, 3))
    (tmp_path / "fake.png").mkdir()
    found = [str(path.relative_to(tmp_path)) for path in image_files(tmp_path)]
    assert found == ["a.JPEG", "b/10.png", "b/2.png", "c.webp"]
    assert image_files(tmp_path / "a.JPEG") == [tmp_path / "a.JPEG"]

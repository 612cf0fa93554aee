"""Packed images: sheets of tiles, archives, arrays, and batches of CIFAR."""

from __future__ import annotations

import pickle  # noqa: TID251  (to imitate the published files)
import struct
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from revar.data import cifar
from revar.data.datasets import dataset_spec
from revar.data.imagenet import tiny_packed
from revar.data.packed import archived_images, labelled_arrays, sheet_rows, sheet_tiles, tiles
from revar.data.pickles import read_batch
from revar.data.published import locate
from revar.data.soft import soft_labels
from revar.data.source import load_source
from revar.errors import DataWarning, InputError
from support.layouts import sheet, table, write
from support.pictures import pixels, save


def test_rows_of_a_sheet_come_in_the_order_of_its_tiles(tmp_path: Path) -> None:
    rows = [("a.jpg", 1, "p"), ("b", 0, "q"), ("a.jpg", 0, "r"), ("a.jpg", 2, "s")]
    labels = table(tmp_path / "labels.csv", "file,index,label", rows)
    assert sheet_rows(labels, "a.jpg", "label")["label"].tolist() == ["r", "p", "s"]
    assert sheet_rows(labels, "b.jpg", "label")["label"].tolist() == ["q"]
    with pytest.raises(InputError, match=r'not one row for every tile of "c\.jpg"'):
        sheet_rows(labels, "c.jpg", "label")
    twice = table(tmp_path / "twice.csv", "file,index,label", [("a", 0, 1), ("a", 0, 2)])
    with pytest.raises(InputError, match="not one row for every tile"):
        sheet_rows(twice, "a.jpg", "label")


def test_a_sheet_gives_as_many_tiles_as_it_has_labels(tmp_path: Path) -> None:
    cut = sheet(tmp_path / "s.jpg", 6, 5)
    np.testing.assert_array_equal(sheet_tiles(tmp_path / "s.jpg", 5, 6), cut)
    with pytest.raises(InputError, match="has 8 tiles, its labels are 9"):
        sheet_tiles(tmp_path / "s.jpg", 5, 9)
    with pytest.raises(InputError, match=r'none\.jpg" is missing'):
        sheet_tiles(tmp_path / "none.jpg", 5, 1)
    with pytest.raises(InputError, match="20x10 px does not hold tiles of 7 px"):
        tiles(tmp_path / "s.jpg", 7)


def archive(path: Path, images: dict[str, NDArray[np.uint8]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as file:
        for name, values in images.items():
            content = BytesIO()
            Image.fromarray(values).save(content, format="PNG")
            member = tarfile.TarInfo(name)
            member.size = content.tell()
            content.seek(0)
            file.addfile(member, content)
    return path


def test_images_of_an_archive_are_decoded_in_its_order(tmp_path: Path) -> None:
    grey, colour = pixels(4, 4, seed=1), pixels(4, 4, 3, seed=2)
    path = archive(tmp_path / "a.tar.xz", {"v/x.JPEG": grey, "v/y.JPEG": colour, "t/z.JPEG": grey})
    names, images = archived_images(path, (3, 4, 4), lambda name: name.startswith("v/"))
    assert names == ["v/x.JPEG", "v/y.JPEG"]
    np.testing.assert_array_equal(images[0], np.repeat(grey[..., None], 3, axis=-1))
    np.testing.assert_array_equal(images[1], colour)
    assert len(archived_images(path, (3, 4, 4))[0]) == 3
    with pytest.raises(InputError, match="holds none of the images"):
        archived_images(path, (3, 4, 4), lambda name: False)
    with pytest.raises(InputError, match="cannot be read as an archive"):
        archived_images(write(tmp_path / "b.tar.xz", "no archive"), (3, 4, 4))


def test_tiny_imagenet_from_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    folder = tmp_path / "tiny_imagenet_100"
    image = pixels(64, 64, 3)
    names = ["train/n01/a.JPEG", "train/n02/b.JPEG", "val/n02/c.JPEG"]
    archive(folder / "images.tar.xz", dict.fromkeys(names, image))
    table(folder / "classes.csv", "label,wnid", [(0, "n01"), (1, "n02")])
    with pytest.warns(DataWarning, match="not complete"):
        source = load_source("tiny-imagenet-100")
    assert np.asarray(source.train.y).tolist() == ["n01", "n02"]
    assert np.asarray(source.tests["test"].y).tolist() == ["n02"]
    np.testing.assert_array_equal(source.tests["test"].x[0], image)
    table(folder / "classes.csv", "label,wnid", [(0, "n01")])
    with pytest.raises(InputError, match=r'images of "n02", which classes\.csv does not have'):
        tiny_packed(locate(dataset_spec("tiny-imagenet-100")))


def test_tiny_imagenet_as_packed(real_data: Path) -> None:
    """A class of it: all would take seconds."""
    folder = real_data / "tiny_imagenet_100"
    names, images = archived_images(
        folder / "images.tar.xz", (3, 64, 64), lambda name: "/n01443537/" in name
    )
    assert images.shape == (150, 64, 64, 3)
    assert sum(name.startswith("train/") for name in names) == 100
    # Goldfish are red.
    red, green, blue = images.mean((0, 1, 2))
    assert red > green > blue


def test_arrays_are_found_by_their_names_and_axes(tmp_path: Path) -> None:
    x, y = pixels(6, 4).reshape(6, 2, 2), np.arange(6)
    path = tmp_path / "u.npz"
    np.savez(path, train_x=x, train_y=y, x_test=x[:2], y_test=y[:2])
    got = labelled_arrays(path)
    np.testing.assert_array_equal(got["train"][0], x)
    assert got["test"][1].tolist() == [0, 1]
    np.savez(path, train_x=x, train_y=y[:3], x_test=x, y_test=y)
    with pytest.raises(InputError, match=r"for train \(it has train_x \(6, 2, 2\), train_y"):
        labelled_arrays(path)


# --- CIFAR


_Pickler: Any = pickle._Pickler


class _AsPython2(_Pickler):  # type: ignore[misc]
    """Writes bytes as the strings of Python 2, in which the batches are published."""

    dispatch: ClassVar[dict[Any, Any]] = dict(_Pickler.dispatch)

    def save_bytes(self, value: bytes) -> None:
        self.write(b"T" + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes


def python_batch(path: Path, content: dict[bytes, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = BytesIO()
    _AsPython2(file, protocol=2).dump(content)
    # The array's module had another name then, and its pixels were such a string too.
    path.write_bytes(file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))


def rows(n: int, seed: int) -> NDArray[np.uint8]:
    return pixels(n, 3072, seed=seed)


def test_the_python_version_of_cifar_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    folder = tmp_path / "cifar-10-batches-py"
    for k, name in enumerate(("test_batch", *(f"data_batch_{k}" for k in range(1, 6)))):
        python_batch(folder / name, {b"data": rows(2, k), b"labels": [k, 9 - k]})
    with pytest.warns(DataWarning, match="not complete"):
        source = load_source("cifar10")
    assert np.asarray(source.train.y).tolist() == [1, 8, 2, 7, 3, 6, 4, 5, 5, 4]
    np.testing.assert_array_equal(
        source.train.x[2], rows(2, 2)[0].reshape(3, 32, 32).transpose(1, 2, 0)
    )
    assert np.asarray(source.tests["test"].y).tolist() == [0, 9]
    python_batch(folder / "test_batch", {b"data": rows(2, 0), b"labels": [1]})
    with pytest.raises(InputError, match='expected "data" and "labels"'):
        load_source("cifar10")
    (folder / "test_batch").unlink()
    with pytest.raises(InputError, match=r"test_batch\" is missing"):
        load_source("cifar10")


def test_both_versions_of_cifar_100_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    python = tmp_path / "cifar-100-python"
    batch = {b"data": rows(5, 0), b"fine_labels": [99, 1, 2, 3, 4], b"coarse_labels": [0] * 5}
    python_batch(python / "train", batch)
    python_batch(python / "test", {b"data": rows(1, 1), b"fine_labels": [7], b"coarse_labels": [0]})
    with pytest.warns(DataWarning, match="train has 5 examples"):
        from_python = load_source("cifar100")
    binary = tmp_path / "cifar-100-binary"
    binary.mkdir()
    # Coarse label, fine label, planes.
    stored = np.hstack([np.zeros((5, 1)), [[99], [1], [2], [3], [4]], rows(5, 0)])
    stored.astype(np.uint8).tofile(binary / "train.bin")
    np.hstack([[[0]], [[7]], rows(1, 1)]).astype(np.uint8).tofile(binary / "test.bin")
    monkeypatch.setattr(cifar, "_BATCH", 1)
    with pytest.warns(DataWarning, match="train has 5 examples"):
        from_binary = load_source("cifar100")
    for one, other in (
        (from_python.train, from_binary.train),
        (from_python.tests["test"], from_binary.tests["test"]),
    ):
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(np.asarray(one.y), np.asarray(other.y))
    # And with the labels of people.
    clean = np.asarray(from_binary.train.y)
    labels = tmp_path / "cifar_human_labels" / "cifar100n.npz"
    labels.parent.mkdir()
    np.savez(labels, clean_label=clean, noisy_label=(clean + 1) % 100)
    with pytest.warns(DataWarning, match='"cifar100n" is not complete'):
        noisy = load_source("cifar100n")
    assert np.asarray(noisy.train.y).tolist() == [0, 2, 3, 4, 5]
    assert np.asarray(noisy.tests["test"].y).tolist() == [7]


class _Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("harm was done",))


def test_a_pickle_that_calls_anything_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({"data": _Harm()}))
    with pytest.raises(InputError, match=r"asks for builtins\.print"):
        read_batch(path)
    path.write_bytes(pickle.dumps([1]))
    with pytest.raises(InputError, match="holds no dictionary"):
        read_batch(path)
    assert "harm" not in capsys.readouterr().out


def test_human_noise_of_cifar_100_is_as_published(real_data: Path) -> None:
    """Wei et al. 2022, table 1: 40.20 % of the fine labels."""
    with np.load(real_data / "cifar_human_labels" / "cifar100n.npz") as arrays:
        wrong = np.mean(arrays["clean_label"] != arrays["noisy_label"])
    assert wrong == pytest.approx(0.4020, abs=5e-5)


def test_soft_labels_belong_to_the_test_images(real_data: Path) -> None:
    """Peterson et al. 2019: 47 to 63 answers an image; most agree with the label."""
    shares = soft_labels("cifar10h")
    assert shares.shape == (10_000, 10)
    np.testing.assert_allclose(shares.sum(1), 1.0)
    with np.load(real_data / "cifar10" / "labels.npz") as labels:
        test = labels["test"]
    assert np.mean(shares.argmax(1) == test) == pytest.approx(0.992, abs=5e-4)
    assert 0.9 < shares[np.arange(10_000), test].mean() < 1.0


def test_soft_labels_of_the_authors_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    with pytest.raises(InputError, match='unknown set of soft labels "cifar10"'):
        soft_labels("cifar10")
    with pytest.raises(InputError, match=r"get it from github\.com/jcpeterson/cifar-10h"):
        soft_labels()
    counts = np.zeros((10_000, 10), dtype=np.int64)
    counts[:, 3], counts[:, 5] = 3, 1
    np.save(tmp_path / "cifar10h-counts.npy", counts)
    assert soft_labels()[17].tolist() == [0, 0, 0, 0.75, 0, 0.25, 0, 0, 0, 0]
    np.save(tmp_path / "cifar10h-counts.npy", counts[:5])
    with pytest.raises(InputError, match="has not the votes for 10,000 images"):
        soft_labels()
    counts[4] = 0
    np.save(tmp_path / "cifar10h-counts.npy", counts)
    with pytest.raises(InputError, match="has not the votes"):
        soft_labels()
    (tmp_path / "cifar10h-counts.npy").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is no array of numbers"):
        soft_labels()


def test_pacs_goes_from_photos_to_paintings(real_data: Path) -> None:
    source = load_source("pacs")
    assert set(source.tests) == {"test", "art_painting"}
    train, test = source.train, source.tests["test"]
    assert (train.x.shape, test.x.shape) == ((1_336, 64, 64, 3), (334, 64, 64, 3))
    assert not set(train.names or ()) & set(test.names or ())
    ours, theirs = (
        np.unique(np.asarray(part.y), return_counts=True)[1] / len(part) for part in (train, test)
    )
    np.testing.assert_allclose(ours, theirs, atol=3e-3)
    everything = (*(train.names or ()), *(test.names or ()))
    assert {name.partition("/")[0] for name in everything} == {"photo"}
    painted = source.tests["art_painting"]
    assert {name.partition("/")[0] for name in painted.names or ()} == {"art_painting"}
    for part in (train, painted):
        for name, label in zip(part.names or (), np.asarray(part.y).tolist(), strict=True):
            assert name.split("/")[1] == label


def test_domains_of_pacs_are_read_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    for name in ("photo", "art_painting", "cartoon", "sketch"):
        save(tmp_path / "PACS" / name / "dog" / f"{name}.png", pixels(8, 8, 3))
    for name in ("art-painting", "cartoon", "sketch"):
        with pytest.warns(DataWarning, match="not complete"):
            source = load_source(f"pacs-{name}")
        assert source.train.names == (f"dog/{name.replace('-', '_')}.png",)
        assert source.train.x.shape == (1, 3, 224, 224)
        assert not source.tests

"""CIFAR-10, CIFAR-10N and Fashion-MNIST from the folder that REVAR_DATA names."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from revar.cli import run
from revar.data import cifar
from revar.data.cifar import Human, human_labels
from revar.data.fashion import fashion_mnist, read_idx
from revar.data.packed import tiles
from revar.data.source import load_source
from revar.errors import DataWarning, InputError
from revar.registry import DATASETS
from support.pictures import pixels, save

NAMES = [entry.name for entry in DATASETS if not entry.target]


def clean_labels(real_data: Path) -> NDArray[np.int64]:
    with np.load(real_data / "cifar10" / "labels.npz") as labels:
        train: NDArray[np.int64] = labels["train"].astype(np.int64)
    return train


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("aggregate", 0.0901),
        ("random1", 0.1723),
        ("random2", 0.1812),
        ("random3", 0.1764),
        ("worst", 0.4021),
    ],
)
def test_people_are_wrong_as_often_as_published(kind: Human, wrong: float, real_data: Path) -> None:
    """Wei et al. 2022, table 1; it has 9.03 % for the majority, the released labels 9.01 %."""
    clean = clean_labels(real_data)
    noisy = human_labels(kind, clean)
    assert noisy.dtype == np.int64
    assert np.mean(noisy != clean) == pytest.approx(wrong, abs=5e-5)


def test_the_worst_label_is_wrong_wherever_one_of_the_three_is(real_data: Path) -> None:
    clean = clean_labels(real_data)
    three = np.stack([human_labels(k, clean) for k in ("random1", "random2", "random3")])
    worst = human_labels("worst", clean)
    np.testing.assert_array_equal(worst != clean, (three != clean).any(0))


def test_labels_in_another_order_are_refused(real_data: Path) -> None:
    with pytest.raises(InputError, match="training images in another order"):
        human_labels("worst", clean_labels(real_data)[::-1])


def test_cifar_has_its_images_with_labels_of_people_or_its_own(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = load_source("cifar10n-worst")
    train, test = source.train, source.tests["test"]
    assert (train.x.shape, train.x.dtype) == ((50_000, 32, 32, 3), np.uint8)
    assert test.x.shape == (10_000, 32, 32, 3)
    # The published channel means.
    np.testing.assert_allclose(
        train.x[::10].mean((0, 1, 2)) / 255, [0.491, 0.482, 0.447], atol=4e-3
    )
    clean = clean_labels(real_data)
    assert train.y is not None
    assert np.mean(train.y != clean) == pytest.approx(0.4021, abs=5e-5)
    assert test.y is not None
    assert np.bincount(test.y).tolist() == [1000] * 10
    monkeypatch.setattr(cifar, "_tiled", lambda folder, batch: (train.x[:2], clean[:2]))
    with pytest.warns(DataWarning, match="train has 10 examples, not 50,000"):
        plain = load_source("cifar10")
    assert plain.train.y is not None
    assert plain.train.y.tolist() == clean[:2].tolist() * 5


def test_the_binary_version_of_cifar_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    monkeypatch.setattr(cifar, "_BATCH", 3)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    rows: dict[str, NDArray[np.uint8]] = {}
    for name in ("test_batch", *(f"data_batch_{k}" for k in range(1, 6))):
        rows[name] = pixels(3, 3073, seed=len(rows))
        rows[name][:, 0] %= 10
        rows[name].tofile(folder / f"{name}.bin")
    with pytest.warns(DataWarning, match="not complete"):
        source = load_source("cifar10")
    assert source.train.x.shape == (15, 32, 32, 3)
    row = rows["data_batch_2"][1]
    # Label, then the planes of red, green and blue.
    assert source.train.y is not None
    assert source.train.y[4] == row[0]
    np.testing.assert_array_equal(source.train.x[4, 5, 7], row[1:].reshape(3, 32, 32)[:, 5, 7])
    test = source.tests["test"]
    assert test.y is not None
    np.testing.assert_array_equal(test.y, rows["test_batch"][:, 0])
    (folder / "data_batch_4.bin").write_bytes(b"short")
    with pytest.raises(InputError, match=r"data_batch_4\.bin\" is missing or not a batch of 3 im"):
        load_source("cifar10")


def test_tiles_are_read_row_by_row(tmp_path: Path) -> None:
    sheet = save(tmp_path / "t.png", pixels(8, 12, 3))
    got = tiles(tmp_path / "t.png", 4)
    assert got.shape == (6, 4, 4, 3)
    np.testing.assert_array_equal(got[0], sheet[:4, :4])
    np.testing.assert_array_equal(got[2], sheet[:4, 8:])
    np.testing.assert_array_equal(got[4], sheet[4:, 4:8])


def test_fashion_mnist_is_as_published(real_data: Path) -> None:
    source = fashion_mnist()
    train, test = source.train, source.tests["test"]
    assert (train.x.shape, test.x.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert train.y is not None
    assert test.y is not None
    assert np.bincount(train.y).tolist() == [6000] * 10
    assert np.bincount(test.y).tolist() == [1000] * 10
    assert train.x.mean() / 255 == pytest.approx(0.2860, abs=1e-4)


def idx(shape: tuple[int, ...], values: bytes, kind: int = 8) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    return bytes((0, 0, kind, len(shape))) + sizes + values


def test_idx_files_are_read_compressed_or_not(tmp_path: Path) -> None:
    content = idx((2, 3), bytes(range(6)))
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    for name in ("a", "a.gz"):
        assert read_idx(tmp_path / name).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        b"hello, I am no idx file",
        idx((2, 3), bytes(5)),
        idx((2, 3), bytes(7)),
        idx((2,), bytes(8), kind=0x0D),
        idx((), b""),
    ],
)
def test_what_is_no_idx_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(InputError, match='a" is no idx file of bytes, or cut short'):
        read_idx(path)
    packed = tmp_path / "b.gz"
    for damaged in (content, gzip.compress(content)[:-9]):
        packed.write_bytes(damaged)
        with pytest.raises(InputError, match=r'b\.gz" '):
            read_idx(packed)


@pytest.mark.parametrize("name", NAMES)
def test_data_that_is_not_there_is_one_clear_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(NAMES) == 33
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REVAR_DATA", raising=False)
    assert run(["train", "--data", name]) == 2
    error = capsys.readouterr().err
    assert f'dataset "{name}" is read from the folder REVAR_DATA, which is not set' in error
    assert error.count("\n") == 1
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    assert run(["train", "--data", name]) == 2
    error = capsys.readouterr().err
    assert f'dataset "{name}": REVAR_DATA={tmp_path} has no "' in error
    assert ": get it from " in error
    assert " and lay it out as " in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--data", "cifar10"],
        ["list", "datasets"],
        ["paper", "main", "--scale", "smoke", "--out", "tables"],
    ],
    ids=lambda words: words[0],
)
def test_a_variable_that_names_no_folder_is_told(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    for wrong in ("gone", "file"):
        monkeypatch.setenv("REVAR_DATA", str(tmp_path / wrong))
        assert run(words) == 2
        error = capsys.readouterr().err
        assert f"REVAR_DATA={tmp_path / wrong} is no folder: correct it, or unset it" in error
        assert error.count("\n") == 1


def test_missing_pictures_and_arrays_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    with pytest.raises(InputError, match=r'test_batch\.webp" is missing'):
        load_source("cifar10")
    (tmp_path / "cifar_human_labels").mkdir()
    np.savez(tmp_path / "cifar_human_labels" / "cifar10n.npz", clean_label=np.zeros(3))
    with pytest.raises(InputError, match=r'no array "worse_label" \(it has clean_label\)'):
        human_labels("worst", np.zeros(3, dtype=np.int64))

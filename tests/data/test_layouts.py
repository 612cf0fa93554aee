"""Data sets that we do not hold: their layout on disk, imitated in small."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from revar.data.handwriting import resized
from revar.data.readers import labelled_images
from revar.data.source import Source, load_source
from revar.errors import DataWarning, InputError
from revar.library.classes import IMAGENET_100
from support.layouts import class_tree, idx, table, write
from support.pictures import pixels, save


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    return tmp_path


def read(name: str) -> Source:
    with pytest.warns(DataWarning, match="is not complete"):
        return load_source(name)


def labels(values: object) -> list[object]:
    found: list[object] = np.asarray(values).tolist()
    return found


def test_imagenet_and_its_hundred_classes(data: Path) -> None:
    one, two = sorted(IMAGENET_100)[:2]
    class_tree(data / "imagenet" / "train", {"n00000001": 2, one: 2, two: 1})
    class_tree(data / "imagenet" / "val", {"n00000001": 1, two: 1})
    (data / "imagenet" / "train" / one / "notes.txt").write_text("no image")
    whole, hundred = read("imagenet-1k"), read("imagenet-100")
    assert labels(whole.train.y) == ["n00000001"] * 2 + [one] * 2 + [two]
    assert labels(whole.tests["test"].y) == ["n00000001", two]
    assert whole.train.x.shape == (5, 3, 224, 224)
    assert labels(hundred.train.y) == [one, one, two]
    assert labels(hundred.tests["test"].y) == [two]
    assert hundred.train.x[[0]].shape == (1, 3, 224, 224)
    # A folder of its own goes first.
    class_tree(data / "imagenet100" / "train", {"a": 1, "b": 1})
    class_tree(data / "imagenet100" / "val", {"a": 1})
    assert labels(read("imagenet-100").train.y) == ["a", "b"]


def test_a_missing_part_is_named(data: Path) -> None:
    class_tree(data / "imagenet" / "train", {"n00000001": 1})
    with pytest.raises(InputError, match=r'val" is missing'):
        load_source("imagenet-1k")
    (data / "imagenet" / "val").mkdir()
    with pytest.raises(InputError, match="no images in class folders"):
        load_source("imagenet-1k")


@pytest.mark.parametrize("name", ["imagenet-a", "imagenet-r"])
def test_shifted_test_sets_of_imagenet(data: Path, name: str) -> None:
    class_tree(data / name, {"n01": 1, "n02": 2})
    write(data / name / "README.txt", "as it unpacks")
    source = read(name)
    assert labels(source.train.y) == ["n01", "n02", "n02"]
    assert not source.tests


def test_corruptions_and_severities_of_imagenet_c(data: Path) -> None:
    root = data / "imagenet-c"
    for corruption, severity, count in (("fog", 3, 1), ("fog", 5, 2), ("gaussian_noise", 3, 3)):
        class_tree(root / corruption / str(severity), {"n01": count})
    class_tree(root / "speckle_noise" / "1", {"n01": 7})
    source = read("imagenet-c")
    assert len(source.train) == 6
    assert {name: len(part) for name, part in source.splits.items()} == {
        "fog-3": 1,
        "fog-5": 2,
        "gaussian_noise-3": 3,
    }
    # Only that folder is looked at.
    one = load_source("imagenet-c:fog-5")
    assert len(one.train) == 2
    assert one.train.names is not None
    assert all(path.parts[-4:-2] == ("fog", "5") for path in one.train.x.paths)
    with pytest.raises(InputError, match='unknown part of imagenet-c "fogg-5"'):
        load_source("imagenet-c:fogg-5")
    (data / "imagenet-c").rename(data / "other")
    (data / "imagenet-c").mkdir()
    with pytest.raises(InputError, match="no folders <corruption>/<severity>"):
        load_source("imagenet-c")


def test_tiny_imagenet_as_it_unpacks(data: Path) -> None:
    root = data / "tiny-imagenet-200"
    class_tree(root / "train", {"n01": 1, "n02": 2, "n03": 3, "n04": 1}, below="images")
    rows = [("val_0.JPEG", "n03"), ("val_1.JPEG", "n02"), ("val_2.JPEG", "n01")]
    write(
        root / "val" / "val_annotations.txt",
        "".join(f"{file}\t{label}\t0\t0\t62\t62\n" for file, label in rows),
    )
    for file, _ in rows:
        save(root / "val" / "images" / file, pixels(8, 8, 3))
    source = read("tiny-imagenet-100")
    # Every second class of the four.
    assert labels(source.train.y) == ["n01"] + ["n03"] * 3
    assert labels(source.tests["test"].y) == ["n03", "n01"]
    assert source.tests["test"].x[[0, 1]].shape == (2, 3, 64, 64)


def camelyon(data: Path) -> None:
    header = ",patient,node,x_coord,y_coord,tumor,slide,center,split"
    rows = [
        (0, "004", 4, 3328, 21792, 1, 0, 0, 0),
        (1, "004", 4, 3200, 22272, 0, 0, 0, 1),
        (2, "020", 0, 32, 64, 1, 10, 1, 0),
        (3, "042", 3, 96, 32, 0, 23, 2, 1),
    ]
    table(data / "camelyon17_v1.0" / "metadata.csv", header, rows)
    first = "patches/patient_004_node_4/patch_patient_004_node_4_x_3328_y_21792.png"
    save(data / "camelyon17_v1.0" / first, pixels(96, 96, 3))


def test_camelyon_by_its_metadata(data: Path) -> None:
    camelyon(data)
    source = read("camelyon17")
    assert len(source.train) == 1
    assert source.train.x[[0]].shape == (1, 3, 96, 96)
    assert labels(source.train.groups) == ["004"]
    # Hospitals 1 and 2 are the shifted ones, whatever the column of splits says.
    assert {name: labels(part.y) for name, part in source.splits.items()} == {
        "id_val": [0],
        "val": [1],
    }
    test = source.tests["test"]
    assert test.names == ("patches/patient_042_node_3/patch_patient_042_node_3_x_96_y_32.png",)


def test_the_package_of_wilds_has_the_last_word_on_splits(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    camelyon(data)
    asked = []

    def get_dataset(**how: object) -> SimpleNamespace:
        asked.append(how)
        names = {"train": 0, "id_val": 1, "test": 2, "val": 3}
        return SimpleNamespace(split_array=np.array([2, 1, 3, 0]), split_dict=names)

    package = SimpleNamespace(get_dataset=get_dataset, __spec__=SimpleNamespace(), __name__="wilds")
    monkeypatch.setitem(sys.modules, "wilds", package)
    source = read("camelyon17")
    assert asked == [{"dataset": "camelyon17", "root_dir": str(data), "download": False}]
    assert labels(source.train.groups) == ["042"]
    assert labels(source.tests["test"].groups) == ["004"]


def test_iwildcam_by_its_metadata(data: Path) -> None:
    header = "split,location_remapped,sequence_remapped,y,filename"
    splits = ("train", "val", "test", "id_val", "id_test")
    rows = [(split, k, 7 + k, 180 + k % 2, f"{split}.jpg") for k, split in enumerate(splits)]
    table(data / "iwildcam_v2.0" / "metadata.csv", header, rows)
    save(data / "iwildcam_v2.0" / "train" / "test.jpg", pixels(20, 30, 3))
    source = read("iwildcam")
    assert set(source.splits) == {"id_val", "id_test", "val"}
    test = source.tests["test"]
    assert labels(test.y) == [180]
    assert labels(test.groups) == ["9"]
    assert test.x[[0]].shape == (1, 3, 224, 224)
    assert labels(load_iwildcam_part("val")) == [181]
    table(data / "iwildcam_v2.0" / "metadata.csv", header, rows[:2])
    with pytest.raises(InputError, match='no rows of the split "id_val"'):
        load_source("iwildcam")


def load_iwildcam_part(part: str) -> object:
    return read(f"iwildcam:{part}").train.y


def test_clothing1m_by_its_key_lists(data: Path) -> None:
    root = data / "clothing1m"
    keys = {k: f"images/0/00/{k},1.jpg" for k in "abcd"}
    write(root / "noisy_train_key_list.txt", f"{keys['a']}\n{keys['b']}\n")
    write(root / "clean_train_key_list.txt", f"{keys['b']}\n")
    write(root / "clean_val_key_list.txt", f"{keys['c']}\n")
    write(root / "clean_test_key_list.txt", f"{keys['d']}\n")
    write(root / "noisy_label_kv.txt", f"{keys['a']} 13\n{keys['b']} 2\n")
    write(root / "clean_label_kv.txt", f"{keys['b']} 5\n{keys['c']} 0\n{keys['d']} 1\n")
    save(root / keys["a"], pixels(10, 12, 3))
    source = read("clothing1m")
    assert source.meta is not None
    assert labels(source.train.y) == [13, 2]
    assert labels(source.splits["clean_train"].y) == [5]
    assert labels(source.meta.y) == [0]
    assert labels(source.tests["test"].y) == [1]
    assert source.train.x[[0]].shape == (1, 3, 224, 224)
    write(root / "clean_label_kv.txt", f"{keys['b']} 5\n")
    with pytest.raises(InputError, match=r'no label for "images/0/00/c,1\.jpg"'):
        load_source("clothing1m")
    write(root / "clean_label_kv.txt", "no label\n")
    with pytest.raises(InputError, match='"no label" is not a key and a class number'):
        load_source("clothing1m")
    (root / "clean_label_kv.txt").unlink()
    with pytest.raises(InputError, match=r'clean_label_kv\.txt" cannot be read'):
        load_source("clothing1m")


def test_mnist_whole_or_its_test_images_only(data: Path) -> None:
    images, digits = pixels(3, 28 * 28).reshape(3, 28, 28), np.array([1, 2, 3], dtype=np.uint8)
    idx(data / "digits" / "mnist-t10k-images-idx3-ubyte.gz", images)
    idx(data / "digits" / "mnist-t10k-labels-idx1-ubyte.gz", digits)
    only = read("mnist")
    np.testing.assert_array_equal(only.train.x, images)
    assert not only.tests
    for prefix in ("train", "t10k"):
        idx(data / "mnist" / f"{prefix}-images-idx3-ubyte", images)
        idx(data / "mnist" / f"{prefix}-labels-idx1-ubyte", digits)
    assert labels(read("mnist").tests["test"].y) == [1, 2, 3]
    idx(data / "mnist" / "train-labels-idx1-ubyte", digits[:2])
    with pytest.raises(InputError, match="has 3 images, its labels are 2"):
        load_source("mnist")


def test_from_usps_to_mnist(data: Path) -> None:
    x, y = pixels(4, 256).reshape(4, 16, 16), np.array([0, 1, 2, 9])
    (data / "digits").mkdir()
    np.savez(data / "digits" / "usps.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    assert labels(read("usps").tests["test"].y) == [0, 1]
    with pytest.raises(InputError, match="mnist-t10k-images"):
        load_source("usps-to-mnist")
    bright = np.full((2, 28, 28), 200, dtype=np.uint8)
    idx(data / "digits" / "mnist-t10k-images-idx3-ubyte", bright)
    idx(data / "digits" / "mnist-t10k-labels-idx1-ubyte", np.array([4, 5], dtype=np.uint8))
    source = read("usps-to-mnist")
    assert source.tests["mnist"].x.shape == (2, 16, 16)
    assert (source.tests["mnist"].x == 200).all()
    assert labels(source.tests["mnist"].y) == [4, 5]


def test_resizing_is_the_mean_over_the_area_of_a_pixel() -> None:
    image = np.array([[[0, 60, 120], [0, 60, 120], [30, 30, 30]]], dtype=np.uint8)
    # Three pixels to two: one and a half each. (0 + 60/2) / 1.5 = 20, (60/2 + 120) / 1.5 = 100.
    got = resized(image, 2)
    assert got[0].tolist() == [[20, 100], [round((20 * 0.5 + 30) / 1.5), round(80 / 1.5)]]
    same = pixels(5, 5)[None]
    np.testing.assert_array_equal(resized(same, 5), same)


HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def heart(data: Path, hospital: str, rows: list[tuple[object, ...]], columns: str) -> None:
    table(data / "heart_disease" / f"processed.{hospital}.csv", columns, rows)


def test_heart_disease_by_hospital(data: Path) -> None:
    rows: list[tuple[object, ...]] = [(30 + i, i % 2, "?", i % 3) for i in range(20)]
    for k, hospital in enumerate(HOSPITALS):
        heart(data, hospital, rows[: 20 - k], "age,sex,ca,target")
    source = read("heart-disease")
    assert list(source.tests) == ["test", "hungarian", "switzerland", "va"]
    assert len(source.train) + len(source.tests["test"]) == 20
    assert len(source.tests["test"]) == 4
    assert list(source.train.x.columns) == ["age", "sex", "ca"]
    assert source.train.x["ca"].isna().all()
    # Any disease counts as one.
    assert labels(source.tests["va"].y) == [int(i % 3 > 0) for i in range(17)]
    heart(data, "va", [(1, 2, 3, 4)], "age,sex,thal,target")
    with pytest.raises(InputError, match='"va" has other columns'):
        load_source("heart-disease")
    heart(data, "va", [(1, 2, 3, "?")], "age,sex,ca,target")
    with pytest.raises(InputError, match='no column "target" that is filled'):
        load_source("heart-disease")
    (data / "heart_disease" / "processed.va.csv").unlink()
    with pytest.raises(InputError, match=r'processed\.va\.csv" is missing'):
        load_source("heart-disease")


def test_images_named_by_any_columns_of_a_table(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "id,eye,label,who", [("a", "l", "x", 1), ("b", "r", "y", 2)])
    save(tmp_path / "p" / "a-l.png", pixels(4, 4, 3))
    part = labelled_images(path, "p/{id}-{eye}.png", (3, 4, 4), label="label", group="who")
    assert part.names == ("p/a-l.png", "p/b-r.png")
    assert labels(part.y) == ["x", "y"]
    assert labels(part.groups) == ["1", "2"]
    assert part.x[[0]].shape == (1, 3, 4, 4)
    with pytest.raises(InputError, match="no rows below its header"):
        labelled_images(table(tmp_path / "e.csv", "id,y", []), "{id}", (3, 4, 4), label="y")

"""Whole data sets as they lie on disk, in small, for the list of what is there."""

from __future__ import annotations

import pickle  # noqa: TID251  (batches of CIFAR are published so)
import tarfile
from pathlib import Path

import numpy as np

from revar.library.classes import IMAGENET_100
from support.layouts import class_tree, idx, retina, sheet, table, write
from support.pictures import pixels, save


def patients(n: int) -> list[tuple[str, int]]:
    """(image id, grade)s of n eyes, two a patient."""
    return [(f"{i // 2}_{'left' if i % 2 else 'right'}", i // 2 % 5) for i in range(n)]


def eyepacs(data: Path) -> None:
    """Packed sheets of EyePACS and APTOS."""
    sheets = {"eyepacs_train": patients(40), "eyepacs_test": [("99_left", 0), ("99_right", 3)]}
    retina(data / "diabetic_retinopathy", sheets | {"aptos": [("a", 0), ("b", 4), ("c", 2)]})


def pacs(data: Path) -> None:
    """Photos and paintings in class folders."""
    class_tree(data / "PACS" / "photo", {"dog": 9, "horse": 6})
    class_tree(data / "PACS" / "art_painting", {"dog": 2, "horse": 1})


def pacs_packed(data: Path) -> None:
    """The same as sheets."""
    counts = {"photo": 15, "art_painting": 3}
    rows = [
        (f"{d}.jpg", i, "dog" if i % 3 else "cat", "x") for d in counts for i in range(counts[d])
    ]
    table(data / "pacs" / "labels.csv", "file,index,class,original", rows)
    for name, n in counts.items():
        sheet(data / "pacs" / f"{name}.jpg", n, 64)


def heart(data: Path) -> None:
    """Four hospitals."""
    for k, hospital in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        rows = [(30 + i, i % 3) for i in range(23 - k)]
        table(data / "heart_disease" / f"processed.{hospital}.csv", "age,target", rows)


def camelyon(data: Path) -> None:
    """Two patches to train on, one of each other split."""
    header = "patient,node,x_coord,y_coord,tumor,center,split"
    rows = [("004", 4, 1, 2, 1, 0, 0), ("004", 4, 3, 4, 0, 0, 1), ("020", 0, 5, 6, 1, 1, 0)]
    rows += [("042", 3, 7, 8, 0, 2, 1), ("004", 4, 9, 9, 0, 0, 0)]
    root = data / "camelyon17_v1.0"
    table(root / "metadata.csv", header, rows)
    for p, n, x, y, *_ in rows:
        name = f"patient_{p}_node_{n}"
        save(root / "patches" / name / f"patch_{name}_x_{x}_y_{y}.png", pixels(4, 4, 3))


def iwildcam(data: Path) -> None:
    """Two photos to test on, one of each other split."""
    splits = ("train", "val", "test", "id_val", "id_test", "test")
    rows = [(split, k, k % 2, f"{k}.jpg") for k, split in enumerate(splits)]
    table(data / "iwildcam_v2.0" / "metadata.csv", "split,sequence_remapped,y,filename", rows)
    for k in range(len(rows)):
        save(data / "iwildcam_v2.0" / "train" / f"{k}.jpg", pixels(4, 4, 3))


def clothing(data: Path) -> None:
    """Key lists, labels and images."""
    root = data / "clothing1m"
    parts = {"noisy_train": "ab", "clean_train": "b", "clean_val": "ccc", "clean_test": "dd"}
    for name, keys in parts.items():
        write(root / f"{name}_key_list.txt", "".join(f"images/{key}.jpg\n" for key in keys))
    for name in ("noisy", "clean"):
        write(root / f"{name}_label_kv.txt", "".join(f"images/{key}.jpg 3\n" for key in "abcd"))
    for key in "abcd":
        save(root / "images" / f"{key}.jpg", pixels(4, 4, 3))


def tiny(data: Path) -> None:
    """Tiny ImageNet as it unpacks, of three classes."""
    root = data / "tiny-imagenet-200"
    class_tree(root / "train", {"n01": 1, "n02": 2, "n03": 3}, below="images")
    write(root / "val" / "val_annotations.txt", "a.JPEG\tn03\t0\nb.JPEG\tn02\t0\nc.JPEG\tn01\t0\n")
    for name in "abc":
        save(root / "val" / "images" / f"{name}.JPEG", pixels(4, 4, 3))


def tiny_packed(data: Path) -> None:
    """Two classes in one archive."""
    root = data / "tiny_imagenet_100"
    table(root / "classes.csv", "label,wnid", [(0, "n01"), (1, "n02")])
    class_tree(data / "made" / "train", {"n01": 2, "n02": 1})
    class_tree(data / "made" / "val", {"n01": 1, "n02": 1})
    with tarfile.open(root / "images.tar.xz", "w:xz") as archive:
        for part in ("train", "val"):
            archive.add(data / "made" / part, part)


def corruptions(data: Path) -> None:
    """Fog at two severities, and a corruption that is none of the fifteen."""
    for name, count in (("fog/3", 1), ("fog/5", 2), ("speckle_noise/1", 7)):
        class_tree(data / "imagenet-c" / name, {"n01": count})


def mnist(data: Path) -> None:
    """Four idx files, two of them packed."""
    for prefix, n, end in (("train", 3, ".gz"), ("t10k", 2, "")):
        root = data / "mnist"
        idx(root / f"{prefix}-images-idx3-ubyte{end}", pixels(n, 784).reshape(n, 28, 28))
        idx(root / f"{prefix}-labels-idx1-ubyte{end}", np.arange(n, dtype=np.uint8))


def usps(data: Path) -> None:
    """One archive, and the test images of MNIST beside it."""
    x, y = pixels(4, 256).reshape(4, 16, 16), np.arange(4)
    idx(data / "digits" / "mnist-t10k-images-idx3-ubyte", pixels(3, 784).reshape(3, 28, 28))
    idx(data / "digits" / "mnist-t10k-labels-idx1-ubyte", np.arange(3, dtype=np.uint8))
    np.savez(data / "digits" / "usps.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])


def cifar100(data: Path) -> None:
    """The version for Python."""
    (data / "cifar-100-python").mkdir()
    for name, n in (("train", 6), ("test", 2)):
        batch = {b"data": pixels(n, 3072), b"fine_labels": list(range(n))}
        (data / "cifar-100-python" / name).write_bytes(pickle.dumps(batch))


def imagenet(data: Path) -> None:
    """Two classes, one of them of the hundred."""
    ours = sorted(IMAGENET_100)[0]
    class_tree(data / "imagenet" / "train", {"n00": 3, ours: 2})
    class_tree(data / "imagenet" / "val", {"n00": 1, ours: 1})
    # No image of any class.
    save(data / "imagenet" / "train" / "cover.png", pixels(4, 4, 3))


def aptos(data: Path) -> None:
    """Kaggle's table and images."""
    table(data / "aptos" / "train.csv", "id_code,diagnosis", [("a", 0), ("b", 4)])
    for name in "ab":
        save(data / "aptos" / "train_images" / f"{name}.png", pixels(4, 4, 3))


def eyepacs_files(data: Path) -> None:
    """Kaggle's two tables and their images."""
    root = data / "eyepacs"
    table(root / "trainLabels.csv", "image,level", patients(40))
    rows = [("90_left", 1, "Private"), ("90_right", 2, "Private"), ("91_left", 0, "Public")]
    table(root / "retinopathy_solution.csv", "image,level,Usage", rows)
    for name, _ in patients(40):
        save(root / "train" / f"{name}.jpeg", pixels(4, 4, 3))
    for name, *_ in rows[:2]:
        save(root / "test" / f"{name}.jpeg", pixels(4, 4, 3))


def deepdrid(data: Path) -> None:
    """The folder of the repository."""
    root = data / "DeepDRiD" / "regular_fundus_images"
    header = "patient_id,image_id,left_eye_DR_Level,right_eye_DR_Level"
    for name, n in (("training", 3), ("validation", 2)):
        folder = root / f"regular-fundus-{name}"
        table(folder / f"{folder.name}.csv", header, [(k, f"{k}_l1", k, "") for k in range(n)])
        for k in range(n):
            save(folder / "Images" / str(k) / f"{k}_l1.jpg", pixels(4, 4, 3))


def cifar10(data: Path, n: int = 4) -> None:
    """Sheets of four tiles and n training labels."""
    np.savez(data / "cifar10" / "labels.npz", train=np.zeros(n), test=np.zeros(2))
    for name in (*(f"train_{k}.webp" for k in range(1, 6)), "test_batch.webp"):
        sheet(data / "cifar10" / name, 4, 32)

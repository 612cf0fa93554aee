"""ImageNet-1K, ImageNet-100, Tiny ImageNet, and ImageNet-C: class folders by WordNet number.

Labels are WordNet numbers everywhere, so that a model trained on ImageNet can be tested on -A and
-R, which have 200 of its classes.
"""

from __future__ import annotations

import numpy as np

from revar.data.columns import read_columns, read_tabbed
from revar.data.packed import archived_images
from revar.data.readers import class_folder, joined
from revar.data.source import Part, Source
from revar.data.stored import ImageFiles
from revar.data.trees import every_second
from revar.errors import InputError, unknown
from revar.library.classes import CORRUPTIONS, IMAGENET_100, SEVERITIES
from revar.library.specs import Found


def imagenet100(found: Found) -> Source:
    """The hundred classes of Tian et al. (2020) out of the folders of ImageNet-1K."""
    train, test = (
        class_folder(found.path / found.form.parts[name], found.shape, IMAGENET_100)
        for name in ("train", "test")
    )
    return Source(train, tests={"test": test})


def corrupted(found: Found) -> Source:
    """``<corruption>/<severity>/<class>/<image>``: all that are there, and each as a part.

    The parts are called ``fog-3``. ``imagenet-c:fog-3`` reads that folder only.

    Raises:
        InputError: no such corruption, or none at all.
    """
    names = [f"{c}-{s}" for c in CORRUPTIONS for s in SEVERITIES]
    if found.part in names:
        names = [found.part]
    elif found.part not in ("", "train"):
        raise unknown("part of imagenet-c", found.part, names)
    parts = {}
    for name in names:
        corruption, _, severity = name.rpartition("-")
        folder = found.path / corruption / severity
        if folder.is_dir():
            parts[name] = class_folder(folder, found.shape)
    if not parts:
        raise InputError(f'"{found.path}" has no folders <corruption>/<severity>')
    return Source(joined(list(parts.values())), splits=parts)


def tiny_packed(found: Found) -> Source:
    """Tiny ImageNet-100 from one archive: 100 images a class to train on and 50 to test on."""
    classes = read_columns(found.path / "classes.csv", "wnid")["wnid"].tolist()
    archive = found.path / "images.tar.xz"
    names, images = archived_images(archive, (3, 64, 64), lambda name: name.endswith(".JPEG"))
    labels = np.array([name.split("/")[1] for name in names], dtype=np.str_)
    if not set(labels.tolist()) <= set(classes):
        odd = sorted(set(labels.tolist()) - set(classes))[0]
        raise InputError(f'"{archive}" has images of "{odd}", which classes.csv does not have')
    train = np.array([name.startswith("train/") for name in names])
    pool = Part(images, labels, names=tuple(names))
    return Source(
        pool.take(np.flatnonzero(train)), tests={"test": pool.take(np.flatnonzero(~train))}
    )


def tiny_official(found: Found) -> Source:
    """``tiny-imagenet-200`` as it unpacks: every second of its classes, in their order."""
    classes = every_second(found.path / "train")
    train = class_folder(found.path / "train", found.shape, classes)
    table = read_tabbed(found.path / "val" / "val_annotations.txt")
    files, labels = table[0].tolist(), table[1]
    rows = np.flatnonzero(np.isin(labels, classes))
    images = tuple(found.path / "val" / "images" / files[i] for i in rows)
    names = tuple(f"val/{files[i]}" for i in rows)
    return Source(
        train, tests={"test": Part(ImageFiles(images, found.shape), labels[rows], names=names)}
    )

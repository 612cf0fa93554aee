"""How many examples are there as image files of their own: names are counted, none is opened."""

from __future__ import annotations

import numpy as np

from revar.data.columns import read_columns, read_tabbed, whole_numbers
from revar.data.keys import listed
from revar.data.patients import WITHOUT_TEST, by_patient, patient_of
from revar.data.shares import TEST_SHARE, held_out
from revar.data.trees import count_by_class, count_images, every_second, require
from revar.data.wilds_tables import Rows, camelyon_rows, iwildcam_rows
from revar.errors import InputError
from revar.library.classes import CORRUPTIONS, IMAGENET_100, SEVERITIES
from revar.library.specs import Found, Sizes


def folders(found: Found) -> Sizes:
    """Image files in the class folders of each part."""
    return {part: count_images(found.path / folder) for part, folder in found.form.parts.items()}


def imagenet100(found: Found) -> Sizes:
    """The same for its hundred classes."""
    return {
        part: count_images(found.path / folder, IMAGENET_100)
        for part, folder in found.form.parts.items()
    }


def imagenet_c(found: Found) -> Sizes:
    """Image files of all corruptions and severities that are there."""
    places = [found.path / name / str(severity) for name in CORRUPTIONS for severity in SEVERITIES]
    there = [place for place in places if place.is_dir()]
    if not there:
        raise InputError(f'"{found.path}" has no folders <corruption>/<severity>')
    return {"test": sum(count_images(place) for place in there)}


def tiny_official(found: Found) -> Sizes:
    """Every second class of Tiny ImageNet."""
    classes = every_second(found.path / "train")
    train = count_images(found.path / "train", classes)
    files, labels = read_tabbed(found.path / "val" / "val_annotations.txt")
    names = files[np.isin(labels, classes)].tolist()
    require(found.path / "val" / "images", names)
    return {"train": train, "test": len(names)}


def pacs(found: Found) -> Sizes:
    """As `revar.data.pacs.photo_to_art` splits them."""
    each = count_by_class(found.path / "photo")
    labels = np.repeat(np.array(list(each), dtype=np.str_), list(each.values()))
    paintings = count_images(found.path / "art_painting")
    return {**held_out(labels, TEST_SHARE), "art_painting": paintings}


def pacs_domain(found: Found) -> Sizes:
    """One domain."""
    return {"test": count_images(found.path / str(found.spec.options["domain"]))}


def eyepacs(found: Found) -> Sizes:
    """As `revar.data.retina.eyepacs_official` splits them."""
    folder = found.path.parent
    table = read_columns(found.path, "image", "level")
    grades = whole_numbers(found.path, "level", table["level"])
    rows = by_patient(grades, patient_of(table["image"]), WITHOUT_TEST)
    tests = read_columns(folder / "retinopathy_solution.csv", "image", "Usage")
    private = tests["image"][tests["Usage"] == "Private"].tolist()
    require(folder, [f"train/{name}.jpeg" for name in table["image"].tolist()])
    require(folder, [f"test/{name}.jpeg" for name in private])
    return {part: len(those) for part, those in rows.items()} | {"test": len(private)}


def aptos(found: Found) -> Sizes:
    """Rows of its table, whose images are there."""
    names = read_columns(found.path, "id_code", "diagnosis")["id_code"].tolist()
    require(found.path.parent, [f"train_images/{name}.png" for name in names])
    return {"test": len(names)}


def deepdrid(found: Found) -> Sizes:
    """Rows of the table of each part, whose images are there."""
    sizes = {}
    for part, file in found.form.parts.items():
        table = read_columns(found.path / file, "patient_id", "image_id")
        cells = zip(table["patient_id"].tolist(), table["image_id"].tolist(), strict=True)
        names = [f"Images/{patient}/{image}.jpg" for patient, image in cells]
        require((found.path / file).parent, names)
        sizes[part] = len(names)
    return sizes


def camelyon17(found: Found) -> Sizes:
    """Rows of each split, whose patches are there."""
    return _splits(found, camelyon_rows(found.path))


def iwildcam(found: Found) -> Sizes:
    """Rows of each split, whose photos are there."""
    return _splits(found, iwildcam_rows(found.path))


def _splits(found: Found, rows: Rows) -> Sizes:
    sizes = {part: int((rows.split == part).sum()) for part in found.form.sizes}
    for part, size in sizes.items():
        if not size:
            raise InputError(f'"{found.path}" has no rows of the split "{part}"')
    wanted = np.isin(rows.split, list(sizes)).tolist()
    names = (name for name, mine in zip(rows.names, wanted, strict=True) if mine)
    require(found.path.parent, names)
    return sizes


def clothing1m(found: Found) -> Sizes:
    """Lines of the key list of each part, whose labels and images are there."""
    parts = listed(found.path.parent)
    require(found.path.parent, (key for keys, _ in parts.values() for key in keys))
    return {part: len(keys) for part, (keys, _) in parts.items()}

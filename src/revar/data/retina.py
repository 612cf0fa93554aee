"""Photographs of the retina: EyePACS (Kaggle DR, USA), APTOS (India), DeepDRiD (China).

Grades of diabetic retinopathy, 0 to 4, become two classes: referable from grade 2 on, as in the
benchmarks of Filos et al. (2019) and Band et al. (2021), or from grade 3 on as in the text of the
ReVaR paper. All parts of a source are split by patient, see `revar.data.patients`; APTOS names no
patients, every image counts as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from revar.data.columns import Text, read_columns, whole_numbers
from revar.data.packed import sheet_rows, sheet_tiles
from revar.data.patients import SHARES, WITHOUT_TEST, by_patient, patient_of
from revar.data.published import locate
from revar.data.readers import joined, labelled_images
from revar.data.source import Part, Source
from revar.data.stored import ImageFiles
from revar.errors import InputError
from revar.library.specs import Found
from revar.registry import load

SIDE = 96
"""Pixels of a packed tile."""
_DOMAINS = ("aptos", "deepdrid")


def eyepacs_packed(found: Found, seed: int = 0) -> Source:
    """All packed EyePACS images, split by patient; APTOS and DeepDRiD as test domains.

    The packed train and test sheets differ in prevalence, so that both are pooled first.
    """
    pool = joined(_sheets(found.path, "eyepacs_train", "eyepacs_test"))
    return split_by_patient(pool, found, seed=seed)


def eyepacs_official(found: Found, seed: int = 0) -> Source:
    """Kaggle's files: its training images split by patient, its private test images to test on."""
    pool = labelled_images(found.path, "train/{image}.jpeg", found.shape, label="level")
    table = found.path.parent / "retinopathy_solution.csv"
    test = labelled_images(table, "test/{image}.jpeg", found.shape, label="level")
    usage = read_columns(table, "Usage")["Usage"]
    test = test.take(np.flatnonzero(usage == "Private"))
    source = split_by_patient(_with_patients(pool), found, WITHOUT_TEST, seed)
    own = {"test": binary(_with_patients(test), _threshold(found))}
    return replace(source, tests={**own, **source.tests})


def aptos_packed(found: Found) -> Source:
    """3,662 images, all of them a test domain."""
    return Source(binary(_sheets(found.path, "aptos")[0], _threshold(found)))


def aptos_official(found: Found) -> Source:
    """Kaggle's ``train.csv`` and ``train_images``: those with a grade."""
    part = labelled_images(
        found.path, "train_images/{id_code}.png", found.shape, label="diagnosis", group="id_code"
    )
    return Source(binary(part, _threshold(found)))


def deepdrid_packed(found: Found) -> Source:
    """Its own parts, which share no patient: train, valid as meta set, and test."""
    sheets = _sheets(found.path, "deepdrid_train", "deepdrid_valid", "deepdrid_test")
    train, valid, test = (binary(sheet, _threshold(found)) for sheet in sheets)
    return Source(train, valid, {"test": test})


def deepdrid_official(found: Found) -> Source:
    """Its repository: the training images, and those of the validation folder to test on."""
    train, test = (_deepdrid(found, name) for name in ("training", "validation"))
    return Source(train, tests={"test": test})


def _deepdrid(found: Found, name: str) -> Part:
    """Every row has the grade of the left or of the right eye."""
    folder = found.path / f"regular-fundus-{name}"
    table = folder / f"regular-fundus-{name}.csv"
    eyes = ("left_eye_DR_Level", "right_eye_DR_Level")
    cells = read_columns(table, "patient_id", "image_id", *eyes)
    grades = whole_numbers(table, "grade", _either(cells[eyes[0]], cells[eyes[1]]))
    ids, patients = cells["image_id"].tolist(), cells["patient_id"].tolist()
    files = [folder / "Images" / p / f"{i}.jpg" for p, i in zip(patients, ids, strict=True)]
    images = ImageFiles(tuple(files), found.shape)
    part = Part(images, grades, cells["patient_id"], tuple(ids))
    return binary(part, _threshold(found))


def _either(left: Text, right: Text) -> Text:
    return np.where(left == "", right, left)


def split_by_patient(
    pool: Part, found: Found, shares: Mapping[str, float] = SHARES, seed: int = 0
) -> Source:
    """Train, meta, tune, calibration and test by patient, and the other countries as tests.

    Args:
        pool: images with grades, groups being patients.
        found: the data set they are of; it says from which grade on an image is referable.
        shares: see `revar.data.patients.by_patient`.
        seed: of the draw.
    """
    assert pool.groups is not None
    rows = by_patient(np.asarray(pool.y), pool.groups, shares, seed)
    parts = {name: binary(pool.take(those), _threshold(found)) for name, those in rows.items()}
    tests = {"test": parts["test"]} if "test" in parts else {}
    splits = {name: part for name, part in parts.items() if name in ("tune", "calibration")}
    return Source(
        parts["train"], parts.get("meta"), {**tests, **_other_countries(found)}, splits=splits
    )


def eyepacs_splits(grade: int = 2, seed: int = 0) -> Source:
    """EyePACS split by patient with a seed of one's own.

    Args:
        grade: 2 or 3, from which on an image is referable.
        seed: of the draw; the registered names have 0.

    Raises:
        InputError: it is not there, or no such grade.
    """
    from revar.data.datasets import dataset_spec

    found = locate(dataset_spec("eyepacs" if grade == 2 else f"eyepacs-grade{grade}"))
    source: Source = load(found.form.reader)(found, seed)
    return source


def binary(part: Part, threshold: int) -> Part:
    """Grades to 0 and 1.

    Raises:
        InputError: grades beyond 0 to 4.
    """
    grades = np.asarray(part.y)
    if not np.isin(grades, range(5)).all():
        odd = sorted(set(grades.tolist()) - set(range(5)))
        raise InputError(f"grades of retinopathy go from 0 to 4, here is {odd[0]!r}")
    return replace(part, y=(grades >= threshold).astype(np.int64))


def _sheets(labels: Path, *names: str) -> list[Part]:
    parts = []
    for name in names:
        rows = sheet_rows(labels, f"{name}.jpg", "image_id", "grade")
        x = sheet_tiles(labels.parent / f"{name}.jpg", SIDE, len(rows["grade"]))
        grades = whole_numbers(labels, "grade", rows["grade"])
        ids = rows["image_id"]
        parts.append(Part(x, grades, patient_of(ids), tuple(ids.tolist())))
    return parts


def _other_countries(found: Found) -> dict[str, Part]:
    """The test domains that are there and of the same kind of file as the source."""
    from revar.data.datasets import dataset_spec, read_dataset

    ending = found.spec.name.removeprefix("eyepacs")
    domains = {}
    for name in _DOMAINS:
        spec = dataset_spec(f"{name}{ending}")
        try:
            there = locate(spec)
        except InputError:
            continue
        if _packed(there) == _packed(found) and _whole(there):
            source = read_dataset(spec, image_shape=found.shape)
            parts = [source.train, *([source.meta] if source.meta else []), *source.tests.values()]
            domains[name] = joined(parts)
    return domains


def _packed(found: Found) -> bool:
    return found.form.place.endswith("labels.csv")


def _whole(found: Found) -> bool:
    """Whether its sheets are there too: countries share one table of labels."""
    files = [found.path.parent / f"{sheet}.jpg" for sheet in found.form.parts.values()]
    return not _packed(found) or all(file.is_file() for file in files)


def _with_patients(part: Part) -> Part:
    ids = np.array([Path(name).stem for name in part.names or ()], dtype=np.str_)
    return replace(part, groups=patient_of(ids), names=tuple(ids.tolist()))


def _threshold(found: Found) -> int:
    return int(found.spec.options["grade"])

"""How many examples of a data set are there, without reading images and without tensors."""

from __future__ import annotations

import gzip
import os
import zipfile
from pathlib import Path

import numpy as np

from revar.data.columns import read_columns, whole_numbers
from revar.data.images import SUFFIXES
from revar.data.patients import WITHOUT_TEST, by_patient, patient_of
from revar.errors import InputError
from revar.library.specs import Found, Sizes


def sheets(found: Found) -> Sizes:
    """Rows of the table of labels that belong to the sheets of each part."""
    files = read_columns(found.path, "file")["file"].tolist()
    return {
        part: sum(file.partition(".")[0] == sheet for file in files)
        for part, sheet in found.form.parts.items()
    }


def eyepacs_packed(found: Found) -> Sizes:
    """As `revar.data.retina.eyepacs_packed` splits them."""
    table = read_columns(found.path, "file", "image_id", "grade")
    mine = np.char.startswith(table["file"], "eyepacs_")
    grades = whole_numbers(found.path, "grade", table["grade"][mine])
    rows = by_patient(grades, patient_of(table["image_id"][mine]))
    return {part: len(those) for part, those in rows.items()}


def eyepacs_official(found: Found) -> Sizes:
    """As `revar.data.retina.eyepacs_official` splits them."""
    table = read_columns(found.path, "image", "level")
    grades = whole_numbers(found.path, "level", table["level"])
    rows = by_patient(grades, patient_of(table["image"]), WITHOUT_TEST)
    usage = read_columns(found.path.parent / "retinopathy_solution.csv", "Usage")["Usage"]
    private = {"test": int((usage == "Private").sum())}
    return {part: len(those) for part, those in rows.items()} | private


def tables(found: Found) -> Sizes:
    """Rows of the CSV file of each part, one image each."""
    folder = found.path if found.path.is_dir() else found.path.parent
    return {
        part: len(next(iter(read_columns(folder / file, *_first(folder / file)).values())))
        for part, file in found.form.parts.items()
    }


def _first(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            return [file.readline().split(",")[0].strip()]
    except OSError as error:
        raise InputError(f'"{path}" cannot be read: {error.strerror}') from error


def folders(found: Found) -> Sizes:
    """Image files in the class folders of each part."""
    return {part: _images(found.path / folder) for part, folder in found.form.parts.items()}


def imagenet100(found: Found) -> Sizes:
    """The same for its hundred classes."""
    from revar.library.classes import IMAGENET_100

    return {
        part: sum(_images(found.path / folder / name) for name in IMAGENET_100)
        for part, folder in found.form.parts.items()
    }


def _images(root: Path) -> int:
    return sum(name.lower().endswith(SUFFIXES) for _, _, files in os.walk(root) for name in files)


def lists(found: Found) -> Sizes:
    """Lines of the key list of each part."""
    counted = {}
    for part, file in found.form.parts.items():
        with (found.path.parent / file).open("rb") as lines:
            counted[part] = sum(bool(line.strip()) for line in lines)
    return counted


def idx_files(found: Found) -> Sizes:
    """The length that the header of each file of labels gives."""
    counted = {}
    for part, prefix in found.form.parts.items():
        path = found.root / f"{prefix}-labels-idx1-ubyte"
        packed = path.with_name(f"{path.name}.gz")
        with gzip.open(packed) if packed.exists() else path.open("rb") as file:
            counted[part] = int.from_bytes(file.read(8)[4:], "big")
    return counted


def label_arrays(found: Found) -> Sizes:
    """Lengths of the arrays ``train`` and ``test`` of ``labels.npz``."""
    try:
        with np.load(found.path / "labels.npz") as arrays:
            return {part: len(arrays[part]) for part in ("train", "test")}
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f'"{found.path}/labels.npz" cannot be read: {error}') from error

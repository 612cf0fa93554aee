"""How many examples of packed images and of tables are there: no image is decoded, no tensor made.

A counter refuses what its reader would refuse, as far as that can be seen without the pixels. The
others are in `revar.data.counts_arrays` and `revar.data.counts_files`.
"""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from revar.data.columns import Text, read_columns, whole_numbers
from revar.data.packed import require_tiles, rows_of_sheet
from revar.data.patients import by_patient, patient_of
from revar.data.shares import TEST_SHARE, held_out
from revar.errors import InputError
from revar.library.specs import Found, Sizes

_GAPS = ("", "?")
_EYEPACS = ("eyepacs_train", "eyepacs_test")
_COUNTRIES = {
    "aptos": ("aptos",),
    "deepdrid": ("deepdrid_train", "deepdrid_valid", "deepdrid_test"),
}


def check_sheet(path: Path, side: int, n: int) -> None:
    """Refuse a sheet that is missing, is no picture, or has fewer than n tiles.

    Raises:
        InputError: which.
    """
    if not path.is_file():
        raise InputError(f'"{path}" is missing')
    if find_spec("PIL") is not None:  # without it, no more than the name can be seen
        require_tiles(path, side, n)


def _rows(found: Found, column: str, other: str, names: Iterable[str]) -> list[dict[str, Text]]:
    """Rows of the table of labels for each of these sheets, which are there."""
    table = read_columns(found.path, "file", "index", column, other)
    parts = []
    for name in names:
        parts.append(rows_of_sheet(found.path, table, f"{name}.jpg"))
        check_sheet(found.path.parent / f"{name}.jpg", found.form.side, len(parts[-1]["index"]))
    return parts


def sheets(found: Found) -> Sizes:
    """Rows of the table of labels that belong to the sheet of each part."""
    rows = _rows(found, "grade", "image_id", found.form.parts.values())
    return {part: len(own["index"]) for part, own in zip(found.form.parts, rows, strict=True)}


def eyepacs_packed(found: Found) -> Sizes:
    """As `revar.data.retina.eyepacs_packed` splits them, and the countries that are there."""
    there = {
        country: names
        for country, names in _COUNTRIES.items()
        if all((found.path.parent / f"{name}.jpg").is_file() for name in names)
    }
    wanted = [*_EYEPACS, *(name for names in there.values() for name in names)]
    rows = dict(zip(wanted, _rows(found, "grade", "image_id", wanted), strict=True))
    grades, ids = (np.concatenate([rows[n][c] for n in _EYEPACS]) for c in ("grade", "image_id"))
    own = by_patient(whole_numbers(found.path, "grade", grades), patient_of(ids))
    others = {k: sum(len(rows[name]["index"]) for name in names) for k, names in there.items()}
    return {**{part: len(those) for part, those in own.items()}, **others}


def pacs_packed(found: Found) -> Sizes:
    """As `revar.data.pacs.photo_to_art` splits them."""
    photos, paintings = _rows(found, "class", "original", ("photo", "art_painting"))
    return {**held_out(photos["class"], TEST_SHARE), "art_painting": len(paintings["class"])}


def pacs_domain_packed(found: Found) -> Sizes:
    """One domain."""
    (rows,) = _rows(found, "class", "original", [str(found.spec.options["domain"])])
    return {"test": len(rows["class"])}


def heart_disease(found: Found) -> Sizes:
    """Rows of each hospital, the first as `revar.data.heart` splits it."""
    hospitals = {part: _diseased(found.path / file) for part, file in found.form.parts.items()}
    own = held_out(hospitals.pop("train"), TEST_SHARE)
    return {**own, **{part: len(rows) for part, rows in hospitals.items()}}


def _diseased(path: Path) -> NDArray[np.bool_]:
    if not path.is_file():
        raise InputError(f'"{path}" is missing')
    cells = read_columns(path, "target")["target"]
    if not len(cells):
        raise InputError(f'"{path}" has no rows below its header')
    if np.isin(cells, _GAPS).any():
        raise InputError(f'"{path}" has no column "target" that is filled in every row')
    try:
        return cells.astype(np.float64) > 0
    except ValueError as error:
        raise InputError(f'"{path}": target holds text ({error})') from error


def tiny_packed(found: Found) -> Sizes:
    """Names of images in the archive, by their part."""
    read_columns(found.path / "classes.csv", "wnid")
    archive = found.path / "images.tar.xz"
    if not archive.is_file():
        raise InputError(f'"{archive}" is missing')
    try:
        with tarfile.open(archive) as opened:
            names = [member.name for member in opened if member.isfile()]
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        raise InputError(f'"{archive}" cannot be read as an archive: {error}') from error
    images = [name for name in names if name.endswith(".JPEG")]
    train = sum(name.startswith("train/") for name in images)
    if not 0 < train < len(images):
        raise InputError(f'"{archive}" has not images of both train/ and val/')
    return {"train": train, "test": len(images) - train}

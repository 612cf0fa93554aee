"""Camelyon17 and iWildCam of WILDS (Koh et al. 2021), by their ``metadata.csv``.

Where the package ``wilds`` is installed, the splits are the ones it gives; without it they follow
from the same file by the rules of its documentation. Training hospitals and cameras give ``train``
and the in-domain ``id_val`` (and ``id_test``), others the shifted ``val`` and ``test``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from revar.data.columns import Text, read_columns, whole_numbers
from revar.data.source import Part, Source
from revar.data.stored import ImageFiles
from revar.errors import InputError
from revar.library.specs import Found

_CAMELYON_VAL, _CAMELYON_TEST = 1, 2
"""Hospitals that are in no training set."""
_PATCH = "patches/patient_{0}_node_{1}/patch_patient_{0}_node_{1}_x_{2}_y_{3}.png"


def camelyon17(found: Found) -> Source:
    """Patches of lymph nodes, tumour or none; a group is a patient."""
    columns = ("patient", "node", "x_coord", "y_coord", "tumor", "center", "split")
    table = read_columns(found.path, *columns)
    centre = whole_numbers(found.path, "center", table["center"])
    split = np.where(table["split"] == "0", "train", "id_val")
    split[centre == _CAMELYON_VAL] = "val"
    split[centre == _CAMELYON_TEST] = "test"
    rows = zip(*(table[name].tolist() for name in columns[:4]), strict=True)
    names = [_PATCH.format(*row) for row in rows]
    labels = whole_numbers(found.path, "tumor", table["tumor"])
    return _source(found, names, labels, table["patient"], _by_package(found, split))


def iwildcam(found: Found) -> Source:
    """Photos by camera traps; a group is a burst of one trigger, whose frames look alike."""
    table = read_columns(found.path, "split", "filename", "y", "sequence_remapped")
    names = [f"train/{name}" for name in table["filename"].tolist()]
    labels = whole_numbers(found.path, "y", table["y"])
    split = _by_package(found, table["split"])
    return _source(found, names, labels, table["sequence_remapped"], split)


def _by_package(found: Found, split: Text) -> Text:
    """[n] names of splits as the package has them, if it is installed."""
    if find_spec("wilds") is None:
        return split
    package = import_module("wilds")
    dataset = package.get_dataset(dataset=found.spec.name, root_dir=str(found.root), download=False)
    numbers = np.asarray(dataset.split_array)
    if len(numbers) != len(split):
        msg = f'"{found.path}" has {len(split)} rows, wilds reads {len(numbers)} from it'
        raise InputError(msg)
    by_number = {number: name for name, number in dataset.split_dict.items()}
    return np.array([by_number.get(number, "none") for number in numbers.tolist()], dtype=np.str_)


def _source(
    found: Found, names: list[str], labels: NDArray[np.int64], groups: Text, split: Text
) -> Source:
    folder = found.path.parent

    def part(name: str) -> Part:
        rows = np.flatnonzero(split == name)
        if not len(rows):
            raise InputError(f'"{found.path}" has no rows of the split "{name}"')
        files = ImageFiles(tuple(folder / names[i] for i in rows), found.shape)
        return Part(files, labels[rows], groups[rows], tuple(names[i] for i in rows))

    splits = {name: part(name) for name in found.form.sizes if name not in ("train", "test")}
    return Source(part("train"), tests={"test": part("test")}, splits=splits)

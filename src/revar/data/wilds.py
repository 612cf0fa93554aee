"""Camelyon17 and iWildCam of WILDS (Koh et al. 2021), by their ``metadata.csv``.

Where the package ``wilds`` is installed, the splits are the ones it gives; without it they follow
from the same file by the rules of its documentation. Training hospitals and cameras give ``train``
and the in-domain ``id_val`` (and ``id_test``), others the shifted ``val`` and ``test``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np

from revar.data.columns import Text
from revar.data.source import Part, Source
from revar.data.stored import ImageFiles
from revar.data.wilds_tables import Rows, camelyon_rows, iwildcam_rows
from revar.errors import InputError
from revar.library.specs import Found


def camelyon17(found: Found) -> Source:
    """Patches of lymph nodes, tumour or none; a group is a patient."""
    return _source(found, camelyon_rows(found.path))


def iwildcam(found: Found) -> Source:
    """Photos by camera traps; a group is a burst of one trigger, whose frames look alike."""
    return _source(found, iwildcam_rows(found.path))


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


def _source(found: Found, table: Rows) -> Source:
    folder = found.path.parent
    split = _by_package(found, table.split)

    def part(name: str) -> Part:
        rows = np.flatnonzero(split == name)
        if not len(rows):
            raise InputError(f'"{found.path}" has no rows of the split "{name}"')
        names = tuple(table.names[i] for i in rows)
        files = ImageFiles(tuple(folder / name for name in names), found.shape)
        return Part(files, table.labels[rows], table.groups[rows], names)

    splits = {name: part(name) for name in found.form.sizes if name not in ("train", "test")}
    return Source(part("train"), tests={"test": part("test")}, splits=splits)

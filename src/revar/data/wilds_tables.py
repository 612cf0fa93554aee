"""Rows of the tables of WILDS: names of images and their splits, without tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from revar.data.columns import Text, read_columns, whole_numbers

_CAMELYON_VAL, _CAMELYON_TEST = 1, 2
"""Hospitals that are in no training set."""
_PATCH = "patches/patient_{0}_node_{1}/patch_patient_{0}_node_{1}_x_{2}_y_{3}.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """One row an image.

    Attributes:
        names: paths beside the table.
        labels: [n] class numbers.
        groups: [n] what must stay together.
        split: [n] names of splits by the rules of the documentation.
    """

    names: list[str]
    labels: NDArray[np.int64]
    groups: Text
    split: Text


def camelyon_rows(path: Path) -> Rows:
    """Patches of lymph nodes; a group is a patient."""
    columns = ("patient", "node", "x_coord", "y_coord", "tumor", "center", "split")
    table = read_columns(path, *columns)
    centre = whole_numbers(path, "center", table["center"])
    split = np.where(table["split"] == "0", "train", "id_val")
    split[centre == _CAMELYON_VAL] = "val"
    split[centre == _CAMELYON_TEST] = "test"
    cells = zip(*(table[name].tolist() for name in columns[:4]), strict=True)
    return Rows(
        names=[_PATCH.format(*row) for row in cells],
        labels=whole_numbers(path, "tumor", table["tumor"]),
        groups=table["patient"],
        split=split,
    )


def iwildcam_rows(path: Path) -> Rows:
    """Photos by camera traps; a group is a burst of one trigger."""
    table = read_columns(path, "split", "filename", "y", "sequence_remapped")
    return Rows(
        names=[f"train/{name}" for name in table["filename"].tolist()],
        labels=whole_numbers(path, "y", table["y"]),
        groups=table["sequence_remapped"],
        split=table["split"],
    )

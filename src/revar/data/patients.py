"""Splits by patient: whole patients, every grade in its share in every part.

Both eyes of a patient look alike and mostly share their grade. An eye in training would tell the
grade of its sibling in the test set, so that all images of a patient go to one part.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError

Rows = NDArray[np.int64]
SHARES: Mapping[str, float] = {
    "train": 0.55,
    "meta": 0.1,
    "tune": 0.05,
    "calibration": 0.1,
    "test": 0.2,
}
"""Of the images of one source, for training and all that is held out."""
WITHOUT_TEST: Mapping[str, float] = {
    name: share / (1.0 - SHARES["test"]) for name, share in SHARES.items() if name != "test"
}
"""The same where a source comes with a test set of other patients."""


def by_patient(
    grades: NDArray[np.int64],
    patients: NDArray[np.generic],
    shares: Mapping[str, float] = SHARES,
    seed: int = 0,
) -> dict[str, Rows]:
    """Rows of each part: no patient in two of them, grades alike in all of them.

    Patients are ordered by the grades of their images, those with the same grades in an order
    drawn from the seed. One after another they go to the part that lacks most of its share, so
    that every run of like patients is dealt out in the shares asked for.

    Args:
        grades: [n] of the images.
        patients: [n] whose images they are.
        shares: part to share of the images; they add up to one.
        seed: of the draw.

    Raises:
        InputError: shares that do not add up to one, or too few patients to fill every part.
    """
    wanted = np.array(list(shares.values()))
    if (wanted <= 0).any() or abs(wanted.sum() - 1.0) > 1e-9:
        raise InputError(f"shares {dict(shares)} must be above 0 and add up to 1")
    order = np.lexsort((grades, patients))
    _, starts = np.unique(patients[order], return_index=True)
    members = np.split(order, starts[1:]) if len(order) else []
    drawn = np.random.default_rng(seed).permutation(len(members))
    # Sorting is stable: patients of the same grades stay in the order that was drawn.
    ordered = sorted(drawn.tolist(), key=lambda i: tuple(grades[members[i]].tolist()))
    parts: list[list[Rows]] = [[] for _ in wanted]
    filled = np.zeros(len(wanted))
    for i in ordered:
        lacking = wanted * (filled.sum() + len(members[i])) - filled
        part = int(lacking.argmax())
        parts[part].append(members[i])
        filled[part] += len(members[i])
    if not all(parts):
        raise InputError(f"{len(members)} patients are too few for {', '.join(shares)}")
    joined = [np.sort(np.concatenate(rows)).astype(np.int64) for rows in parts]
    return dict(zip(shares, joined, strict=True))


def patient_of(names: NDArray[np.str_]) -> NDArray[np.str_]:
    """[n] what comes before the first ``_``: ``10_left`` and ``10_right`` are of one patient."""
    return np.array([name.partition("_")[0] for name in names.tolist()], dtype=np.str_)

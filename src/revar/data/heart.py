"""UCI Heart Disease: the same thirteen measurements in four hospitals."""

from __future__ import annotations

import numpy as np

from revar.data.files import read_frame
from revar.data.shares import TEST_SHARE
from revar.data.source import Part, Source
from revar.errors import InputError
from revar.library.specs import Found
from revar.splits import take_off

_TARGET = "target"


def heart_disease(found: Found) -> Source:
    """Cleveland to train on, a fifth of it as ``test``; the other hospitals as test domains.

    The class is whether there is any disease (``target`` above 0): one of the hospitals tells no
    more than that.

    Raises:
        InputError: a file or its target is missing, or the hospitals have other columns.
    """
    parts = {name: _hospital(found, file) for name, file in found.form.parts.items()}
    train = parts.pop("train")
    for name, part in parts.items():
        if list(part.x.columns) != list(train.x.columns):
            raise InputError(f'heart disease: "{name}" has other columns than the first hospital')
    rows = take_off(np.asarray(train.y), None, {"test": TEST_SHARE}, seed=0)
    return Source(train.take(rows["train"]), tests={"test": train.take(rows["test"]), **parts})


def _hospital(found: Found, file: str) -> Part:
    path = found.path / file
    if not path.is_file():
        raise InputError(f'"{path}" is missing')
    frame = read_frame(path)
    if _TARGET not in frame.columns or frame[_TARGET].isna().any():
        raise InputError(f'"{path}" has no column "{_TARGET}" that is filled in every row')
    y = (frame[_TARGET].to_numpy() > 0).astype(np.int64)
    return Part(frame.drop(columns=[_TARGET]), y)

"""PACS (Li et al. 2017): seven classes as photos, paintings, cartoons and sketches.

``pacs`` goes from photos to art paintings. The other two domains are read by names of their own.
"""

from __future__ import annotations

import numpy as np

from revar.data.packed import sheet_rows, sheet_tiles
from revar.data.readers import class_folder
from revar.data.shares import TEST_SHARE
from revar.data.source import Part, Source
from revar.data.stored import ImageFiles
from revar.library.specs import Found
from revar.splits import take_off

SIDE = 64
_SOURCE, _TARGET = "photo", "art_painting"


def photo_to_art(found: Found) -> Source:
    """Four fifths of the photos to train on; the rest (``test``) and the paintings to test on."""
    photos = _domain(found, _SOURCE)
    _, numbers = np.unique(np.asarray(photos.y), return_inverse=True)
    rows = take_off(numbers.astype(np.int64), None, {"test": TEST_SHARE}, seed=0)
    tests = {"test": photos.take(rows["test"]), _TARGET: _domain(found, _TARGET)}
    return Source(photos.take(rows["train"]), tests=tests)


def domain(found: Found) -> Source:
    """One domain, all of it."""
    return Source(_domain(found, str(found.spec.options["domain"])))


def _domain(found: Found, name: str) -> Part:
    if found.path.is_dir():
        part = class_folder(found.path / name, found.shape)
        assert isinstance(part.x, ImageFiles)
        return part
    rows = sheet_rows(found.path, f"{name}.jpg", "class", "original")
    x = sheet_tiles(found.path.parent / f"{name}.jpg", SIDE, len(rows["class"]))
    return Part(x, rows["class"], names=tuple(rows["original"].tolist()))

"""Every published data set that can be typed, as specs: see `revar.library.specs`."""

from __future__ import annotations

from revar.library import cifar, imagenet, retina, small, wild
from revar.library.specs import DatasetSpec

SPECS: tuple[DatasetSpec, ...] = (
    *small.SPECS,
    *cifar.SPECS,
    *imagenet.SPECS,
    *retina.SPECS,
    *wild.SPECS,
)

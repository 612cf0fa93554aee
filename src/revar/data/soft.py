"""Soft labels: how people's answers are spread over the classes of each test image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from revar.data.arrays import one_array
from revar.data.published import locate
from revar.errors import InputError, unknown

SOFT = ("cifar10h",)
"""Data sets that have them."""


def soft_labels(name: str = "cifar10h") -> NDArray[np.float64]:
    """[n, C] probabilities of the classes, row by row those of the test images.

    CIFAR-10H (Peterson et al. 2019) has about fifty answers for each of the 10,000 test images of
    CIFAR-10, in their order; a row is their shares.

    Raises:
        InputError: no such soft labels, or their file is not there or damaged.
    """
    from revar.data.datasets import dataset_spec

    if name not in SOFT:
        raise unknown("set of soft labels", name, SOFT)
    found = locate(dataset_spec(name))
    counts = one_array(found.path, "counts")
    size = (found.form.sizes["test"], found.spec.n_classes)
    votes = counts.astype(np.float64)
    if votes.shape != size or (votes < 0).any() or not (votes.sum(1) > 0).all():
        raise InputError(f'"{found.path}" has not the votes for {size[0]:,} images of {size[1]}')
    shares: NDArray[np.float64] = votes / votes.sum(1, keepdims=True)
    return shares

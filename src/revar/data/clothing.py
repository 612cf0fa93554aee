"""Clothing1M (Xiao et al. 2015): a million photos whose labels come from the text around them.

Key lists name the images of each part, two tables of key and label give noisy and clean labels.
"""

from __future__ import annotations

import numpy as np

from revar.data.keys import listed
from revar.data.source import Part, Source
from revar.data.stored import ImageFiles
from revar.library.specs import Found


def clothing1m(found: Found) -> Source:
    """Noisy labels to train on, the clean validation images as meta set, clean ones to test on.

    The clean training images are the split ``clean_train``.
    """
    folder = found.path.parent
    parts = {
        name: Part(
            ImageFiles(tuple(folder / key for key in keys), found.shape),
            np.array(labels, dtype=np.int64),
            names=tuple(keys),
        )
        for name, (keys, labels) in listed(folder).items()
    }
    return Source(
        parts["train"],
        parts["meta"],
        {"test": parts["test"]},
        splits={"clean_train": parts["clean_train"]},
    )

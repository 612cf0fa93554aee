"""Pictures made from nothing, to try every table in seconds.

Four patterns on 12 x 12 pixels, each with noise; some pictures are mixtures of two patterns, which
even people would disagree on, and their label is drawn by the mixture. The second test set has
another brightness and more noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from revar.data.source import Part, Source

SIDE, CLASSES = 12, 4
_SIZES = {"train": 320, "test": 200, "shifted": 200, "val": 120}


def generated(seed: int = 0) -> Source:
    """A source with a shifted test set, a shifted validation part and groups of two pictures."""
    parts = {name: _part(name, size, seed)[0] for name, size in _SIZES.items()}
    return Source(
        parts["train"],
        tests={"test": parts["test"], "shifted": parts["shifted"]},
        splits={"val": parts["val"]},
    )


def generated_soft_labels(seed: int = 0) -> NDArray[np.float64]:
    """[200, 4] how a crowd would label the test pictures: the mixtures they were made of."""
    return _part("test", _SIZES["test"], seed)[1]


def _part(name: str, n: int, seed: int) -> tuple[Part, NDArray[np.float64]]:
    patterns = np.random.default_rng(7).uniform(0, 1, size=(CLASSES, SIDE, SIDE, 3))
    rng = np.random.default_rng((seed, sorted(_SIZES).index(name)))
    first = np.arange(n) % CLASSES
    second = (first + rng.integers(1, CLASSES, n)) % CLASSES
    mixture = np.where(rng.random(n) < 0.5, 1.0, rng.uniform(0.5, 1.0, n))
    soft = np.zeros((n, CLASSES))
    soft[np.arange(n), first] = mixture
    soft[np.arange(n), second] += 1 - mixture
    labels = np.where(rng.random(n) < mixture, first, second)
    moved = name in ("shifted", "val")
    pictures = np.einsum("nc,chwk->nhwk", soft, patterns) * (0.7 if moved else 1.0)
    pictures += rng.normal(0, 0.5 if moved else 0.35, size=pictures.shape)
    x = np.clip(255 * pictures, 0, 255).astype(np.uint8)
    return Part(x, labels, groups=np.arange(n) // 2 if name == "train" else None), soft

"""How many examples a stratified share takes: light enough to count parts that are not read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
_FEWEST = 8
"""Examples to take off for a split even where its share is less, if a fifth of the data allows."""


TEST_SHARE = 0.2
"""Of data that come without a test set of their own: photos of PACS, Cleveland of heart disease."""


def wanted(n: int, share: float) -> float:
    """Of n examples; tiny data gives a little more than its share."""
    return max(share * n, min(_FEWEST, n // 5))


def of_each(counts: Counts, share: float) -> Counts:
    """[classes] its share of each class, rounded so that the total fits best; one stays."""
    exact = share * counts
    take = np.floor(exact).astype(np.int64)
    missing = round(share * int(counts.sum())) - int(take.sum())
    for k in np.argsort(-(exact - take), kind="stable")[: max(0, missing)]:
        take[k] += 1
    fewest: Counts = np.minimum(take, counts - 1)
    return fewest


def held_out(labels: NDArray[np.generic], share: float) -> dict[str, int]:
    """Sizes of ``train`` and ``test`` as `revar.splits.take_off` splits these labels."""
    n = len(labels)
    counts = np.unique(labels, return_counts=True)[1].astype(np.int64)
    test = int(of_each(counts, max(wanted(n, share), 2) / n).sum()) if n else 0
    return {"train": n - test, "test": test}

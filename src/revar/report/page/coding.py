"""Numbers into little text: the order of rejection, so that the page can count exactly.

The page keeps no scores. It keeps, for every score, the examples in the order of rejection, each
as its true class, how far the predicted class is from it, and its group. That is a few bits an
example, and every figure at any coverage follows by counting.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.metrics.arrays import whole_count
from revar.metrics.ranking import rank

STEPS = 1000
"""Positions of the slider over coverage: a tenth of a percent each."""
RISK_STEPS = 500
"""Positions of the slider over risk, a tenth of a percent each; risks above a half are not asked
for."""


def packed(values: NDArray[Any]) -> dict[str, str]:
    """An array as compressed text and the type the page reads it as."""
    plain = np.ascontiguousarray(values)
    # The page reads little-endian typed arrays.
    data = plain.astype(plain.dtype.newbyteorder("<")).tobytes()
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    return {"type": _TYPES[plain.dtype.name], "data": text}


_TYPES = {"uint8": "u1", "uint16": "u2", "uint32": "u4", "float64": "f8"}


def small(values: NDArray[np.integer], largest: int) -> NDArray[Any]:
    """Whole numbers in the smallest type that holds them all."""
    kind = np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.uint32
    return values.astype(kind)


def kept_at_steps(n: int) -> NDArray[np.int64]:
    """[STEPS] examples kept at each position of the slider, as `accuracy_at_coverage` has it."""
    coverages = np.arange(1, STEPS + 1) / STEPS
    kept: NDArray[np.int64] = np.maximum(whole_count(coverages * n), 1.0).astype(np.int64)
    return kept


def kept_at_risks(values: NDArray[np.float64], right: NDArray[np.bool_]) -> NDArray[np.int64]:
    """[RISK_STEPS + 1] examples kept at each risk, as `coverage_at_risk` has it, from one sort."""
    ranking = rank(values, right)
    kept = np.r_[ranking.below, ranking.total]
    errors = np.r_[0.0, np.cumsum(ranking.errors)]
    found = np.zeros(RISK_STEPS + 1, dtype=np.int64)
    for step in range(RISK_STEPS + 1):
        good = kept[errors <= step / STEPS * kept * (1 + 1e-12)]
        found[step] = int(good.max()) if len(good) else 0
    return found


def order_of_rejection(
    values: NDArray[np.float64],
    labels: NDArray[np.int64],
    predicted: NDArray[np.int64],
    n_classes: int,
    groups: NDArray[np.int64] | None,
) -> dict[str, Any]:
    """The examples of one set in the order of one score, the most certain first.

    Args:
        values: [n] uncertainty.
        labels: [n] true classes.
        predicted: [n] predicted classes, which go with this score.
        n_classes: C.
        groups: [n] numbers of groups, or none.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    tied = np.r_[False, ordered[1:] == ordered[:-1]]
    # Mostly zero, which takes no room: wrong answers are what is rare.
    offset = (predicted - labels) % n_classes
    kept = kept_at_steps(len(values))
    right = predicted == labels
    by_risk = kept_at_risks(values, right)
    coded = {
        "label": packed(small(labels[order], n_classes - 1)),
        "offset": packed(small(offset[order], n_classes - 1)),
        "tied": packed(tied.astype(np.uint8)),
        "threshold": packed(ordered[kept - 1]),
        "risk_kept": packed(by_risk.astype(np.uint32)),
        "risk_threshold": packed(ordered[np.maximum(by_risk, 1) - 1]),
    }
    if groups is not None:
        coded["group"] = packed(small(groups[order], int(groups.max(initial=0))))
    return coded

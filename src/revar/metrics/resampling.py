"""Bootstrap without sorting again: a resample is how often each example was drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.metrics.arrays import as_array, refuse_nan
from revar.metrics.ranking import Ranking

Counts = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SortedScore:
    """One score, sorted once; every resample is counts on the sorted examples.

    Attributes:
        order: [n] the examples, the most certain first.
        below: [m] where, along the order, each block of ties that has errors begins.
        end: [m] where it ends.
        failed: [errors] places of the errors along the order.
        first: [m] which of the errors is the first of its block.
    """

    order: NDArray[np.int64]
    below: NDArray[np.int64]
    end: NDArray[np.int64]
    failed: NDArray[np.int64]
    first: NDArray[np.int64]

    def drawn(self, counts: Counts) -> Ranking:
        """The ranking of [rows, n] resamples, given how often each example was drawn."""
        ordered = np.take(counts, self.order, axis=1)
        upto = np.zeros((len(counts), len(self.order) + 1), dtype=np.int32)
        np.cumsum(ordered, axis=1, out=upto[:, 1:])
        below = np.take(upto, self.below, axis=1).astype(np.float64)
        size = np.take(upto, self.end, axis=1) - below
        errors = np.zeros(below.shape)
        if len(self.failed):
            failed = np.take(ordered, self.failed, axis=1)
            errors = np.add.reduceat(failed, self.first, axis=1, dtype=np.float64)
        total = upto[:, -1].astype(np.float64)
        return Ranking(below, size, errors, total, errors.sum(axis=1))


def sort_score(scores: NDArray[Any], hits: NDArray[np.bool_]) -> SortedScore:
    """Sort [n] scores once, for any number of resamples."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(scores)]
    failed = np.flatnonzero(~hits[order])
    blocks, first = np.unique(np.searchsorted(starts, failed, side="right") - 1, return_index=True)
    return SortedScore(order, starts[blocks], ends[blocks], failed, first)


def cluster_numbers(clusters: Any, n: int) -> NDArray[np.int64] | None:
    """[n] the number of each example's cluster, from 0; none where none were given.

    Raises:
        ValueError: another shape, an example without a cluster, or a single thing to draw.
    """
    if clusters is None:
        if n < 2:
            raise ValueError("one example cannot be resampled: two or more needed")
        return None
    values = as_array(clusters)
    if values.shape != (n,):
        raise ValueError(f"clusters has shape {values.shape}: ({n},) needed")
    if values.dtype.kind == "O":
        # Missing names come as None or NaN among strings.
        missing = np.array([name is None or name != name for name in values])
        refuse_nan("clusters", np.where(missing, np.nan, 0.0))
    elif values.dtype.kind == "f":
        refuse_nan("clusters", values)
    names, numbers = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise ValueError("all examples are in one cluster: two or more are needed to resample")
    return numbers.astype(np.int64)


def draw_counts(
    numbers: NDArray[np.int64] | None, n: int, rows: int, generator: np.random.Generator
) -> Counts:
    """[rows, n] how often each of n is drawn with replacement, clusters as wholes."""
    groups = n if numbers is None else int(numbers.max()) + 1
    drawn = generator.integers(0, groups, (rows, groups))
    drawn += np.arange(rows)[:, None] * groups
    flat = np.bincount(drawn.ravel(), minlength=rows * groups).astype(np.int32)
    counts: Counts = flat.reshape(rows, groups)
    return counts if numbers is None else np.take(counts, numbers, axis=1)

"""One sort, all curves: where the errors stand when examples are ordered by uncertainty.

Every selective figure depends on a table with one row per distinct uncertainty that has errors:
the weight of the more certain examples, the weight of the tied ones, and the errors among these.
Tied examples are taken in every order and the figure is the mean over the orders, so the
expected number of errors among the k most certain grows linearly along a block of ties.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.metrics.arrays import selective_arguments, whole_count

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
_CHUNK = 1 << 18
"""Blocks at a time, so that memory does not grow with the number of errors."""
_MANY = 1 << 17
"""Examples from which on sorting in threads pays."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The errors in the order of rejection, the most certain first.

    Leading axes, where there are any, are separate problems (the resamples of a bootstrap).

    Attributes:
        below: [..., m] weight of the examples more certain than this block of ties.
        size: [..., m] weight of the block.
        errors: [..., m] weight of the errors in it.
        total: [...] weight of all examples.
        wrong: [...] weight of all errors.
        counts: whether the weights are whole numbers, so that coverages are rounded to them.
    """

    below: Floats
    size: Floats
    errors: Floats
    total: Floats
    wrong: Floats
    counts: bool = True

    @property
    def error_rate(self) -> Floats:
        """[...] share of errors."""
        return self.wrong / self.total

    def oracle(self) -> Ranking:
        """The best order of the same examples: all errors tied behind all hits."""
        right = self.total - self.wrong
        return Ranking(
            right[..., None], self.wrong[..., None], self.wrong[..., None],
            self.total, self.wrong, self.counts,
        )  # fmt: skip

    def kept(self, coverage: float) -> Floats:
        """[...] weight of the most certain that make up this coverage.

        Whole numbers are rounded down, to no less than one example.
        """
        wanted = coverage * self.total
        return np.maximum(whole_count(wanted), 1.0) if self.counts else wanted


def rank(uncertainty: Any, correct: Any, sample_weight: Any = None) -> Ranking:
    """Sort once.

    Args:
        uncertainty: [n] higher is rejected first.
        correct: [n] booleans.
        sample_weight: [n] how often each example counts; whole numbers equal repeated rows.

    Raises:
        ValueError: see `revar.metrics.arrays.selective_arguments`.
    """
    scores, hits, weights = selective_arguments(uncertainty, correct, sample_weight)
    if weights is None:
        return among(np.sort(scores[~hits]), _pieces(scores[hits]))
    counts = bool((weights == np.floor(weights)).all())
    # Real weights are summed with rounding: tied rows need an order that is not the given one.
    order = np.argsort(scores, kind="stable") if counts else np.lexsort((weights, hits, scores))
    starts = _starts(scores[order])
    ordered_weights = weights[order]
    size: Floats = np.add.reduceat(ordered_weights, starts)
    wrong: Floats = np.add.reduceat(np.where(hits[order], 0.0, ordered_weights), starts)
    before: Floats = np.cumsum(size) - size
    there = wrong > 0
    return Ranking(
        before[there], size[there], wrong[there], np.asarray(size.sum()),
        np.asarray(wrong.sum()), counts=counts,
    )  # fmt: skip


def among(failed: NDArray[Any], right: Sequence[NDArray[Any]]) -> Ranking:
    """The ranking without weights: only how many hits lie below each error must be known.

    Args:
        failed: [m] uncertainty of the errors, sorted.
        right: uncertainty of the hits, in pieces; a thread each, where there are several.
    """
    starts = _starts(failed)
    values = failed[starts]
    errors: NDArray[np.int64] = np.diff(np.r_[starts, len(failed)])
    below, size = starts.astype(np.float64), errors.astype(np.float64)
    with ThreadPoolExecutor(len(right)) if len(right) > 1 else nullcontext() as pool:
        for first, tied, count in (pool.map if pool else map)(partial(_place, values), right):
            below += first
            size[tied] += count
    total = float(len(failed) + sum(map(len, right)))
    return Ranking(
        below, size, errors.astype(np.float64), np.asarray(total), np.asarray(float(len(failed)))
    )


def _place(values: NDArray[Any], part: NDArray[Any]) -> tuple[Places, Places, Places]:
    """How many of a part lie below each value, which values it holds, and how often."""
    ordered = np.sort(part)
    first: Places = np.searchsorted(ordered, values, side="left")
    if len(ordered) == 0:
        return first, first[:0], first[:0]
    # The other end of a tie is looked for only where there is one.
    tied: Places = np.flatnonzero(ordered[np.minimum(first, len(ordered) - 1)] == values)
    return first, tied, np.searchsorted(ordered, values[tied], side="right") - first[tied]


def _pieces(values: NDArray[Any]) -> list[NDArray[Any]]:
    threads = min(os.cpu_count() or 1, 4) if len(values) >= _MANY else 1
    return np.array_split(values, threads)


def _starts(ordered: NDArray[Any]) -> NDArray[np.int64]:
    """Where each distinct value of a sorted array begins."""
    if len(ordered) == 0:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])


def harmonic(start: Floats, length: Floats) -> Floats:
    """``sum_{k=start+1}^{start+length} 1 / k``, extended to real numbers by the digamma function.

    For large starts the difference is taken term by term in the asymptotic series, so that
    nothing cancels.
    """
    from scipy.special import digamma

    x = np.asarray(start, dtype=np.float64) + 1.0
    y = x + length
    value = np.log1p(length / x) + length / (2.0 * x * y)
    inverse_x, inverse_y = 1.0 / (x * x), 1.0 / (y * y)
    value -= (inverse_y - inverse_x) / 12.0
    value += (inverse_y**2 - inverse_x**2) / 120.0
    value -= (inverse_y**3 - inverse_x**3) / 252.0
    small = x < 65.0
    if small.any():
        value[small] = digamma(y[small]) - digamma(x[small])
    return np.asarray(value)


def summed_risk(ranking: Ranking, upto: Floats) -> Floats:
    """[...] ``sum_{k <= upto} errors among the k most certain / k``.

    An error at place p adds ``1/p + ... + 1/upto``; the places of a block of ties are averaged.
    """
    result = np.zeros(ranking.total.shape)
    limit = np.asarray(upto, dtype=np.float64)[..., None]
    for first in range(0, ranking.below.shape[-1], _CHUNK):
        part = slice(first, first + _CHUNK)
        size, errors = ranking.size[..., part], ranking.errors[..., part]
        below = np.minimum(ranking.below[..., part], limit)
        inside = np.clip(limit - below, 0.0, size)
        # A block of no weight, or beyond the limit, adds nothing; one is put where zero divides.
        there = inside > 0
        divisor = np.where(there, inside, 1.0)
        share = np.where(there, inside / np.where(size > 0, size, 1.0), 0.0)
        tail = harmonic(below, limit - below)
        if not (inside == 1.0).all():
            # Places are averaged over ties; the mean of a single place is the place itself.
            tail -= (below + inside) / divisor * harmonic(below, inside) - 1.0
        result = result + (errors * share * tail).sum(axis=-1)
    return result


def expected_errors(ranking: Ranking, kept: Floats) -> Floats:
    """Expected weight of errors among the most certain of this weight; one problem only.

    Args:
        ranking: without leading axes.
        kept: [...] weights in [0, total].
    """
    places = np.stack([ranking.below, ranking.below + ranking.size], axis=-1).ravel()
    after = np.cumsum(ranking.errors)
    errors = np.stack([after - ranking.errors, after], axis=-1).ravel()
    if len(places) == 0:
        return np.zeros(np.shape(kept))
    return np.interp(kept, places, errors)


def summed_generalised_risk(ranking: Ranking, upto: Floats) -> Floats:
    """[...] integral of the errors among the most certain over their weight, up to ``upto``."""
    limit = np.asarray(upto, dtype=np.float64)[..., None]
    inside = np.clip(limit - ranking.below, 0.0, ranking.size)
    beyond = np.maximum(limit - ranking.below - ranking.size, 0.0)
    slope = ranking.errors / np.where(ranking.size > 0, ranking.size, 1.0)
    result: Floats = (slope * inside * inside / 2.0 + ranking.errors * beyond).sum(axis=-1)
    return result

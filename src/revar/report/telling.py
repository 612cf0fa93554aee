"""Which rows of a column can be told from its best one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

SIGNIFICANCE = 0.05
_ROUNDING = 1e-12
"""Means are level within this: they are sums of the same numbers in another order."""


def told_from(values: Mapping[str, Mapping[int, float]], best: str) -> set[str]:
    """The rows that two tests, both at 5 %, tell from the best.

    - Tukey's range test, which knows that the best was picked after looking. Its variance is that
      of an analysis of variance with rows and seeds: what is left when the mean of every row and
      of every seed is taken off, ``(R - 1)(S - 1)`` degrees of freedom.
    - The row's own t-test, paired by seed. The first takes all rows to spread alike: one that
      spreads little is told too easily where another spreads much.

    With one seed nothing can be told, and nothing of a row that lacks one of the best row's seeds.

    Args:
        values: of each row, by seed.
        best: the row of the best mean.
    """
    seeds = sorted(values[best])
    whole = [row for row in values if set(seeds) <= set(values[row])]
    if len(seeds) < 2 or len(whole) < 2:
        return set()
    table = np.array([[values[row][seed] for seed in seeds] for row in whole])
    means = table.mean(axis=1, keepdims=True)
    left = table - means - table.mean(axis=0) + table.mean()
    freedom = (len(whole) - 1) * (len(seeds) - 1)
    pooled = np.sqrt((left**2).sum() / freedom / len(seeds))
    lead = table[whole.index(best)] - table
    gaps = np.abs(lead.mean(axis=1))
    own = lead.std(axis=1, ddof=1) / np.sqrt(len(seeds))
    told = gaps > np.maximum(pooled * _range(len(whole), freedom), own * _t(len(seeds) - 1))
    return {row for row, gap, is_told in zip(whole, gaps, told, strict=True)
            if is_told and gap > _ROUNDING}  # fmt: skip


@cache
def _range(rows: int, freedom: int) -> float:
    """Largest of so many means less the smallest, in standard errors: rarely more by accident."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1 - SIGNIFICANCE, rows, freedom))


@cache
def _t(freedom: int) -> float:
    from scipy.stats import t as student

    return float(student.ppf(1 - SIGNIFICANCE / 2, freedom))

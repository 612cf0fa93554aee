"""Resamples of few seeds, made as wide as so few allow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from revar.metrics.ranking import Floats

_MANY = 1e5
"""Degrees of freedom from which on Student's t is taken for normal."""


def moved_by_seeds(counts: NDArray[Any], by_seed: Floats) -> Floats:
    """[resamples, columns] how far the seeds that were drawn move the mean over seeds.

    Drawing S seeds again gives their mean only (S - 1)/S of its variance, which is put right. The
    figures are those of the examples as they are: on resampled ones, what an example does in one
    seed alone would count once more.

    Args:
        counts: [resamples, seeds] how often each was drawn.
        by_seed: [columns, seeds] on the examples as they are.
    """
    seeds = by_seed.shape[1]
    if seeds == 1:
        return np.zeros((len(counts), len(by_seed)))
    shares = (counts - 1.0) / np.sqrt(seeds * (seeds - 1))
    moved: Floats = shares @ by_seed.T
    return moved


def for_few_seeds(drawn: Floats, by_seed: Floats) -> Floats:
    """The same resamples, with the tails that a variance of few seeds asks for.

    Resamples of every rank go from the quantile of the normal distribution to that of Student's t,
    with the degrees of freedom of Satterthwaite: S - 1 where seeds alone decide, without bound
    where examples do. With one seed nothing changes.

    Args:
        drawn: [resamples, columns] by examples and seeds.
        by_seed: [columns, seeds] on the examples as they are.
    """
    seeds = by_seed.shape[1]
    if seeds == 1:
        return drawn
    wide = drawn.copy()
    of_seeds = by_seed.var(axis=1, ddof=1) / seeds
    for column, (centre, variance) in enumerate(zip(by_seed.mean(axis=1), of_seeds, strict=True)):
        defined = ~np.isnan(drawn[:, column])
        values = drawn[defined, column]
        # Nothing spreads where nothing is undecided, such as in a difference to itself.
        if variance > 0 and len(values):
            freedom = (seeds - 1) * max(1.0, values.var() / variance) ** 2
            wide[defined, column] = centre + (values - centre) * _stretch(values, freedom)
    return wide


def _stretch(values: Floats, freedom: float) -> Floats:
    """[n] quantile of Student's t over that of the normal, at the rank of each value."""
    if freedom > _MANY:
        return np.ones(len(values))
    ordered = np.sort(values)
    below, upto = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    share = (below + upto) / (2 * len(values))
    normal = ndtri(share)
    away = np.abs(normal) > 1e-6
    stretch: Floats = np.ones(len(values))
    stretch[away] = stdtrit(freedom, share[away]) / normal[away]
    return stretch

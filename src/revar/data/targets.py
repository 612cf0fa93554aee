"""Unlabelled points of a test domain: some are given to training and are then not scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from revar.data.readers import joined
from revar.data.source import Part, Source
from revar.errors import InputError, unknown
from revar.randomness import derive


def set_aside(part: Part, share: float = 0.1, seed: int = 0) -> tuple[Part, Part]:
    """Some of a test domain without labels, and the rest to score on.

    Drawn at random, whole groups where there are any; labels have no say in it, since those who
    adapt to a new place do not know them.

    Args:
        part: the test domain.
        share: of its examples to give away.
        seed: of the draw.

    Returns:
        The unlabelled points, and the labelled rest.

    Raises:
        InputError: a share that leaves one of the two empty.
    """
    if not 0.0 < share < 1.0:
        raise InputError(f"share is {share:g}, it must be in (0, 1)")
    groups = np.arange(len(part)) if part.groups is None else part.groups
    members, of_group = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(derive(seed, "unlabelled")).permutation(len(members))
    sizes = np.bincount(of_group, minlength=len(members))[order].cumsum()
    # As many whole groups as come nearest to the share.
    number = int(np.abs(sizes - share * len(part)).argmin()) + 1
    given = np.isin(of_group, order[:number])
    if given.all() or share * len(part) < 0.5:
        raise InputError(f"{len(part)} examples are too few to set {share:.0%} of them aside")
    away = part.take(np.flatnonzero(given))
    return replace(away, y=None, weights=None), part.take(np.flatnonzero(~given))


def adapting(
    source: Source, targets: str | tuple[str, ...], share: float = 0.1, seed: int = 0
) -> Source:
    """The source with points of some of its test sets as unlabelled ones, left out of those sets.

    Test sets that are the same images, such as one under several corruptions, give the same ones.

    Args:
        source: with these test sets.
        targets: their names.
        share: of each to give away.
        seed: of the draw.

    Raises:
        InputError: no such test set, or the source has unlabelled points already.
    """
    names = (targets,) if isinstance(targets, str) else targets
    for name in names:
        if name not in source.tests:
            raise unknown("test set", name, source.tests)
    if source.unlabelled is not None:
        raise InputError("the data has unlabelled points of its own")
    halves = {name: set_aside(source.tests[name], share, seed) for name in names}
    scored = {name: rest for name, (_, rest) in halves.items()}
    given = joined([away for away, _ in halves.values()])
    return replace(source, tests={**source.tests, **scored}, unlabelled=given)

"""From what a cell asks for to data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from revar.data.noisy import LabelNoise
from revar.data.source import Part, Source, evaluation_part, load_source
from revar.data.targets import adapting
from revar.errors import InputError, unknown
from revar.randomness import derive
from revar.recipe import Recipe
from revar.registry import DATASETS
from revar.tables.cell import Cell, DataChoice

HARD = "hard"
"""The test set that holds what a good classifier gets wrong (`revar.data.hard`)."""


def source_of(cell: Cell, recipe: Recipe) -> Source:
    """The data of a cell.

    Raises:
        InputError: it is not here, or has no such parts.
    """
    choice = cell.data
    source = _read(choice, cell.seed)
    train = source.train if choice.train is None else few(source.train, choice.train, cell.seed)
    meta = source.meta
    if choice.meta is not None:
        parts = {**source.splits, **source.tests}
        if choice.meta not in parts:
            raise unknown(f"part of {choice.name}", choice.meta, parts)
        meta = parts[choice.meta]
    kept = {name: part for name, part in source.splits.items() if name == "tune"}
    source = replace(source, train=train, meta=meta, splits=kept, tests=_tests(source, choice))
    if choice.unlabelled:
        source = adapting(source, tuple(map(set_name, choice.unlabelled)), seed=cell.seed)
    if choice.label_noise is not None:
        noise = LabelNoise.parse(choice.label_noise, clean_meta=choice.clean_meta)
        source = noise.added_to(source, meta_share=recipe.splits.meta, seed=cell.seed)
    return source


def _read(choice: DataChoice, seed: int) -> Source:
    if choice.name == "generated":
        from revar.data.generated import generated

        return generated(seed)
    return load_source(choice.name)


def _tests(source: Source, choice: DataChoice) -> dict[str, Part]:
    from revar.data.corruptions import Corruption, corrupted

    tests = {}
    for name in choice.tests:
        base, plus, corruption = name.partition("+")
        if base == HARD:
            from revar.data.hard import mistaken

            tests[base] = mistaken(source.tests["test"])
            continue
        part = _test_set(source, choice, base)
        # The same examples for every method and seed.
        part = part if choice.test is None else few(part, choice.test, 0)
        # A colon is no good in the name of a file.
        tests[set_name(name)] = corrupted(part, Corruption.parse(corruption)) if plus else part
    return tests


def _test_set(source: Source, choice: DataChoice, name: str) -> Part:
    """A test set of the data, or what another data set, or a part of it, is tested on."""
    if name in source.tests and name != choice.meta:
        return source.tests[name]
    if name == choice.meta or name.partition(":")[0] not in {entry.name for entry in DATASETS}:
        raise unknown(f"test set of {choice.name}", name, source.tests)
    part = evaluation_part(load_source(name))
    ours, theirs = (tuple(x.shape[1:]) for x in (source.train.x, part.x))
    if ours != theirs:
        raise InputError(f'"{name}" has images {theirs}, "{choice.name}" has {ours}: no test of it')
    return part


def set_name(name: str) -> str:
    """What a test set is called in a finished cell.

    >>> set_name("test+fog:3")
    'test+fog-3'
    """
    return name.replace(":", "-")


def few(part: Part, n: int, seed: int) -> Part:
    """At most n examples, whole groups where there are any, the shares of classes as they were."""
    if n >= len(part):
        return part
    rng = np.random.default_rng(derive(seed, "few"))
    if part.groups is not None:
        members, of_group = np.unique(part.groups, return_inverse=True)
        order = rng.permutation(len(members))
        sizes = np.bincount(of_group)[order].cumsum()
        chosen = order[: max(int(np.searchsorted(sizes, n, side="right")), 1)]
        return part.take(np.flatnonzero(np.isin(of_group, chosen)))
    assert part.y is not None
    _, number = np.unique(part.y, return_inverse=True)
    # Sorted by a random place within the class, as a share of it: the first n have all shares.
    place = np.empty(len(part))
    for label in range(number.max() + 1):
        rows = np.flatnonzero(number == label)
        place[rows] = (rng.permutation(len(rows)) + rng.random()) / len(rows)
    return part.take(np.sort(np.argsort(place, kind="stable")[:n]))

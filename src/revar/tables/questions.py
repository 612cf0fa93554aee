"""A table: what to ask of which cells, and what is found."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from revar.errors import InputError, UndefinedMetricWarning
from revar.report.tables import NOT_RUN
from revar.tables.cell import Cell
from revar.tables.store import CellStore, Finished

Figure = Callable[[Mapping[str, Finished]], float]
"""Finished cells of one seed, by the part they play, to a number."""


@dataclass(frozen=True, slots=True)
class Question:
    """One place of a table.

    Attributes:
        cells: what it needs, by the part each one plays; the seed is filled in.
        figure: what is asked of them.
        seeds: of how many seeds at most; ``None`` is asked of all.
    """

    cells: Mapping[str, Cell]
    figure: Figure
    seeds: int | None = None

    def asked_of(self, seeds: int) -> range:
        """The seeds it is asked of, where the table has so many."""
        return range(seeds if self.seeds is None else min(seeds, self.seeds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Rows by columns of one metric.

    Attributes:
        name: of the table; a further metric of the same table follows after a slash.
        title: what it shows, one line.
        metric: what the numbers are.
        higher: whether more is better; ``None`` where neither is.
        percent: whether figures are shares, to be shown times 100.
        rows: names.
        columns: names.
        questions: by (row, column); a place may be empty.
        place: where all columns are asked, if they are not named after it.
        stands_for: what is asked instead of the paper's data, by the name of the place.
        left_out: why a place has no columns here, by its name.
    """

    name: str
    title: str
    metric: str
    higher: bool | None = True
    percent: bool = True
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    questions: Mapping[tuple[str, str], Question]
    place: str = ""
    stands_for: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one place of a table came to.

    Attributes:
        values: by seed, of the finished cells.
        digests: of the cells behind it, by seed.
        reason: why there is none, or not for every seed.
        incomplete: whether a cell is missing or failed; a figure that is undefined on its data is
            an answer.
    """

    values: Mapping[int, float] = field(default_factory=dict)
    digests: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    reason: str | None = None
    incomplete: bool = False

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(list(self.values.values()))) if self.values else math.nan

    @property
    def spread(self) -> float:
        """Standard deviation over seeds."""
        many = len(self.values) > 1
        return float(np.std(list(self.values.values()), ddof=1)) if many else math.nan


def asked_of(grid: Grid, seeds: int) -> Grid:
    """The same, of no more seeds than so many."""
    fewer = {place: replace(question, seeds=seeds) for place, question in grid.questions.items()}
    return replace(grid, questions=fewer)


def wanted(grids: Sequence[Grid], seeds: int) -> list[Cell]:
    """Every cell that tables need, each once, one seed of everything before the next."""
    found: dict[Cell, None] = {}
    for seed in range(seeds):
        for grid in grids:
            for question in grid.questions.values():
                if seed in question.asked_of(seeds):
                    for cell in question.cells.values():
                        found.setdefault(cell.seeded(seed))
    return list(found)


def answer(question: Question, store: CellStore, seeds: int, failed: Mapping[str, str]) -> Answer:
    """Ask one place of a table.

    Args:
        question: it.
        store: with finished cells.
        seeds: how many.
        failed: reasons of failed cells, by digest.
    """
    values, digests = {}, {}
    reason = None
    incomplete = False
    for seed in question.asked_of(seeds):
        cells = {part: cell.seeded(seed) for part, cell in question.cells.items()}
        finished = {part: store.find(cell) for part, cell in cells.items()}
        there = {part: one for part, one in finished.items() if one is not None}
        if len(there) < len(cells):
            missing = next(cells[part].digest for part, one in finished.items() if one is None)
            reason, incomplete = failed.get(missing, NOT_RUN), True
            continue
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UndefinedMetricWarning)
                value = question.figure(there)
        except InputError as error:
            reason, incomplete = str(error), True
            continue
        if math.isnan(value):
            reason = str(caught[0].message) if caught else "undefined on this data"
            continue
        values[seed] = value
        digests[seed] = tuple(one.path.name for one in there.values())
    return Answer(values, digests, reason, incomplete)

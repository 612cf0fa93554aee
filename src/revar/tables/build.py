"""How grids are put together: rows by columns, cells shared wherever two places need the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from revar.tables import figures
from revar.tables.cell import Cell
from revar.tables.figures import OfSet, over
from revar.tables.places import Place, Scale
from revar.tables.questions import Grid, Question
from revar.tables.ways import WAYS, Way

MAIN = ("eyepacs", "aptos", "cifar100", "imagenet-100", "imagenet-1k")
"""The columns of the paper's main tables."""
SELECTIVE = ("mcd", "gamblers", "selectivenet", "sat", "revar", "revar-paper")
"""The rows of its tables of selection."""


@dataclass(frozen=True, slots=True)
class Request:
    """One place of a table.

    Attributes:
        way: the method and its score.
        place: the data.
        coverage: where the column names one; else everything is accepted.
    """

    way: Way
    place: Place
    coverage: float = 1.0


Ask = Callable[[Request], OfSet]
"""Turns a place of a table into what is asked there."""

AUARC: Ask = lambda request: figures.auarc(request.way.score)  # noqa: E731
ECE: Ask = lambda _: figures.plain("ece")  # noqa: E731
ACCURACY: Ask = lambda r: figures.accuracy_at(r.coverage, r.way.score)  # noqa: E731
ERROR: Ask = lambda r: figures.error_at(r.coverage, r.way.score)  # noqa: E731
AUC: Ask = lambda r: figures.auc_at(r.coverage, r.way.score)  # noqa: E731
SELECTIVE_ECE: Ask = lambda r: figures.selective_ece_at(r.coverage, r.way.score)  # noqa: E731


def at_coverages(
    places: Sequence[str], coverages: Sequence[float] = (0.4, 0.5, 0.6, 0.8, 1.0)
) -> tuple[str, ...]:
    """Columns of places by coverages.

    >>> at_coverages(("aptos",), (0.4, 1.0))
    ('aptos@0.4', 'aptos@1.0')
    """
    return tuple(f"{place}@{coverage}" for place in places for coverage in coverages)


def split_column(column: str) -> tuple[str, float]:
    """A column's place and its coverage.

    >>> split_column("aptos@0.4"), split_column("cifar100")
    (('aptos', 0.4), ('cifar100', 1.0))
    """
    place, at, coverage = column.partition("@")
    return place, float(coverage) if at else 1.0


def stand_ins(scale: Scale, columns: Sequence[str]) -> dict[str, str]:
    """What is asked at a scale instead of the paper's data, by the name of the place."""
    places = dict.fromkeys(split_column(column)[0] for column in columns)
    found = {name: scale.places[name].stands_for for name in places if name in scale.places}
    return {name: text for name, text in found.items() if text}


def left_out(scale: Scale, columns: Sequence[str]) -> dict[str, str]:
    """Why places are not asked at a scale, by their names; those that are asked are not named."""
    missing = dict.fromkeys(split_column(column)[0] for column in columns)
    return {
        name: scale.left_out.get(name, f"scale {scale.name} has no data for it")
        for name in missing
        if name not in scale.places
    }


def cell_at(way: Way, place: Place) -> Cell:
    """The run behind a way at a place."""
    return place.setting.cell(way, unlabelled=place.tests if way.unlabelled else ())


def grid(
    scale: Scale,
    name: str,
    title: str,
    metric: str,
    rows: Sequence[str],
    columns: Sequence[str],
    ask: Ask,
    *,
    higher: bool | None = True,
    percent: bool = True,
    change: Callable[[Way], Way] | None = None,
) -> Grid:
    """Every method at every place; places that the scale does not have are left out, and named.

    Args:
        scale: says where the columns are.
        name: of the table, and after a slash of the metric.
        title: one line.
        metric: what the numbers are.
        rows: names of `WAYS`.
        columns: names of places, ``place@coverage``.
        ask: the figure.
        higher: whether more is better.
        percent: whether figures are shares.
        change: of every way, such as a further field.
    """
    questions = {}
    there = [column for column in columns if split_column(column)[0] in scale.places]
    for row in rows:
        way = WAYS[row] if change is None else change(WAYS[row])
        for column in there:
            name_of_place, coverage = split_column(column)
            place = scale.places[name_of_place]
            figure = over(place.tests, ask(Request(way, place, coverage)))
            questions[row, column] = Question({"cell": cell_at(way, place)}, figure)
    return Grid(
        name=name, title=title, metric=metric, higher=higher, percent=percent, rows=tuple(rows),
        columns=tuple(there), questions=questions, stands_for=stand_ins(scale, there),
        left_out=left_out(scale, columns),
    )  # fmt: skip

"""What a published table is, and how its numbers are written down here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from revar.errors import InputError

_CELL = re.compile(r"(\d+(?:\.\d+)?)(?:±(\d+(?:\.\d+)?))?")
_ABSENT = "-"


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One printed number.

    Attributes:
        mean: as printed, in the unit of its table.
        spread: the printed standard deviation, over five runs by the paper's text; None where
            there is none.
    """

    mean: float
    spread: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """The numbers of one metric in one table or figure of the paper.

    Attributes:
        name: a name of `revar.published.TABLES`; a further metric of the same table follows after
            a slash, as in ``dr-coverage/auc``.
        label: of the table or figure in the paper's source; empty where it is text only.
        caption: what it shows, in one line.
        metric: what the numbers are.
        higher_is_better: says nothing where ``metric`` is a count or a correlation.
        percent: whether the numbers are percentages.
        rows: methods, mostly, whichever way the paper prints them; ``revar`` is its "Ours".
        columns: data sets, mostly; ``aptos@0.4`` is that set at coverage 0.4.
        values: by (row, column); empty for a picture, and without what is not printed.
        notes: where the paper contradicts itself, and what it leaves unsaid.
    """

    name: str
    label: str
    caption: str
    metric: str
    higher_is_better: bool = True
    percent: bool = True
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    values: Mapping[tuple[str, str], PublishedValue] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind, names in (("row", self.rows), ("column", self.columns)):
            if len(set(names)) != len(names):
                raise InputError(f'published table "{self.name}" has a {kind} twice: {names}')
        for row, column in self.values:
            if row not in self.rows or column not in self.columns:
                msg = f'published table "{self.name}" has a value at an unknown ({row}, {column})'
                raise InputError(msg)
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows, columns and values of a table, before it has a name."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Mapping[tuple[str, str], PublishedValue]


def read_grid(text: str) -> Grid:
    """Read numbers that are written down as a table.

    A line of column names comes first, then a line for every row: its name and its numbers, with
    ``-`` for what is not printed. After an empty line further columns of the same rows may follow.

    >>> read_grid('''
    ...          camelyon17  iwildcam
    ...     mcd  74.99±0.1   -
    ... ''').values
    {('mcd', 'camelyon17'): PublishedValue(mean=74.99, spread=0.1)}

    Raises:
        InputError: a line of another length, a number that is none, other rows in a later block,
            or a column twice.
    """
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    values: dict[tuple[str, str], PublishedValue] = {}
    for block in re.split(r"\n\s*\n", text.strip()):
        heads, *lines = (line.split() for line in block.strip().splitlines())
        names = tuple(line[0] for line in lines)
        if rows and names != rows:
            raise InputError(f"rows {names} follow on {rows}: every block needs the same")
        if set(heads) & set(columns):
            raise InputError(f"columns {heads} follow on {columns}: every column comes once")
        rows, columns = names, (*columns, *heads)
        for name, *cells in lines:
            if len(cells) != len(heads):
                msg = f'row "{name}" has {len(cells)} numbers, the line of columns {len(heads)}'
                raise InputError(msg)
            for head, cell in zip(heads, cells, strict=True):
                if cell != _ABSENT:
                    values[name, head] = _read_value(cell)
    return Grid(rows, columns, values)


def _read_value(cell: str) -> PublishedValue:
    found = _CELL.fullmatch(cell)
    if not found:
        raise InputError(f'"{cell}" is no number, no mean±spread and no "{_ABSENT}"')
    mean, spread = found.groups()
    return PublishedValue(float(mean), None if spread is None else float(spread))


def printed(
    text: str,
    *,
    name: str,
    label: str,
    caption: str,
    metric: str,
    higher_is_better: bool = True,
    percent: bool = True,
    notes: tuple[str, ...] = (),
) -> PublishedTable:
    """A table with the numbers of ``text``, see `read_grid` and `PublishedTable`."""
    grid = read_grid(text)
    return PublishedTable(
        name=name,
        label=label,
        caption=caption,
        metric=metric,
        higher_is_better=higher_is_better,
        percent=percent,
        rows=grid.rows,
        columns=grid.columns,
        values=grid.values,
        notes=notes,
    )

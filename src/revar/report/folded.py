"""A table for the terminal that is as wide as the terminal: what does not fit follows below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Folded:
    """Rows by columns.

    Attributes:
        title: of it.
        rows: names.
        columns: name to a cell for each row, with markup; a cell may have several lines.
    """

    title: str
    rows: Sequence[str]
    columns: Mapping[str, Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """One table, or several with some of the columns each."""
        for number, names in enumerate(self.parts(options.max_width)):
            table = Table(title="" if number else self.title, title_justify="left")
            table.add_column("", no_wrap=True)
            for name in names:
                table.add_column(name, justify="right", no_wrap=True)
            for place, row in enumerate(self.rows):
                table.add_row(row, *(self.columns[name][place] for name in names))
            yield table

    def parts(self, width: int) -> list[list[str]]:
        """Names of the columns that stand side by side: as many as fit, at least one.

        Args:
            width: characters.
        """
        # A frame and a space on either side of every cell.
        whole = width - 4 - max((len(row) for row in self.rows), default=0)
        parts: list[list[str]] = [[]]
        room = whole
        for name, cells in self.columns.items():
            lines = [line for cell in cells for line in Text.from_markup(cell).plain.split("\n")]
            needed = 3 + max(map(len, [name, *lines]))
            if needed > room and parts[-1]:
                parts.append([])
                room = whole
            parts[-1].append(name)
            room -= needed
        return parts

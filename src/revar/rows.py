"""What is remembered of single examples: tables with a row for each, shared by all processes.

Of a table of N rows a process keeps those of `World.span`, a P-th, and one more that stays zero and
stands for the rows of all others. So who owns what is settled by arithmetic on the device: nothing
is sorted out on the host, whatever examples a batch has. Alone a process keeps the table, and
nothing but the table.

Batches are positions and values of all processes (`revar.sharded`). To write needs no message, to
read one: of the rows of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from revar.errors import InputError
from revar.parallel import World, world

CHUNK = 1 << 26
"""Bytes sent at a time where a table is put together or spread."""


class Rows(nn.Module):
    """A module with tables; each is a buffer, with its own name in a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self._world = world()
        self._sizes: dict[str, int] = {}

    @property
    def shared(self) -> bool:
        """Whether other processes keep most of it."""
        return self._world.size > 1

    def size(self, name: str) -> int:
        """N, of a table."""
        return self._sizes[name]

    @property
    def names(self) -> list[str]:
        """Of the tables."""
        return list(self._sizes)

    def add_rows(self, name: str, size: int, *shape: int, fill: float = 0.0) -> None:
        """Make a table.

        Args:
            name: of the buffer.
            size: N, how many examples there are.
            shape: of a row; a single number if there is none.
            fill: what every number is at first.
        """
        self._sizes[name] = size
        if not self.shared:
            self.register_buffer(name, torch.full((size, *shape), fill))
            return
        table = torch.full((len(self._world.span(size)) + 1, *shape), fill)
        table[-1] = 0
        self.register_buffer(name, table)

    def read(self, name: str, index: Tensor) -> Tensor:
        """[n, ...] the rows of a batch, on every process.

        Args:
            name: of the table.
            index: [n] positions, equal on every process.
        """
        table = self._table(name)
        if not self.shared:
            return table[index]
        rows = table[self._places(name, index)[1]]
        # As bytes, of which all but one process have zeros: no rounding, and -0 stays -0.
        self._world.sum_(rows.view(torch.uint8))
        return rows

    def write(self, name: str, index: Tensor, values: Tensor) -> None:
        """Set the rows of a batch.

        Args:
            name: of the table.
            index: [n] positions, all different.
            values: [n, ...] equal on every process, or at least where it keeps the row.
        """
        table = self._table(name)
        if not self.shared:
            table[index] = values
            return
        own, places = self._places(name, index)
        table[places] = torch.where(own.view(-1, *[1] * (values.ndim - 1)), values, 0)

    def change(self, name: str, index: Tensor, how: Callable[[Tensor], Tensor]) -> None:
        """Replace the rows of a batch without reading them: no message.

        Args:
            name: of the table.
            index: [n] positions, all different.
            how: [n, ...] old rows to new ones, each by itself; those of others are zeros.
        """
        table = self._table(name)
        places = self._places(name, index)[1] if self.shared else index
        self.write(name, index, how(table[places]))

    def whole(self, name: str) -> Tensor:
        """[N, ...] all rows on every process; for tables of a number a row."""
        table, size = self._table(name), self._sizes[name]
        if not self.shared:
            return table
        # Who has a row less than the first fills it up with the one of zeros.
        everyone = self._world.gather(table[: len(self._world.span(size, 0))])
        counts = [len(self._world.span(size, rank)) for rank in range(self._world.size)]
        return torch.cat([rows[:count] for rows, count in zip(everyone, counts, strict=True)])

    def _table(self, name: str) -> Tensor:
        table: Tensor = getattr(self, name)
        return table

    def _places(self, name: str, index: Tensor) -> tuple[Tensor, Tensor]:
        """[n] which rows are this process's own, and [n] where in its part of the table."""
        size = self._sizes[name]
        span = self._world.span(size)
        # Alone a wrong position is an error; here it would be nobody's row.
        torch._assert_async(((index >= 0) & (index < size)).all(), "a position outside the table")
        own = (index >= span.start) & (index < span.stop)
        return own, torch.where(own, index - span.start, len(span))

    def gathered(self, name: str) -> Tensor | None:
        """[N, ...] all rows on the host of the first process; all must come."""
        table, everyone = self._table(name), self._world
        own = table[: len(everyone.span(self._sizes[name]))]
        if not everyone.first:
            for piece in _pieces(own):
                everyone.send(piece.cpu(), 0)
            return None
        found = torch.empty((self._sizes[name], *table.shape[1:]), dtype=table.dtype)
        found[: len(own)] = own
        for rank in range(1, everyone.size):
            theirs = everyone.span(len(found), rank)
            for piece in _pieces(found[theirs.start : theirs.stop]):
                everyone.receive_(piece, rank)
        return found

    def spread(self, name: str, found: Tensor | None) -> None:
        """Take the own rows of a table; all must come.

        Args:
            name: of the table.
            found: [N, ...] all rows, on the host of the first process.
        """
        table, everyone = self._table(name), self._world
        own = table[: len(everyone.span(self._sizes[name]))]
        if found is None:
            for piece in _pieces(own):
                piece.copy_(everyone.receive_(torch.empty_like(piece, device="cpu"), 0))
            return
        own.copy_(found[: len(own)])
        for rank in range(1, everyone.size):
            theirs = everyone.span(len(found), rank)
            for piece in _pieces(found[theirs.start : theirs.stop]):
                everyone.send(piece.to(table.dtype), rank)

    def become_whole(self, tables: Mapping[str, Tensor]) -> None:
        """Keep these tables instead of parts of them, as a process alone does."""
        self._world = World()
        for name in self._sizes:
            self.register_buffer(name, tables[name])


def shared_rows(module: nn.Module) -> dict[str, Tensor]:
    """Tables of which this process has a part, by their names in the state of a module."""
    return {full: rows.get_buffer(name) for full, rows, name in _shared(module)}


def gather_rows(module: nn.Module) -> dict[str, Tensor]:
    """The same tables whole, on the host of the first process; all must come."""
    tables = {full: rows.gathered(name) for full, rows, name in _shared(module)}
    return {full: table for full, table in tables.items() if table is not None}


def check_rows(module: nn.Module, tables: Mapping[str, Tensor]) -> None:
    """Refuse tables that are not those of this module.

    Raises:
        InputError: one is missing, or has rows of other examples.
    """
    for full, rows, name in _shared(module):
        wanted = [rows.size(name), *rows.get_buffer(name).shape[1:]]
        found = list(tables[full].shape) if full in tables else "missing"
        if found != wanted:
            raise InputError(
                f"the checkpoint does not fit the data: {full} is {found}, not {wanted}"
            )


def spread_rows(module: nn.Module, tables: Mapping[str, Tensor]) -> None:
    """Bring every process to the tables of the first; all must come."""
    for full, rows, name in _shared(module):
        rows.spread(name, tables.get(full))


def end_sharing(module: nn.Module) -> None:
    """Give the first process all rows, on the host, for what it does alone; all must come."""
    tables = gather_rows(module)
    if world().first:
        for prefix, rows in _modules(module):
            rows.become_whole({name: tables[f"{prefix}{name}"] for name in rows.names})


def _modules(module: nn.Module) -> list[tuple[str, Rows]]:
    """Those with shared tables, each after the beginning of its names."""
    found = ((f"{path}." if path else "", each) for path, each in module.named_modules())
    return [(prefix, each) for prefix, each in found if isinstance(each, Rows) and each.shared]


def _shared(module: nn.Module) -> Iterator[tuple[str, Rows, str]]:
    for prefix, rows in _modules(module):
        for name in rows.names:
            yield f"{prefix}{name}", rows, name


def _pieces(rows: Tensor) -> Iterator[Tensor]:
    """Rows in parts of bounded size."""
    if len(rows):
        step = CHUNK * len(rows) // (rows.numel() * rows.element_size())
        yield from rows.split(max(step, 1))

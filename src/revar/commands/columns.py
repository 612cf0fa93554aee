"""Columns of tables: which are asked for what, and which look like none to learn from."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from revar.data.cells import holds_numbers
from revar.data.columns import header_of, some_of
from revar.data.inputs import is_frame
from revar.data.kinds import is_csv
from revar.data.source import Reading, Source
from revar.errors import DataWarning, InputError

_LEVELS = 64
"""Categories of a column that have an input of their own, see `revar.data.frames`."""
_NEARLY = 0.9
_ENOUGH = 20
"""Rows from which on a column with hardly a level twice is taken for a name or a date."""
_NAMED = 3
"""Columns that a warning names."""


def refuse_two_uses(reading: Reading) -> None:
    """Refuse a column of a table that is asked for as two things.

    Raises:
        InputError: naming both.
    """
    uses: dict[str, str] = {}
    named = [("--target", reading.target), ("--group", reading.group), ("--image", reading.image)]
    for option, name in (*named, *(("--leave-out", name) for name in reading.leave_out)):
        if name is not None and uses.setdefault(name, option) != option:
            raise InputError(f'{uses[name]} and {option} are both "{name}": give two columns')


def refuse_group(group: str, specs: Iterable[str]) -> None:
    """Refuse a column to break figures down by that no table has.

    Args:
        group: its name.
        specs: data; what is no table is passed over.

    Raises:
        InputError: there are tables, and none has it.
    """
    paths = [Path(spec) for spec in specs if is_csv(spec)]
    headers = {path: header_of(path) for path in paths if path.is_file()}
    if headers and not any(group in header for header in headers.values()):
        path, header = next(iter(headers.items()))
        raise InputError(f'--group "{group}" is no column of "{path}": {some_of(header, group)}')


def warn_of_names(source: Source) -> None:
    """Say which columns of text have so many levels that they look like names or dates."""
    frame = source.train.x
    if not is_frame(frame):
        return
    found = {}
    for name in frame.columns:
        if not holds_numbers(frame[name]):
            levels, n = frame[name].nunique(), int(frame[name].notna().sum())
            if levels > _LEVELS or (n >= _ENOUGH and levels > _NEARLY * n):
                found[name] = levels
    if not found:
        return
    first = next(iter(found))
    listed = ", ".join(f'"{name}" ({levels} levels)' for name, levels in [*found.items()][:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    msg = (
        f"columns of text that look like names or dates: {listed}{more}; the {_LEVELS} most "
        f'frequent levels become inputs, the others share one: --leave-out "{first}" leaves one out'
    )
    warnings.warn(msg, DataWarning, stacklevel=3)

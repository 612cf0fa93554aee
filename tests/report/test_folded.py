"""Tables are whole at any width of the terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from revar.report.folded import Folded

COLUMNS = {
    f"eyepacs@0.{digit}": ["81.52 ± 1.52 ~", "[bold]7.00[/bold]\n[dim](92.8)[/dim]"]
    for digit in range(4, 10)
}


def printed(table: Folded, width: int) -> str:
    out = StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 80, 81, 120, 400])
def test_every_name_and_number_is_whole(width: int) -> None:
    text = printed(Folded("lesion: accuracy", ["revar", "revar-paper"], COLUMNS), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for name in COLUMNS:
        assert text.count(name) == 1
    assert (text.count("81.52 ± 1.52 ~"), text.count("(92.8)")) == (6, 6)
    assert text.count("lesion: accuracy") == 1


def test_columns_stand_side_by_side_where_they_fit() -> None:
    table = Folded("t", ["revar", "revar-paper"], COLUMNS)
    assert [len(part) for part in table.parts(400)] == [6]
    assert [len(part) for part in table.parts(80)] == [3, 3]
    assert [len(part) for part in table.parts(10)] == [1] * 6
    exact = 4 + len("revar-paper") + 2 * (3 + len("81.52 ± 1.52 ~"))
    assert [len(part) for part in table.parts(exact)] == [2, 2, 2]
    assert [len(part) for part in table.parts(exact - 1)] == [1] * 6


def test_a_table_without_columns_has_its_rows() -> None:
    assert "erm" in printed(Folded("none", ["erm"], {}), 80)

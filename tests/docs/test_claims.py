"""Figures that pages repeat are those of the files they come from."""

from __future__ import annotations

import re
from pathlib import Path

from revar import ReVaR

ROOT = Path(__file__).parents[2]


def tables(folder: str) -> list[dict[str, dict[str, float]]]:
    """Rows of each table of a folder of results: method, then column, then its mean."""
    text = (ROOT / "results" / folder / "table.md").read_text(encoding="utf-8")
    found: list[dict[str, dict[str, float]]] = []
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip().replace("*", "") for cell in line.strip("|").split("|")]
        if line.startswith("| method"):
            columns = cells
            found.append({})
        elif line.startswith("|") and not line.startswith("|---"):
            row = dict(zip(columns, cells, strict=True))
            numbers = {k: float(v.split()[0]) for k, v in row.items() if re.match(r"-?\d", v)}
            found[-1][row["method"]] = numbers
    return found


def test_the_gain_of_own_scores_over_softmax() -> None:
    page = (ROOT / "docs" / "choosing-a-method.md").read_text(encoding="utf-8")
    sources = [*tables("methods"), *tables("methods_gpu")]
    assert len(sources) == 4
    shown = re.findall(r"^\| `([\w-]+)` \|((?: [+-]\d+\.\d\d \|){4})$", page, re.MULTILINE)
    assert len(shown) == 9
    for method, cells in shown:
        values = [float(cell) for cell in cells.strip("|").split("|")]
        expected = [t[method]["AUARC"] - t[method]["AUARC softmax"] for t in sources]
        assert [round(v, 2) for v in expected] == values, method


def test_the_cost_of_a_meta_step() -> None:
    """The page of the engine and the README of results have the same rows."""
    rows = [
        re.findall(r"\d+ ms, \d+\.\d GiB", (ROOT / name).read_text(encoding="utf-8"))
        for name in ("docs/engine.md", "results/README.md")
    ]
    assert len(rows[0]) == 12
    assert rows[0] == rows[1]


def test_the_fields_of_revar() -> None:
    page = (ROOT / "docs" / "methods" / "revar.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)` \| (\S+) \| (\S+) \|", page, re.MULTILINE)
    assert len(shown) >= 15
    for field, *values in shown:
        for method, value in zip((ReVaR(), ReVaR.paper()), values, strict=True):
            found = getattr(method, field)
            text = f"{found:g}" if isinstance(found, float) else str(found).lower()
            assert text == value, field

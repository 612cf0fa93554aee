"""Published tables, read back."""

from __future__ import annotations

import re
from pathlib import Path

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

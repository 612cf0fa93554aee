"""Tables of a LaTeX source, by label."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_NO_ROW = ("", "Coverage", "Dataset", "Data", "Method", "S", "Ours")
"""First cells of a line of heads; the table of shifted ImageNets starts with a method."""


class Line(NamedTuple):
    head: str
    values: list[tuple[float, float | None]]


class Printed(NamedTuple):
    heads: list[str]
    lines: list[Line]
    text: str


def _clean(cell: str) -> str:
    cell = re.sub(r"\\(top|mid|bottom)rule|\\hline|\\scriptsize", "", cell)
    cell = cell.replace(r"\textbf", "").replace(r"$\pm$", "±").replace(r"\pm", "±")
    cell = re.sub(r"(\d+)\s*\$\\times\$\s*\1", r"\1", cell).replace("5 (binarized)", "5")
    cell = re.sub(r"[{}$]", "", cell)
    return " ".join(re.sub(r"(?<=\d),(?=\d{3})", "", cell).split())


def read_value(cell: str) -> tuple[float, float | None] | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:±\s*(\d+(?:\.\d+)?))?", cell)
    if not found:
        return None
    return float(found[1]), None if found[2] is None else float(found[2])


def _read(tabular: str) -> Printed:
    heads: list[str] = []
    lines: list[Line] = []
    for raw in tabular.split(r"\\"):
        cells = [_clean(cell) for cell in raw.split("&")]
        if len(cells) == 1 or "multicolumn" in raw:
            continue
        if not lines and cells[0] in _NO_ROW:
            heads = cells
        else:
            values = [read_value(cell) for cell in cells[1:]]
            lines.append(Line(cells[0], [value for value in values if value]))
    return Printed(heads, lines, tabular)


def tabulars(source: str, label: str) -> Iterator[Printed]:
    """The tabular nearest to every place where the label stands; one label stands in four."""
    spans = [m.span() for m in re.finditer(r"\\begin{tabular}.*?\\end{tabular}", source, re.S)]
    for place in re.finditer(re.escape(rf"\label{{{label}}}"), source):
        at = place.start()
        start, end = min(spans, key=lambda span: min(abs(span[0] - at), abs(span[1] - at)))
        inside = source[start:end].removesuffix(r"\end{tabular}")
        yield _read(re.sub(r"^\\begin{tabular}(\[.\])?{[^}]*}", "", inside))

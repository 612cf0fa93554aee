"""The regimes as a CSV, a figure and Markdown."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from revar.report.plots import new_figure

FIGURES = ("failure_auroc", "auarc", "normalised_auarc", "augrc")
COLUMNS = (
    "group", "regime", "method", "seed", "set", "score", *FIGURES, "accuracy", "entropy_spearman",
    "spread", "updates", "moved", "seconds", "commit", "date", "device", "torch",
)  # fmt: skip
CORRUPTED = "corrupted"
"""Stands for all corrupted test sets: the mean of their figures."""
Row = Mapping[str, Any]
Lines = dict[tuple[str, str], dict[str, list[Row]]]
"""Regime and set, to rows by score, one a seed."""
_SHOWN = {
    "uscore": ("U-Score g(x)", "#b3303f", "o"),
    "softmax": ("softmax response", "#4c6a92", "s"),
}


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """All rows, in their order."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: row.get(name) for name in COLUMNS} for row in rows)


def lines_of(rows: Sequence[Row]) -> Lines:
    """Rows by regime and set, corrupted sets together."""
    together: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        name = CORRUPTED if "+" in row["set"] else row["set"]
        key = (row["regime"], name, row["score"], row["seed"])
        together.setdefault(key, []).append(row)
    lines: Lines = {}
    for (regime, name, score, _), alike in together.items():
        means = {figure: _mean([row[figure] for row in alike]) for figure in _AVERAGED}
        one = {**alike[0], "set": name, **means}
        lines.setdefault((regime, name), {}).setdefault(score, []).append(one)
    return lines


_AVERAGED = (*FIGURES, "accuracy", "entropy_spearman", "spread")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _said(rows: Sequence[Row], name: str, digits: int, factor: float = 1.0) -> str:
    """Mean and, of several seeds, the deviation."""
    values = [factor * row[name] for row in rows if row[name] is not None]
    if not values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _moved(rows: Sequence[Row]) -> str:
    """Of g, mean over seeds, in %: from a thousandth to some hundred."""
    return f"{100 * np.mean([row['moved'] for row in rows]):.2g}" if rows else ""


def markdown(lines: Lines) -> str:
    """A table with a line for each regime and set."""
    head = (
        "regime", "set", "seeds", "updates of g", "moved, %", "spread of g", "accuracy, %",
        "AUROC of g", "of softmax", "of dropout entropy", "AUARC of g, %", "of softmax",
        "rank correlation of g with entropy",
    )  # fmt: skip
    text = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for (regime, name), scores in lines.items():
        g, plain = scores.get("uscore", []), scores["softmax"]
        dropout = scores.get("dropout_entropy", [])
        cells = (
            regime, name, str(len(plain)), _said(g, "updates", 0).split(" ")[0],
            _moved(g), _said(g, "spread", 3), _said(plain, "accuracy", 1, 100),
            _said(g, "failure_auroc", 3), _said(plain, "failure_auroc", 3),
            _said(dropout, "failure_auroc", 3), _said(g, "auarc", 2, 100),
            _said(plain, "auarc", 2, 100), _said(g, "entropy_spearman", 2),
        )  # fmt: skip
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text)


def figure(lines: Lines, path: Path) -> None:
    """Failure AUROC of g and of softmax response, a line a regime and set, a dot a seed.

    Args:
        lines: see `lines_of`.
        path: of the PNG.
    """
    shown = {key: scores for key, scores in lines.items() if "uscore" in scores}
    drawing = new_figure(7.2, 0.19 * len(shown) + 1.4)
    axis = drawing.subplots()
    for score, (label, colour, mark) in _SHOWN.items():
        points = [
            (row["failure_auroc"], place)
            for place, scores in enumerate(shown.values())
            for row in scores.get(score, [])
            if row["failure_auroc"] is not None
        ]
        axis.plot(
            [x for x, _ in points], [y for _, y in points], mark, color=colour, label=label,
            markersize=4, alpha=0.8, linestyle="none",
        )  # fmt: skip
    axis.axvline(0.5, color="0.3", linewidth=0.9, linestyle="--", label="chance")
    groups = [next(iter(scores.values()))[0]["group"] for scores in shown.values()]
    for place in range(1, len(groups)):
        if groups[place] != groups[place - 1]:
            axis.axhline(place - 0.5, color="0.8", linewidth=0.7)
    names = [regime if name == "test" else f"{regime}: {name}" for regime, name in shown]
    axis.set_yticks(range(len(shown)), names, fontsize=7)
    axis.set_ylim(len(shown) - 0.4, -0.6)
    axis.set_xlabel("failure AUROC, a dot a seed")
    axis.grid(axis="both", alpha=0.2)
    axis.spines[["top", "right"]].set_visible(False)
    drawing.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    drawing.savefig(path, dpi=150)

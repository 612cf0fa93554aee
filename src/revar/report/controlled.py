"""The controlled study as tables and pictures."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from revar.report.plots import new_figure

Row = Mapping[str, Any]
FIGURES = (
    "spearman", "kendall", "r2_log", "r2_floored", "r2_winsorised", "r2_uncentred", "cv",
    "noise_coefficient", "shift_coefficient", "shift_share",
)  # fmt: skip
_SHOWN = {
    "spearman": "Spearman", "r2_log": "R2 log", "r2_floored": "R2 floor",
    "r2_winsorised": "R2 wins.", "r2_uncentred": "R2 unc.", "cv": "CV",
}  # fmt: skip
_HEADS = ["S", "method", *_SHOWN.values(), "paper R2"]
_CONSTANT = ("3", "5")
"""Scenarios whose ideal weights are all alike."""


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Mean over seeds and its standard error; nan where a figure is undefined for every seed.

    >>> mean_and_error([1.0, 2.0, 3.0])
    (2.0, 0.5773502691896258)
    """
    known = np.array([value for value in values if not math.isnan(value)])
    if not len(known):
        return math.nan, math.nan
    error = known.std(ddof=1) / math.sqrt(len(known)) if len(known) > 1 else math.nan
    return float(known.mean()), float(error)


def summarise(
    rows: Sequence[Row],
    part: str,
    methods: Sequence[str] = (),
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> list[dict[str, Any]]:
    """One line for every method, scenario and shift of a part: means and errors over seeds.

    Differences of Spearman and CV from MWN and IBR are paired: of the same seed.

    Args:
        rows: of single runs.
        part: ``table``, ``interpolation`` or ``ablation``.
        methods: their order; others come after them, by name.
        paper: its R^2 by scenario and method, to stand beside ours.
    """
    groups: dict[tuple[str, str, float | None], dict[int, Row]] = {}
    for row in rows:
        if row["part"] == part:
            place = (row["scenario"], row["method"], row["shift"])
            groups.setdefault(place, {})[row["seed"]] = row
    lines = []
    for (scenario, method, shift), runs in groups.items():
        line: dict[str, Any] = {"scenario": scenario, "method": method, "shift": shift}
        line["seeds"] = len(runs)
        for figure in FIGURES:
            line[figure], line[f"{figure}_error"] = mean_and_error(r[figure] for r in runs.values())
        for rival in ("mwn", "ibr"):
            theirs = groups.get((scenario, rival, shift), {})
            for figure in ("spearman", "cv"):
                gaps = [runs[s][figure] - theirs[s][figure] for s in runs if s in theirs]
                name = f"{figure}_minus_{rival}"
                line[name], line[f"{name}_error"] = mean_and_error(gaps)
        if paper is not None:
            line["paper_r2"] = paper.get(scenario, {}).get(method, math.nan)
        lines.append(line)
    order = {name: place for place, name in enumerate(methods)}

    def where(line: Row) -> tuple[Any, ...]:
        name = line["method"]
        return line["scenario"], order.get(name, len(order)), name, line["shift"] or 0.0

    return sorted(lines, key=where)


def rise(lines: Sequence[Row], scenario: str, method: str) -> float:
    """Rank correlation of the mean share of the shift term with s."""
    from scipy.stats import spearmanr

    chosen = [x for x in lines if x["scenario"] == scenario and x["method"] == method]
    shares = [line["shift_share"] for line in chosen]
    return float(spearmanr([line["shift"] for line in chosen], shares).statistic)


def write_csv(path: Path, lines: Sequence[Row]) -> None:
    """With full precision; undefined figures are empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        for line in lines:
            undefined = {k for k, v in line.items() if isinstance(v, float) and math.isnan(v)}
            writer.writerow({k: "" if k in undefined else v for k, v in line.items()})


def _cell(value: float, error: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" + ("" if math.isnan(error) else f"±{error:.2f}".replace("±0.", "±."))


def study_table(lines: Sequence[Row]) -> Any:
    """For the terminal."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in _HEADS:
        table.add_column(name, justify="left" if name in ("S", "method") else "right")
    for before, line in zip([None, *lines], lines, strict=False):
        new = before is None or before["scenario"] != line["scenario"]
        if new and before is not None:
            table.add_row()
        table.add_row(line["scenario"] if new else "", *_cells(line))
    return table


def _cells(line: Row) -> list[str]:
    """The method, what was found, and the paper's figure."""
    shown = [_cell(line[name], line[f"{name}_error"]) for name in _SHOWN]
    printed = line.get("paper_r2", math.nan)
    return [line["method"], *shown, "-" if math.isnan(printed) else f"{printed:.2f}"]


def markdown(lines: Sequence[Row]) -> str:
    """The same for a page: means over seeds and their standard errors."""
    rows = [_HEADS, ["---"] * len(_HEADS), *([line["scenario"], *_cells(line)] for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def sentences(table: Sequence[Row], interpolation: Sequence[Row]) -> list[str]:
    """What the figures say about the paper's claims, with intervals of 1.96 standard errors."""
    said = []
    for line in table:
        if line["method"] != "revar-paper":
            continue
        figure = "cv" if line["scenario"] in _CONSTANT else "spearman"
        gaps = []
        for rival in ("mwn", "ibr"):
            name = f"{figure}_minus_{rival}"
            half = 1.96 * line[f"{name}_error"]
            gaps.append(f"{line[name]:+.3f} ± {half:.3f} against {rival}")
        said.append(f"scenario {line['scenario']}, {figure} {line[figure]:.3f}: {', '.join(gaps)}")
    for scenario in ("2", "4"):
        for method in dict.fromkeys(line["method"] for line in interpolation):
            rank = rise(interpolation, scenario, method)
            what = "rank correlation of the shift's share with s"
            said.append(f"scenario {scenario}, {method}: {what} {rank:+.2f}")
    return said


def draw_table(rows: Sequence[Row], methods: Sequence[str], path: Path) -> None:
    """Every run: rank correlation with the ideal, or the spread where the ideal is constant."""
    chosen = [row for row in rows if row["part"] == "table"]
    scenarios = sorted({row["scenario"] for row in chosen})
    fig = new_figure(11, 5.6)
    axes = fig.subplots(2, 3, sharey=True, squeeze=False)
    for ax, scenario in zip(axes.flat, scenarios, strict=False):
        figure = "cv" if scenario in _CONSTANT else "spearman"
        for place, method in enumerate(methods):
            each = [
                row[figure]
                for row in chosen
                if row["scenario"] == scenario and row["method"] == method
            ]
            ax.plot(each, [place] * len(each), "o", color="C0", alpha=0.35, markersize=5)
            mean, _ = mean_and_error(each)
            ax.plot([mean], [place], "|", color="black", markersize=14)
        label = "CV of the weights (ideal: 0)" if figure == "cv" else "Spearman (ideal: 1)"
        ax.set_title(f"scenario {scenario}")
        ax.set_xlabel(label)
        ax.set_yticks(range(len(methods)), methods)
        ax.grid(axis="x", alpha=0.3)
        if figure == "spearman":
            ax.axvline(0, color="0.6", linewidth=0.8)
            ax.set_xlim(-0.5, 1.03)
        else:
            ax.set_xlim(left=0)
    axes[0][0].invert_yaxis()
    fig.suptitle("Learned weights against the ideal; one dot a seed, bars are means")
    _save(fig, path)


def draw_interpolation(lines: Sequence[Row], path: Path) -> None:
    """Shares of the two fitted terms against the shift, with bands of one standard error."""
    fig = new_figure(9.5, 3.8)
    axes = fig.subplots(1, 2)
    first = {"2": "label noise, 1 / |G'x|²", "4": "missing features (constant)"}
    for ax, scenario in zip(axes, ("2", "4"), strict=True):
        chosen = sorted(
            (line for line in lines if line["scenario"] == scenario), key=lambda x: x["shift"]
        )
        at = np.arange(len(chosen))
        share = np.array([line["shift_share"] for line in chosen])
        error = np.nan_to_num([line["shift_share_error"] for line in chosen])
        for colour, label, values in (
            ("C0", first[scenario], 1 - share),
            ("C1", "shift, h", share),
        ):
            ax.plot(at, values, "o-", color=colour, label=label)
            ax.fill_between(at, values - error, values + error, color=colour, alpha=0.2)
        ax.set_xticks(at, [f"{line['shift']:g}" for line in chosen])
        ax.axhline(0, color="0.6", linewidth=0.8)
        ax.set_title(f"scenario {scenario}")
        ax.set_xlabel("shift s, in standard deviations")
        ax.grid(alpha=0.3)
        ax.legend()
    axes[0].set_ylabel("share of the fitted weights")
    fig.suptitle("What the weights follow as the validation set moves away")
    _save(fig, path)


def _save(fig: Any, path: Path) -> None:
    """As PNG and beside it as SVG."""
    fig.savefig(path, dpi=130)
    fig.savefig(path.with_suffix(".svg"), metadata={"Date": None})

"""Answered tables for people and machines; the paper's numbers stand beside ours, never as ours."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from revar.published import PublishedTable
from revar.report.plots import new_figure
from revar.report.telling import told_from

if TYPE_CHECKING:
    from revar.report.folded import Folded

NOT_RUN = "not trained yet"
"""The reason of a place whose runs nobody has trained."""
LEGEND = (
    "mean ± standard deviation over seeds; best in bold; ~ not told from the best (Tukey's range "
    "test and the row's own t-test paired by seed must both tell it, at 5 %); in brackets the "
    "paper's number, on its own data"
)


class Found(Protocol):
    """One place of a table, answered."""

    @property
    def values(self) -> Mapping[int, float]:
        """By seed."""

    @property
    def digests(self) -> Mapping[int, tuple[str, ...]]:
        """Of the runs behind it, by seed."""

    @property
    def reason(self) -> str | None:
        """Why there is none, or not for every seed."""

    @property
    def incomplete(self) -> bool:
        """Whether a run behind it is missing."""

    @property
    def mean(self) -> float:
        """Over seeds."""

    @property
    def spread(self) -> float:
        """Standard deviation over seeds."""


class Asked(Protocol):
    """What was asked."""

    @property
    def name(self) -> str:
        """Of the table and, after a slash, the metric."""

    @property
    def title(self) -> str:
        """One line."""

    @property
    def metric(self) -> str:
        """What the numbers are."""

    @property
    def higher(self) -> bool | None:
        """Whether more is better."""

    @property
    def percent(self) -> bool:
        """Whether they are shares."""

    @property
    def rows(self) -> tuple[str, ...]:
        """Names."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names."""

    @property
    def place(self) -> str:
        """Where all columns are asked, if they are not named after it."""


Answers = Mapping[tuple[str, str], Found]


def place_of(column: str) -> str:
    """The data a column is about.

    >>> place_of("aptos@0.4"), place_of("aptos+variance"), place_of("eyepacs")
    ('aptos', 'aptos', 'eyepacs')
    """
    return column.partition("@")[0].partition("+")[0]


def standing_in(stand_ins: Mapping[str, str]) -> str:
    """What was asked instead of the paper's data, as a sentence, or nothing."""
    said = "; ".join(f"{place}: {text}" for place, text in stand_ins.items())
    return f"Not the paper's data. Here {said}." if said else ""


def best_and_close(asked: Asked, answers: Answers, column: str) -> tuple[str | None, set[str]]:
    """The best row of a column, and rows that cannot be told from it (`told_from`)."""
    rows = [r for r in asked.rows if (r, column) in answers and answers[r, column].values]
    if asked.higher is None or len(rows) < 2:
        return None, set()
    sign = 1 if asked.higher else -1
    best = max(rows, key=lambda row: sign * answers[row, column].mean)
    told = told_from({row: answers[row, column].values for row in rows}, best)
    return best, {row for row in rows if row != best} - told


def _number(asked: Asked, value: float, spread: float) -> str:
    factor, digits = (100, 2) if asked.percent else (1, 3)
    text = f"{factor * value:.{digits}f}"
    return text if math.isnan(spread) else f"{text} ± {factor * spread:.{digits}f}"


def _text(asked: Asked, answers: Answers, row: str, column: str) -> str:
    found = answers.get((row, column))
    if found is None:
        return ""
    if not found.values:
        if found.reason == NOT_RUN:
            return "not run"
        return "failed" if found.incomplete else "-"
    text = _number(asked, found.mean, found.spread)
    best, close = best_and_close(asked, answers, column)
    if row == best:
        return f"**{text}**"
    return f"{text} ~" if row in close else text


def _printed(paper: PublishedTable | None, row: str, column: str) -> str:
    value = None if paper is None else paper.values.get((row, column))
    return "" if value is None else f"{value.mean:g}"


def _as_ours(asked: Asked, value: float | None) -> float | None:
    """The paper's number as ours are kept: it prints shares in percent."""
    if value is None or not asked.percent:
        return value
    # Its last digit, without what division adds.
    return round(value / 100, 12)


def records(
    asked: Asked, answers: Answers, paper: PublishedTable | None, stand_ins: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Every place of a table with everything that is known of it."""
    lines = []
    for (row, column), found in answers.items():
        value = None if paper is None else paper.values.get((row, column))
        lines.append(
            {
                "table": asked.name,
                "row": row,
                "column": column,
                "data": stand_ins.get(asked.place or place_of(column), "as in the paper"),
                "metric": asked.metric,
                "mean": None if math.isnan(found.mean) else found.mean,
                "std": None if math.isnan(found.spread) else found.spread,
                "values": {str(seed): value for seed, value in found.values.items()},
                "cells": {str(seed): list(names) for seed, names in found.digests.items()},
                "paper": None if value is None else _as_ours(asked, value.mean),
                "paper_std": None if value is None else _as_ours(asked, value.spread),
                "reason": found.reason,
            }
        )
    return lines


def write_table(
    folder: Path,
    asked: Asked,
    answers: Answers,
    paper: PublishedTable | None,
    stand_ins: Mapping[str, str],
) -> list[Path]:
    """CSV, JSON and Markdown of one grid, and a picture where answered columns are coverages."""
    stem = folder / asked.name.replace("/", "-")
    lines = records(asked, answers, paper, stand_ins)
    folder.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    with stem.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = list(lines[0]) if lines else []
        writer.writerow(names)
        for line in lines:
            cells = {**line, "values": " ".join(map(repr, line["values"].values()))}
            cells["cells"] = " ".join("+".join(names) for names in line["cells"].values())
            writer.writerow("" if cells[name] is None else cells[name] for name in names)
    text = markdown(asked, answers, paper, stand_ins)
    stem.with_suffix(".md").write_text(text, encoding="utf-8")
    written = [stem.with_suffix(suffix) for suffix in (".csv", ".json", ".md")]
    stem.with_suffix(".png").unlink(missing_ok=True)
    if any("@" in column and found.values for (_, column), found in answers.items()):
        draw_coverages(asked, answers, stand_ins, stem.with_suffix(".png"))
        written.append(stem.with_suffix(".png"))
    return written


def markdown(
    asked: Asked, answers: Answers, paper: PublishedTable | None, stand_ins: Mapping[str, str]
) -> str:
    """With the paper's numbers in brackets."""
    lines = [f"{asked.title}: {asked.metric}", "", f"| | {' | '.join(asked.columns)} |"]
    lines.append("|---|" + "---|" * len(asked.columns))
    for row in asked.rows:
        cells = []
        for column in asked.columns:
            theirs = _printed(paper, row, column)
            ours = _text(asked, answers, row, column)
            cells.append(f"{ours} ({theirs})" if theirs else ours)
        lines.append(f"| {row} | {' | '.join(cells)} |")
    ends = [text for text in (LEGEND, standing_in(stand_ins)) if text]
    return "\n".join([*lines, "", "\n\n".join(ends)]) + "\n"


def terminal(asked: Asked, answers: Answers, paper: PublishedTable | None) -> Folded:
    """A table for the terminal."""
    from revar.report.folded import Folded

    columns: dict[str, list[str]] = {column: [] for column in asked.columns}
    for column, cells in columns.items():
        for row in asked.rows:
            text = _text(asked, answers, row, column)
            shown = f"[bold]{text.strip('*')}[/bold]" if text.startswith("**") else text
            theirs = _printed(paper, row, column)
            cells.append(f"{shown}\n[dim]({theirs})[/dim]" if theirs else shown)
    return Folded(f"{asked.name}: {asked.title} ({asked.metric})", asked.rows, columns)


def failures(answers: Sequence[Answers]) -> list[str]:
    """Every reason once, with the first place it concerns."""
    found: dict[str, str] = {}
    for one in answers:
        for (row, column), answer in one.items():
            if answer.incomplete and answer.reason is not None:
                found.setdefault(answer.reason, f"{row}, {column}")
    return [f"{place}: {reason}" for reason, place in found.items()]


def draw_coverages(
    asked: Asked, answers: Answers, stand_ins: Mapping[str, str], path: Path
) -> None:
    """A panel for every place, a line for every row, against coverage."""
    places = list(dict.fromkeys(column.partition("@")[0] for column in asked.columns))
    fig = new_figure(4.6 * len(places) + 1.4, 3.6)
    axes = fig.subplots(1, len(places), squeeze=False)
    factor = 100 if asked.percent else 1
    for ax, place in zip(axes[0], places, strict=True):
        for number, row in enumerate(asked.rows):
            points = sorted(
                (float(column.partition("@")[2]), answers[row, column])
                for column in asked.columns
                if column.startswith(f"{place}@") and answers[row, column].values
            )
            if not points:
                continue
            at = [coverage for coverage, _ in points]
            means = np.array([factor * answer.mean for _, answer in points])
            spread = np.nan_to_num([factor * answer.spread for _, answer in points])
            ax.plot(at, means, "o-", markersize=3, color=f"C{number}", label=row)
            ax.fill_between(at, means - spread, means + spread, color=f"C{number}", alpha=0.12)
        ax.set_title(f"{place}: {stand_ins[place]}" if place in stand_ins else place)
        ax.set_xlabel("coverage")
        ax.grid(alpha=0.3)
    axes[0][0].set_ylabel(f"{asked.metric}{', %' if asked.percent else ''}")
    # A panel may have no answer yet, so that the last one may not have every row, or any.
    lines = {str(line.get_label()): line for ax in axes[0] for line in ax.get_lines()}
    axes[0][-1].legend(
        lines.values(), lines.keys(), loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False
    )
    fig.savefig(path, dpi=130)

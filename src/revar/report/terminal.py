"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table

_DEFAULT_NOTE = "all in %; * used unless told otherwise"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:z.2f}"


def evaluation_table(title: str, figures: Mapping[str, Any]) -> Table:
    """The scores of one set by their main figures; ``--json`` has all of them."""
    heading = (
        f"{title}: n {figures['n']}, accuracy {figures['accuracy']:.2%}, ECE {figures['ece']:.2%}"
    )
    # 76 columns with the longest name there is: a terminal of 80 cuts nothing off.
    table = Table(
        title=heading, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0
    )
    table.add_column("score", no_wrap=True)
    shown = {"auarc": "AUARC", "augrc": "AUGRC", "failure_auroc": "fail AUROC"}
    coverages = ("0.5", "0.7", "0.8", "0.9")
    for name in (*shown.values(), *(f"acc@{100 * float(c):.0f}" for c in coverages)):
        table.add_column(name, justify="right", width=6)
    scores = figures["scores"]
    best = max(values["auarc"] for values in scores.values())
    for name, values in scores.items():
        if name == "own":
            continue
        cells = [_percent(values[k]) for k in shown]
        cells += [_percent(values["accuracy_at_coverage"][c]) for c in coverages]
        if values["auarc"] == best:
            cells[0] = f"[bold]{cells[0]}[/bold]"
        marks = "*" * (name == figures["default_score"]) + "+" * (name == figures["own_score"])
        table.add_row(f"{name} {marks}".strip(), *cells)
    table.caption = f"{_DEFAULT_NOTE}; + published with the method"
    return table


def auarc_table(
    figures: Mapping[str, Mapping[str, Mapping[str, Any]]], sets: Iterable[str]
) -> Table:
    """AUARC by score: a row a score, a column a method and set."""
    table = Table(
        title="AUARC by score, %: higher is better, bold is best of its test set",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("score", no_wrap=True)
    columns = [(method, name) for name in sets for method in figures]
    for method, name in columns:
        accuracy = figures[method][name]["accuracy"]
        table.add_column(f"{method}\n{name}\nacc {accuracy:.1%}", justify="right")
    best = {
        name: max(v["auarc"] for m in figures for v in figures[m][name]["scores"].values())
        for name in sets
    }
    rows: list[str] = []
    for method, name in columns:
        there = figures[method][name]["scores"]
        rows += [score for score in there if score not in rows and score != "own"]
    for score in rows:
        cells = []
        for method, name in columns:
            values = figures[method][name]["scores"].get(score)
            text = _percent(values["auarc"]) if values else "-"
            bold = values is not None and values["auarc"] == best[name]
            default = score == figures[method][name]["default_score"]
            text += " *" if default else "  "
            cells.append(f"[bold]{text}[/bold]" if bold else text)
        table.add_row(score, *cells)
    table.caption = _DEFAULT_NOTE
    return table


def names_table(kind: str, entries: list[dict[str, Any]]) -> Table | Group:
    """What is registered."""
    if kind == "datasets":
        return datasets_table(entries)
    table = Table(title=kind, title_justify="left", box=box.SIMPLE_HEAD)
    keys = [key for key in ("name", "cost", "summary", "citation") if key in entries[0]]
    for key in keys:
        table.add_column(key, no_wrap=key in ("name", "cost"))
    for entry in entries:
        cells = [entry.get(key, "") for key in keys]
        table.add_row(*map(str, cells))
    return table


def datasets_table(entries: list[dict[str, Any]]) -> Group:
    """The paper's statistics of data sets for what is there, and what each of them is.

    Sizes in brackets are the paper's, where it has some. Both tables fit a terminal of 80
    columns, which one of them would not.
    """
    numbers, words = (
        Table(
            title=title,
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            padding=(0, 1, 0, 0),
        )
        for title in ("datasets", "what they are")
    )
    numbers.add_column("name", no_wrap=True)
    for name in ("#labels", *_SHOWN, "size"):
        numbers.add_column(name, justify="right", no_wrap=True)
    words.add_column("name", no_wrap=True)
    words.add_column("what it is", overflow="fold")
    obtain = {entry["name"]: entry["obtain"] for entry in entries}
    for entry in entries:
        sizes, paper = _shown(entry["sizes"] or {}), entry["paper"]
        style = None if entry["state"] == "here" else "dim"
        cells = [_cell(_thousands(sizes.get(k)), _thousands(paper.get(k))) for k in _SHOWN]
        cells.append(_cell(entry["image_size"], entry["paper_image_size"]))
        numbers.add_row(entry["name"], f"{entry['classes']:,}", *cells, style=style)
        words.add_row(entry["name"], escape(_words(entry, obtain)), style=style)
    numbers.caption = "examples that are there; (the paper's); val: the part val, or else meta"
    words.caption = "layout, licence and citation: --json"
    return Group(numbers, "", words)


_SHOWN = ("train", "val", "test")


def _shown(sizes: Mapping[str, int]) -> dict[str, int]:
    """Examples by column; a meta set of its own is what the paper calls validation."""
    val = {"val": sizes["meta"]} if "meta" in sizes else {}
    return {**val, **sizes}


def _words(entry: Mapping[str, Any], obtain: Mapping[str, str]) -> str:
    """What a data set is and which parts have no column, or why it is not here."""
    if entry["state"] == "damaged":
        return f"damaged: {entry['missing']}"
    if entry["lacking"]:
        base = entry["lacking"]
        return f"not here: the images of {base} are missing, get them from {obtain[base]}"
    if entry["state"] == "absent":
        return f"not here: get it from {entry['obtain']}"
    text = str(entry["summary"])
    column = "val" if "val" in entry["sizes"] else "meta"
    others = {k: v for k, v in entry["sizes"].items() if k not in ("train", "test", column)}
    if others:
        text += f" ({', '.join(f'{name} {size:,}' for name, size in others.items())})"
    return f"{text}; not complete: {entry['incomplete']}" if entry["incomplete"] else text


def _thousands(size: int | None) -> str | None:
    return None if size is None else f"{size:,}"


def _cell(here: str | None, paper: str | None) -> str:
    return f"{here or '-'}\n({paper})" if paper else here or "-"

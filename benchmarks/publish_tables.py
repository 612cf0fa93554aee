"""Answered tables to ``results/<table>/``, with what made them, and into docs/results.md.

    revar paper all --scale small --out tables
    python benchmarks/publish_tables.py tables --commit $(git rev-parse --short HEAD)
    python benchmarks/publish_tables.py --again

Every folder gets the CSV, the Markdown and, where columns are coverages, the picture of its grids,
and a provenance.json gathered from the runs behind them. Tables of which more than a third of the
places have fewer than two seeds, where more than one was asked for, are left out and named. With
``--again`` the Markdown and the page are written anew from the CSV, as when a legend changes.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from revar.commands.tables import paper_table
from revar.report.tables import markdown, write_table
from revar.tables.catalogue import TABLES
from revar.tables.places import scale_of
from revar.tables.questions import Answer, Grid

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
_MARK = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def main() -> None:
    """Copy and fill."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="?", help="the --out of revar paper")
    parser.add_argument("--commit", help="the code that trained the runs")
    parser.add_argument("--again", action="store_true", help="from what is published")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--seeds", type=int, help="what revar paper was asked for")
    parser.add_argument("--tables", nargs="+", help="only these; what others say stays")
    parser.add_argument("--note", default="", help="anything else one should know")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    options = parser.parse_args()
    if options.again:
        for path, text in published_again(options.results):
            path.write_text(text, encoding="utf-8")
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), options.results), encoding="utf-8")
        return
    if options.folder is None or options.commit is None:
        parser.error("a folder and --commit are needed")
    scale = scale_of(options.scale, options.seeds)
    for table in TABLES:
        if options.tables is not None and table.name not in options.tables:
            continue
        grids = [grid for grid in table.grids(scale) if grid.questions]
        stems = [options.folder / "tables" / grid.name.replace("/", "-") for grid in grids]
        rows = [row for stem in stems for row in _rows(stem.with_suffix(".csv"))]
        wanted = {
            (grid.name, *place): len(question.asked_of(scale.seeds))
            for grid in grids
            for place, question in grid.questions.items()
        }
        short = [row for row in rows if _found(row) < wanted[_place(row)]]
        single = [row for row in rows if _found(row) < min(2, wanted[_place(row)])]
        if len(single) > len(rows) / 3 or not rows:
            print(f"left out: {table.name} ({len(short)} of {len(rows)} places lack runs)")
            continue
        target = options.results / table.name
        target.mkdir(parents=True, exist_ok=True)
        for grid, stem in zip(grids, stems, strict=True):
            paper = paper_table(grid.name)
            write_table(target, grid, _answers(grid, stem), paper, grid.stands_for)
            (target / f"{stem.name}.json").unlink()
        made = _provenance(options, table.name, rows, short)
        (target / "provenance.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        print(f"{table.name}: {made['runs']} runs, {len(short)} places lack some")
    if PAGE.exists():
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), options.results), encoding="utf-8")


def published_again(results: Path) -> Iterator[tuple[Path, str]]:
    """Every published table as Markdown, with its path, from the CSV beside it."""
    for table in TABLES:
        for grid in table.grids(scale_of("small")):
            stem = results / table.name / grid.name.replace("/", "-")
            rows = _rows(stem.with_suffix(".csv"))
            if rows:
                found = {(row["row"], row["column"]): _as_published(row) for row in rows}
                text = markdown(grid, found, paper_table(grid.name), grid.stands_for)
                yield stem.with_suffix(".md"), text


def _as_published(row: dict[str, str]) -> Answer:
    values = dict(enumerate(map(float, row["values"].split())))
    digests = {seed: tuple(name.split("+")) for seed, name in enumerate(row["cells"].split())}
    return Answer(values, digests, row["reason"] or None, incomplete=not values)


def _answers(grid: Grid, stem: Path) -> dict[tuple[str, str], Answer]:
    """What a table said when it was answered, where its runs may no longer be."""
    said = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    return {
        (line["row"], line["column"]): Answer(
            {int(seed): value for seed, value in line["values"].items()},
            {int(seed): tuple(names) for seed, names in line["cells"].items()},
            line["reason"],
            incomplete=line["reason"] is not None and not line["values"],
        )
        for line in said
        if (line["row"], line["column"]) in grid.questions
    }


def _place(row: dict[str, str]) -> tuple[str, str, str]:
    return row["table"], row["row"], row["column"]


def _found(row: dict[str, str]) -> int:
    return len(row["values"].split())


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as content:
        return list(csv.DictReader(content))


def _provenance(
    options: argparse.Namespace, name: str, rows: list[dict[str, str]], short: list[dict[str, str]]
) -> dict[str, Any]:
    digests = {
        digest for row in rows for cell in row["cells"].split() for digest in cell.split("+")
    }
    made = [
        json.loads((options.folder / "cells" / digest / "provenance.json").read_text())
        for digest in sorted(digests)
        if (options.folder / "cells" / digest).exists()
    ]
    dates = sorted(one["date"] for one in made)

    def known(key: str) -> list[str]:
        return sorted({str(one[key]) for one in made})

    seeds = "" if options.seeds is None else f" --seeds {options.seeds}"
    return {
        "command": f"revar paper {name} --scale {options.scale}{seeds}",
        "commit": options.commit,
        "seeds": list(range(max(_found(row) for row in rows))),
        "runs": len(digests),
        "places": len(rows),
        "places_lacking_a_seed": len(short),
        "hardware": known("processor"),
        "torch": known("torch"),
        "python": known("python"),
        "revar": known("revar"),
        "first": dates[0] if dates else None,
        "last": dates[-1] if dates else None,
        "note": options.note,
    }


def filled(page: str, results: Path) -> str:
    """The page with every marked place holding the rows of its table."""

    def fill(found: re.Match[str]) -> str:
        grid = found[2]
        name = max((t.name for t in TABLES if grid.startswith(t.name)), key=len)
        text = (results / name / f"{grid}.md").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.startswith("|")]
        return found[1] + "\n" + "\n".join(lines) + "\n\n" + found[3]

    return _MARK.sub(fill, page)


if __name__ == "__main__":
    main()

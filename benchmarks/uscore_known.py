"""What an earlier report told of runs whose files are not at hand: figures, tests and recipes.

Scores of single examples are not published, so that tests of a setting cannot be made again from
a report; they are taken over as they were. So are ensembles, of which there is no run. Tables are
made of figures, and those are all there.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from revar.errors import InputError
from uscore_store import FIGURES

Row = dict[str, Any]
_NUMBERS = (*FIGURES, "ece", "seconds")
ENSEMBLES = "ensemble of five"
"""What their line of a table is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An earlier report; an empty one knows nothing.

    Attributes:
        rows: of its runs, by task; without those that it took from the tables of the paper.
        ours: the setting that it tested.
        against: what its tests found, by task.
        gaps: what it found of the gap to an ensemble, by task, where it did.
        ensembles: lines of its tables, by task.
        recipes: lines of JSON, by folder, way and seed.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)
    ours: str = ""
    against: dict[str, dict[str, Any]] = field(default_factory=dict)
    gaps: dict[str, dict[str, Any]] = field(default_factory=dict)
    ensembles: dict[str, Row] = field(default_factory=dict)
    recipes: dict[tuple[str, str, int], str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Known:
        """From what uscore_report.py wrote.

        Raises:
            InputError: there is no report.
        """
        try:
            runs = (folder / "runs.csv").read_text(encoding="utf-8")
            tables = (folder / "tables.csv").read_text(encoding="utf-8")
            tests = json.loads((folder / "tests.json").read_text(encoding="utf-8"))
            recipes = (folder / "recipes.jsonl").read_text(encoding="utf-8").splitlines()
            rows: dict[str, list[Row]] = {}
            for line in csv.DictReader(runs.splitlines()):
                if not line.get("from"):
                    rows.setdefault(line["task"], []).append(_row(line))
            ensembles = {
                line["task"]: _line(line)
                for line in csv.DictReader(tables.splitlines())
                if line["way"] == ENSEMBLES
            }
            keys = [_key(json.loads(line)) for line in recipes]
        except (OSError, KeyError, ValueError) as error:
            raise InputError(f'"{folder}" holds no report: {error}') from error
        against = {name: found["against"] for name, found in tests["tasks"].items()}
        closed = {n: found.get("gap_to_ensemble_closed") for n, found in tests["tasks"].items()}
        return cls(
            rows=rows, ours=tests["ours"], against=against, ensembles=ensembles,
            gaps={name: gap for name, gap in closed.items() if gap is not None},
            recipes=dict(zip(keys, recipes, strict=True)),
        )  # fmt: skip

    def tests(self, ours: object, task: str) -> dict[str, Any]:
        """What it found of a setting on a task, by what that was compared with."""
        return self.against.get(task, {}) if str(ours) == self.ours else {}

    def without(self, task: str, there: Container[tuple[str, int]]) -> Sequence[Row]:
        """Rows of a task, but of those ways and seeds."""
        return [row for row in self.rows.get(task, ()) if (row["way"], row["seed"]) not in there]


def _row(line: dict[str, str]) -> Row:
    plain = {name: value for name, value in line.items() if name not in ("task", "from")}
    numbers = {name: float(line[name]) if line[name] else None for name in _NUMBERS}
    truths = {name: line[name] == "True" for name in ("own", "default")}
    return {**plain, **numbers, **truths, "seed": int(line["seed"])}


def _line(line: dict[str, str]) -> Row:
    """Of a table, as `uscore_report.table_of` has it: figures that it lacks are left out."""
    words = ("way", "score", "beside", "from")
    numbers = {n: float(v) for n, v in line.items() if n not in ("task", "seeds", *words) and v}
    return {**{name: line[name] for name in words}, "seeds": int(line["seeds"]), **numbers}


def _key(recipe: Row) -> tuple[str, str, int]:
    return recipe["folder"], recipe["way"], recipe["seed"]

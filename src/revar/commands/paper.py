"""``revar paper``: the paper's tables and figures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from revar import fields
from revar.errors import InputError, unknown
from revar.provenance import provenance
from revar.report import controlled as report
from revar.studies import controlled


@dataclass(frozen=True, slots=True)
class ControlledStudy:
    """What the study found: lines of means over seeds."""

    table: list[dict[str, Any]]
    interpolation: list[dict[str, Any]]
    ablation: list[dict[str, Any]]
    sentences: list[str]


def run_controlled(
    scale_name: str,
    out: Path,
    *,
    seeds: int | None = None,
    classifier: str = "linear",
    workers: int | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> ControlledStudy:
    """Run the controlled study, or what is missing of it, and write tables and pictures.

    Raises:
        InputError: no such scale, or a folder with something else in it.
    """
    if scale_name not in controlled.SCALES:
        raise unknown("scale", scale_name, list(controlled.SCALES))
    scale = controlled.SCALES[scale_name]
    if seeds is not None:
        if seeds < 1:
            raise InputError(f"--seeds must be at least 1, it is {seeds}")
        scale = replace(scale, seeds=seeds)
    if classifier not in controlled.CLASSIFIERS:
        raise unknown("classifier", classifier, controlled.CLASSIFIERS)
    entrants = {name: fields.to_json(e) for name, e in controlled.ENTRANTS.items()}
    asked = {
        "scale": {**asdict(scale), "seeds": None},
        "classifier": classifier,
        "entrants": entrants,
    }
    _claim(out, json.loads(json.dumps(asked)))
    rows = controlled.run(
        scale, out, classifier=classifier, workers=workers or os.cpu_count() or 1, advance=advance
    )
    rows = [row for row in rows if row["seed"] < scale.seeds]
    methods = list(controlled.ENTRANTS)
    table = report.summarise(rows, "table", methods, controlled.paper_r2())
    interpolation = report.summarise(rows, "interpolation", methods)
    ablation = report.summarise(rows, "ablation")
    report.write_csv(out / "controlled.csv", table)
    (out / "controlled.md").write_text(report.markdown(table), encoding="utf-8")
    report.write_csv(out / "interpolation.csv", interpolation)
    if ablation:
        report.write_csv(out / "ablation.csv", ablation)
    report.draw_table(rows, methods, out / "controlled.png")
    report.draw_interpolation(interpolation, out / "interpolation.png")
    (out / "provenance.json").write_text(
        json.dumps({"seeds": scale.seeds, **provenance()}, indent=2) + "\n", encoding="utf-8"
    )
    said = report.sentences(table, interpolation)
    return ControlledStudy(table, interpolation, ablation, said)


def _claim(out: Path, asked: dict[str, Any]) -> None:
    """Make the folder, or make sure that it holds this very study."""
    note = out / "study.json"
    if note.exists():
        if json.loads(note.read_text(encoding="utf-8")) != asked:
            msg = f'"{out}" holds a study with other settings: choose another --out'
            raise InputError(msg)
        return
    if out.exists() and any(out.iterdir()):
        raise InputError(f'"{out}" holds something else: choose another --out')
    out.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(asked, indent=2) + "\n", encoding="utf-8")

"""Runs to one HTML file and the CSV beside it."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar import __version__, fields
from revar.errors import InputError
from revar.evaluation import rows
from revar.registry import SCORES
from revar.report.page.card import model_card, provenance
from revar.report.page.coding import RISK_STEPS, STEPS
from revar.report.page.content import Content, PageRun
from revar.report.page.panels import set_panel
from revar.report.page.picks import examples, suspects

_SCRIPTS = (
    "data.js", "figures.js", "charts.js", "tables.js", "explorer.js", "points.js", "diagrams.js",
    "stages.js", "examples.js", "main.js",
)  # fmt: skip
_LOGGED = ("epoch", "loss", "accuracy", "meta_loss", "weight_mean", "weight_spread")
_STATIC = "static"


@dataclass(frozen=True, slots=True)
class Page:
    """What is written.

    Attributes:
        html: the page.
        csv: every figure in it that `revar evaluate` prints.
    """

    html: str
    csv: str


def build_page(runs: Sequence[PageRun], *, title: str, csv_name: str, date: str = "") -> Page:
    """The page of one run or of several side by side.

    Args:
        runs: read, each with at least one test set.
        title: of the page.
        csv_name: of the file that will lie beside it, to link to.
        date: when it is written, for people.

    Raises:
        InputError: no run, or a run without a test set.
    """
    if not runs:
        raise InputError("no run is given: a report needs at least one")
    for run in runs:
        if not run.tests:
            raise InputError(f'"{run.path}" has no labelled test set to report on')
    described = [_run(run) for run in runs]
    data = {
        "title": title,
        "version": __version__,
        "date": date,
        "csv": csv_name,
        "steps": STEPS,
        "risk_steps": RISK_STEPS,
        "summaries": {entry.name: entry.summary for entry in SCORES},
        "notes": _notes(runs),
        "runs": described,
    }
    return Page(_html(title, data, described, csv_name), _csv(runs, described))


def _run(run: PageRun) -> dict[str, Any]:
    threshold = None if run.threshold is None else fields.to_json(run.threshold)
    if threshold is not None and run.threshold is not None:
        threshold["score"] = run.fitted.named(run.threshold.score)
        threshold["words"] = run.threshold.describe()
    return {
        "name": run.name,
        "path": run.path,
        "method": str(run.recipe.get("method", {}).get("name", run.name)),
        "seed": run.recipe.get("seed"),
        "classes": list(run.classes),
        "default": run.fitted.default_score,
        "own": run.fitted.own,
        "threshold": threshold,
        "log": [{key: record.get(key) for key in _LOGGED} for record in run.log],
        "sets": {name: set_panel(run, test) for name, test in run.tests.items()},
        "contents": {name: _contents(test.contents) for name, test in run.tests.items()},
        "suspects": _suspects(run),
        "suspects_of": 0 if run.train is None else len(run.train),
        "train_contents": _contents(run.train_contents),
        "train_note": run.train_note,
        "provenance": provenance(run),
        "card": model_card(run),
    }


def _suspects(run: PageRun) -> list[dict[str, Any]]:
    shelves = []
    for shelf in suspects(run.train, run.fitted):
        assert run.train is not None
        shown = examples(shelf.rows, run.train, run.fitted, shelf.scores)
        weight = run.train.columns.get("weight")
        for one in shown:
            one["weight"] = None if weight is None else float(weight[one["row"]])
        shelves.append({"title": shelf.title, "note": shelf.note, "examples": shown})
    return shelves


def _contents(contents: Mapping[int, Content]) -> dict[str, Any]:
    shown = {}
    for row, content in contents.items():
        picture = content.picture
        shown[str(row)] = {
            "picture": None if picture is None else base64.b64encode(picture).decode(),
            "cells": None if content.cells is None else list(content.cells.items()),
            "name": content.name,
        }
    return shown


def _notes(runs: Sequence[PageRun]) -> list[str]:
    """What a reader who compares the runs must know."""
    notes = []
    for name in dict.fromkeys(name for run in runs for name in run.tests):
        having = [run for run in runs if name in run.tests]
        first = having[0].tests[name]
        other = [
            run.name
            for run in having[1:]
            if run.tests[name].fingerprint != first.fingerprint
            or not np.array_equal(_labels(run, name), _labels(having[0], name))
        ]
        if other:
            notes.append(
                f'The set "{name}" of {", ".join(other)} holds other examples than that of '
                f"{having[0].name}: their figures do not compare."
            )
    return notes


def _labels(run: PageRun, name: str) -> NDArray[np.int64]:
    labels = run.tests[name].predictions.labels
    assert labels is not None
    return labels


def _json(data: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever texts it holds."""
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _finite(value: Any) -> Any:
    """Infinite and undefined numbers as text, which JSON has no numbers for."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _static(name: str) -> str:
    return files(__package__).joinpath(_STATIC, name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _html(title: str, data: Any, described: Sequence[Mapping[str, Any]], csv_name: str) -> str:
    style = _static("page.css")
    script = "\n".join(['"use strict";', *map(_static, _SCRIPTS)])
    # Only this very script and style may run, so a text that slipped through could do nothing.
    policy = (
        f"default-src 'none'; img-src data:; script-src '{_digest(script)}'; "
        f"style-src '{_digest(style)}'; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "title": html.escape(title),
        "policy": policy,
        "style": style,
        "script": script,
        "data": _json(data),
        "csv": html.escape(csv_name),
        "plain": _plain(described),
    }
    page = _static("page.html")
    # One pass: what is put in is never looked through for further places.
    pieces = page.split("@@")
    return "".join(piece if i % 2 == 0 else parts[piece] for i, piece in enumerate(pieces))


def _plain(described: Sequence[Mapping[str, Any]]) -> str:
    """The main figures for a reader without scripts."""
    lines = []
    for run in described:
        for name, panel in run["sets"].items():
            figures = panel["figures"]
            score = figures["scores"].get(run["default"], {})
            cells = [
                run["name"], name, f"{panel['n']:,}", f"{figures['accuracy']:.2%}",
                f"{figures['ece']:.2%}", f"{score.get('auarc', math.nan):.2%}",
            ]  # fmt: skip
            lines.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    return "".join(f"<tr>{line}</tr>" for line in lines)


def _csv(runs: Sequence[PageRun], described: Sequence[Mapping[str, Any]]) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["run", "method", "seed", "set", "score", "metric", "value"])
    for run, shown in zip(runs, described, strict=True):
        for name, panel in shown["sets"].items():
            for split, score, metric, value in rows(name, panel["figures"]):
                cell = "" if value is None else repr(value)
                seed = "" if shown["seed"] is None else shown["seed"]
                writer.writerow([run.name, shown["method"], seed, split, score, metric, cell])
    return written.getvalue()

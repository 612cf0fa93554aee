"""Other methods' figures from the tables of the paper, where a run of theirs is one of the study.

A cell counts only if it is what the study itself would have trained: data, noise, net, epochs,
settings and the whole recipe. Only figures are kept of it, so that it stands in tables and takes
no part in tests.
"""

from __future__ import annotations

import functools
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from revar.errors import InputError
from revar.registry import METHODS
from revar.tables.cell import Cell
from revar.tables.sources import set_name
from uscore_run import cell_of, sets_of
from uscore_store import FIGURES
from uscore_tasks import BESIDE, FOLDERS, Job, way_named

Row = dict[str, Any]


def cell_rows(file: Path) -> dict[tuple[str, str], list[Row]]:
    """Rows of each folder and set: a cell's own score, its default and softmax response.

    Args:
        file: ``results/cells.zip``, or one that ``revar paper`` packed.

    Raises:
        InputError: it cannot be read.
    """
    found: dict[tuple[str, str], list[Row]] = {}
    for digest, asked, metrics in _cells(file):
        for folder in FOLDERS:
            if not is_of(asked, folder):
                continue
            job = _job(folder, asked["method"])
            for split, own in sets_of(job).items():
                rows = _rows(folder, split, digest, asked, metrics[set_name(own)])
                found.setdefault((folder, split), []).extend(rows)
    return found


def is_of(asked: Mapping[str, Any], folder: str) -> bool:
    """Whether a cell is a run of the study on this folder, by a method that counts.

    Args:
        asked: its ``cell.json``.
        folder: a name of `FOLDERS`.
    """
    if asked["method"] in BESIDE or all(asked["method"] != entry.name for entry in METHODS):
        return False
    ours, recipe = _wanted(folder, asked["method"], asked["seed"])
    return _without_sets(ours) == _without_sets(asked) and agree(recipe, asked["recipe"])


@functools.cache
def _wanted(folder: str, method: str, seed: int) -> tuple[Row, Row]:
    cell = cell_of(_job(folder, method)).seeded(seed)
    plain: tuple[Row, Row] = json.loads(json.dumps([cell.to_json(), cell.recipe().to_json()]))
    return plain


def _job(folder: str, method: str) -> Job:
    return Job(folder=folder, way=way_named(method), seed=0)


def _without_sets(asked: Mapping[str, Any]) -> Row:
    """What decides the training: a table may score more sets than the study."""
    names = [field.name for field in fields(Cell) if field.name != "data"]
    kept = {name: asked[name] for name in (*names, "version")}
    data = {name: value for name, value in asked["data"].items() if name != "tests"}
    return {**kept, "data": data}


def agree(wanted: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """Whether a recipe that was kept is the one that is wanted.

    What is left open (``None``) a run fills in, and a field that is younger than the run is not
    in its recipe; everything else has to be the same, and a field that is gone may have mattered.
    Fingerprints of data are not compared.
    """
    if kept.keys() - wanted.keys() - {"format", "data"}:
        return False
    for name, value in wanted.items():
        if name == "data" or name not in kept or value is None:
            continue
        if isinstance(value, dict) and isinstance(kept[name], dict):
            if not agree(value, kept[name]):
                return False
        elif value != kept[name]:
            return False
    return True


def _rows(
    folder: str, split: str, digest: str, asked: Mapping[str, Any], metrics: Mapping[str, Any]
) -> Iterator[Row]:
    own, default = metrics["own_score"], metrics["default_score"]
    for score in dict.fromkeys((own, default, "softmax")):
        figures = metrics["scores"][score]
        whole = {**figures, "accuracy": figures["accuracy_at_coverage"]["1.0"]}
        yield {
            "folder": folder, "set": split, "way": asked["method"], "method": asked["method"],
            "score": score, "own": score == own, "default": score == default,
            "seed": asked["seed"], **{name: whole[name] for name in FIGURES},
            "ece": metrics["ece"] if score == "softmax" else None, "recipe": digest,
            "from": "tables of the paper",
        }  # fmt: skip


def _cells(file: Path) -> Iterator[tuple[str, Row, Row]]:
    """Digest, ``cell.json`` and ``metrics.json`` of each."""
    try:
        with zipfile.ZipFile(file) as archive:
            for name in sorted(archive.namelist()):
                digest, _, ending = name.partition("/")
                if ending == "cell.json":
                    metrics = json.loads(archive.read(f"{digest}/metrics.json"))
                    yield digest, json.loads(archive.read(name)), metrics
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f'"{file}" holds no cells: {error}') from error

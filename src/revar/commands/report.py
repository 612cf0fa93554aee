"""``revar report``"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar import fields
from revar.commands import report_inputs
from revar.commands.columns import refuse_group
from revar.commands.reading import reading_of
from revar.commands.report_inputs import Sources
from revar.data.inputs import Inputs
from revar.data.labels import Classes
from revar.data.source import Part
from revar.errors import InputError
from revar.predictions import Predictions
from revar.report.page import Content, PageRun, TestSet, build_page
from revar.report.page.picks import picks, suspects
from revar.run import LOG, RunFolder
from revar.selection import Threshold

_OURS = ('<p class="brand">revar report</p>', "run,method,seed,set,score,metric,value")
"""What a page, and a CSV beside one, can be told by."""
_LOOKED_AT = 100_000
"""Characters of a file that are read to tell whether it is a report; its head comes first."""
_LARGE = 5_000_000


@dataclass(frozen=True, slots=True)
class Report:
    """What was written.

    Attributes:
        page: the HTML file.
        csv: its figures.
        size: of the page in bytes.
        notes: what could not be shown, and why.
    """

    page: Path
    csv: Path
    size: int
    notes: tuple[str, ...]


def report(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    data: Sequence[str] = (),
    group: str | None = None,
    title: str | None = None,
) -> Report:
    """Write the page of one run, or of several side by side, and its figures as CSV.

    Args:
        runs: the run folders.
        out: the HTML file; the CSV file beside it has its name.
        data: where the inputs of test sets are now, to show some and to know their groups;
            what a run was trained on is looked for where it was.
        group: column of a CSV file to break figures down by; the one of training unless given.
        title: of the page.

    Raises:
        InputError: no finished run, none with a labelled test set, a run given twice, or a file
            in the way that is no report.
    """
    paths = [Path(run) for run in runs]
    for number, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:number]]:
            raise InputError(f'"{path}" is given twice: runs of a report must differ')
    page = Path(out)
    if not page.name:
        raise InputError(f'"{page}" is a folder: give --out a name that ends in .html')
    table = page.with_suffix(".csv")
    _check_places(page, table)
    sources = Sources(tuple(data))
    read = [_Reader(path, sources, group) for path in paths]
    if group is not None:
        refuse_group(group, data or [str(reader.data.get("spec")) for reader in read])
    made = [reader.run(name) for reader, name in zip(read, _names(paths), strict=True)]
    if data and not any(test.contents for run in made for test in run.tests.values()):
        msg = f'none of the examples of these runs are in "{data[0]}": give the data of a test set'
        raise InputError(msg)
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    heading = title or " and ".join(run.name for run in made)
    built = build_page(made, title=heading, csv_name=table.name, date=date)
    page.parent.mkdir(parents=True, exist_ok=True)
    whole = built.html.encode()
    for path, content in ((table, built.csv.encode()), (page, whole)):
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(content)
        beside.replace(path)
    notes = dict.fromkeys(
        f"{run.name}, {name}: {test.note}"
        for run in made
        for name, test in run.tests.items()
        if test.note
    )
    if len(whole) > _LARGE:
        notes[
            f"the page has {len(whole) / 1e6:.1f} MB: fewer runs or test sets make it smaller"
        ] = None
    return Report(page, table, len(whole), tuple(notes))


def _names(paths: Sequence[Path]) -> list[str]:
    """Short names, unless two runs would have the same."""
    short = [path.resolve().name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def _check_places(page: Path, table: Path) -> None:
    if page.suffix not in (".html", ".htm"):
        raise InputError(f'"{page}" is no HTML file: give --out a name that ends in .html')
    for path, mark in zip((page, table), _OURS, strict=True):
        if path.is_dir():
            raise InputError(f'"{path}" is a folder: choose another --out')
        if path.exists():
            with path.open(encoding="utf-8", errors="replace") as file:
                if mark not in file.read(_LOOKED_AT):
                    raise InputError(f'"{path}" exists and is no report: choose another --out')


class _Reader:
    """Reads one run."""

    def __init__(self, path: Path, sources: Sources, group: str | None) -> None:
        self.path, self.sources = path, sources
        self.folder = RunFolder(path)
        self.recipe = self.folder.recipe()
        if not self.folder.finished:
            raise InputError(f'"{path}" is unfinished: train it with --resume first')
        store = self.folder.store
        described: Mapping[str, Any] = store.read_json("model.json")
        self.classes = Classes(tuple(described["classes"]))
        self.described = described["inputs"]
        self.inputs: Inputs = report_inputs.read_inputs(self.described)
        self.fitted = self.folder.fitted()
        self.prints: dict[str, NDArray[np.int64]] = {
            name: rows.numpy()
            for name, rows in store.read_tensors("fingerprints.safetensors").items()
        }
        self.data: Mapping[str, Any] = self.recipe.get("data", {})
        self.group = group or self.data.get("group")

    def run(self, name: str) -> PageRun:
        """The run as the page takes it."""
        store = self.folder.store
        names = store.names()
        threshold = None
        if "threshold.json" in names:
            threshold = fields.from_json(Threshold, store.read_json("threshold.json"))
        tests = {one: self._test(one) for one in self._test_names()}
        if not tests:
            msg = f'"{self.path}" has no labelled test set: revar evaluate {self.path} --on DATA'
            raise InputError(f"{msg} gives it one")
        there = self.folder.prediction_names()
        train = self.folder.predictions("train") if "train" in there else None
        shown, why = self._training_points(train)
        log = store.read(LOG).decode().splitlines() if LOG in names else []
        return PageRun(
            name=name,
            path=str(self.path),
            classes=self.classes.names,
            fitted=self.fitted,
            tests=tests,
            train=train,
            train_contents=shown,
            train_note=why,
            threshold=threshold,
            log=tuple(json.loads(line) for line in log),
            recipe=self.recipe,
            provenance=store.read_json("provenance.json") if "provenance.json" in names else {},
            inputs=report_inputs.described_inputs(self.described),
        )

    def _test_names(self) -> list[str]:
        """``test`` first, then those that came with the data, then those of ``evaluate --on``."""
        known = self.data.get("fingerprints", {})
        there = [
            name
            for name in self.folder.prediction_names()
            if f"test:{name}" in known or name == "test" or name.startswith("on-")
        ]
        return sorted(there, key=lambda name: (name != "test", name.startswith("on-"), name))

    def _sources(self) -> tuple[list[tuple[str, Any]], str]:
        reading = reading_of(self.data, self.inputs, self.classes)
        return self.sources.of(self.data.get("spec"), replace(reading, skip_unreadable=True))

    def _test(self, name: str) -> TestSet:
        predictions = self.folder.predictions(name)
        known = [
            rows
            for key, rows in self.prints.items()
            if key == f"test:{name}" or (name.startswith("on-") and key.startswith("test:"))
        ]
        found, why = self._sources()
        rows = sorted({row for shelf in picks(predictions, self.fitted) for row in shelf.rows})
        digest = str(self.data.get("fingerprints", {}).get(f"test:{name}", ""))
        for spec, source in found:
            for part in report_inputs.test_parts(source, name):
                if not known or not report_inputs.is_part(part, predictions, self.classes):
                    continue
                shown = report_inputs.contents(
                    part, rows, np.asarray(rows), self.inputs, np.concatenate(known)
                )
                if shown:
                    return self._found(predictions, digest, spec, part, shown)
        reason = f" ({why})" if why else ""
        note = f"its inputs are not at hand{reason}, so no examples are shown: give --data"
        return TestSet(predictions=predictions, fingerprint=digest, note=note)

    def _found(
        self,
        predictions: Predictions,
        digest: str,
        spec: str,
        part: Part,
        shown: dict[int, Content],
    ) -> TestSet:
        groups = report_inputs.group_column(spec, self.group, len(part))
        if groups is None and part.groups is not None:
            groups = np.asarray(part.groups).astype(str)
        return TestSet(
            predictions=predictions,
            fingerprint=digest,
            groups=groups,
            group_name=self.group or "group",
            contents=shown,
        )

    def _training_points(self, train: Predictions | None) -> tuple[dict[int, Content], str]:
        shelves = suspects(train, self.fitted)
        if train is None or not shelves:
            return {}, ""
        places = sorted({row for shelf in shelves for row in shelf.rows})
        found, why = self._sources()
        rows = train.index[places]
        for _, source in found:
            known = self.prints.get("train", np.empty(0, dtype=np.int64))
            shown = report_inputs.contents(source.train, places, rows, self.inputs, known)
            if shown:
                return shown, ""
        reason = f" ({why})" if why else ""
        return {}, f"The training inputs are not at hand{reason}, so only their rows are named."

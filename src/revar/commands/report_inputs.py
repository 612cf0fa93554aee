"""Inputs for the galleries of a report: a run keeps none, so they are read again and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from revar.data.frames import FrameInputs
from revar.data.inputs import ArrayInputs, Inputs, is_frame
from revar.data.kinds import is_csv
from revar.data.labels import Classes
from revar.data.source import Part, Reading, Source, evaluation_part, load_source
from revar.data.stored import scan
from revar.errors import InputError
from revar.predictions import Predictions
from revar.report.page import Content
from revar.report.page.pictures import png

Rows = NDArray[np.int64]
_SIDE = 96
"""Pixels of the longer side of a picture in the page."""
_COLUMNS = 40
"""Columns of a table shown at most."""


@dataclass(slots=True)
class Sources:
    """Data by SPEC, each read once.

    Attributes:
        given: by the user, looked at first; what is wrong with them is an error.
    """

    given: Sequence[str]
    _read: dict[tuple[str, Reading], Source] = field(default_factory=dict)

    def of(self, recorded: str | None, reading: Reading) -> tuple[list[tuple[str, Source]], str]:
        """Sources to look in, and why that of training is not among them.

        Args:
            recorded: SPEC of the training data.
            reading: how.
        """
        found = [(spec, self._source(spec, reading)) for spec in self.given]
        if recorded is None:
            return found, "its place is not on record"
        if recorded in self.given:
            return found, ""
        try:
            return [*found, (recorded, self._source(recorded, reading))], ""
        except (InputError, OSError) as error:
            return found, str(error)

    def _source(self, spec: str, reading: Reading) -> Source:
        if (spec, reading) not in self._read:
            self._read[spec, reading] = load_source(spec, reading)
        return self._read[spec, reading]


def test_parts(source: Source, name: str) -> list[Part]:
    """Parts that may be the test set of a name: that of the name, or what is evaluated on."""
    named = [source.tests[name]] if name in source.tests else []
    return [*named, evaluation_part(source), *source.tests.values()]


def is_part(part: Part, predictions: Predictions, classes: Classes) -> bool:
    """Whether these may be the examples of the predictions, by number and labels."""
    if part.y is None or predictions.labels is None or len(part) != len(predictions):
        return False
    try:
        return bool(np.array_equal(classes.encode(part.y), predictions.labels))
    except InputError:
        return False


def contents(
    part: Part, places: Sequence[int], rows: Rows, inputs: Inputs, known: Rows
) -> dict[int, Content]:
    """Inputs of some examples, if every one of them is among those the run knows.

    Args:
        part: of the data.
        places: of the examples in the predictions.
        rows: of the part, one each.
        inputs: how the run reads them.
        known: hashes of the examples of the run's own set.

    Returns:
        Nothing where one of them is another than the run has seen.
    """
    if len(rows) == 0 or rows.max() >= len(part):
        return {}
    few = part.take(rows)
    try:
        encoded = inputs.encode(few.x)
    except InputError:
        return {}
    if not np.isin(scan(encoded).hashes, known).all():
        return {}
    names = few.names or ("",) * len(rows)
    if inputs.image_shape is not None:
        block = encoded if isinstance(encoded, Tensor) else encoded[:]
        return {
            place: Content(picture=_picture(block[i]), name=names[i])
            for i, place in enumerate(places)
        }
    cells = _cells(few.x)
    return {place: Content(cells=cells[i], name=names[i]) for i, place in enumerate(places)}


def _picture(image: Tensor) -> bytes:
    """A PNG of [c, h, w], no side longer than `_SIDE`; grey unless it has three channels."""
    values = image.float()
    if image.dtype != torch.uint8:
        low, high = values.min(), values.max()
        values = (values - low) / (high - low).clamp_min(1e-12) * 255.0
    values = values[:3] if len(values) >= 3 else values[:1]
    height, width = values.shape[1:]
    scale = _SIDE / max(height, width)
    if scale < 1.0:
        size = (max(1, round(height * scale)), max(1, round(width * scale)))
        values = F.interpolate(values[None], size=size, mode="area")[0]
    return png(values.round().clamp(0, 255).to(torch.uint8).movedim(0, -1).numpy())


def _cells(raw: Any) -> list[dict[str, str]]:
    """Each row as column to text."""
    if is_frame(raw):
        columns = [str(name) for name in raw.columns]
        table = raw.to_numpy(dtype=object)
    else:
        table = np.asarray(raw)
        columns = [f"column {i}" for i in range(table.shape[1])]
    shown = columns[:_COLUMNS]
    return [{name: _text(row[i]) for i, name in enumerate(shown)} for row in table.tolist()]


def _text(value: Any) -> str:
    if value is None or value != value:
        return "missing"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def group_column(spec: str, column: str | None, n: int) -> NDArray[np.str_] | None:
    """[n] cells of a column of a CSV file, to break figures down by.

    Args:
        spec: where the examples are from.
        column: its name; nothing is read without one.
        n: examples.
    """
    path = Path(spec)
    if column is None or not is_csv(path) or not path.exists():
        return None
    from revar.data.files import read_frame

    frame = read_frame(path, (column,))
    if column not in frame.columns or len(frame) != n:
        return None
    values = frame[column]
    return np.where(values.isna(), "missing", values.astype(str)).astype(str)


def described_inputs(described: Mapping[str, Any]) -> str:
    """What one example is, in words."""
    if described["kind"] == "frame":
        names = [str(column["name"]) for column in described["columns"]]
        listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        return f"A row of {len(names)} columns: {listed}."
    shape = described["shape"]
    if len(shape) == 3:
        channels, height, width = shape
        return f"An image of {width} x {height} pixels, {channels} channel(s)."
    return f"A row of {shape[0]} numbers."


def read_inputs(described: Mapping[str, Any]) -> Inputs:
    """How a run reads its inputs, from what ``model.json`` says."""
    from revar import fields

    kind: type[Inputs] = FrameInputs if described["kind"] == "frame" else ArrayInputs
    return fields.from_json(kind, dict(described))

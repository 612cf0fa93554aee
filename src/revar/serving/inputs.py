"""Bytes that a client sent to examples of the model's kind. No path of a client is opened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.data.frames import Column, FrameInputs
from revar.data.images import decode
from revar.data.inputs import ArrayInputs, Inputs
from revar.errors import InputError
from revar.serving.refusals import Refused

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""Pillow knows more, some of which start other programs."""
_LONGEST_NAME = 200
_NUMBER = 32
"""Bytes that the longest number a program writes takes in JSON, with a comma and spaces."""
_CELL = 256
_LARGEST_JSON = 16 * 2**20
"""Parsed JSON takes twenty times the memory of its text."""


@dataclass(frozen=True, slots=True)
class Examples:
    """What one request asks about.

    Attributes:
        x: [n, ...] as stored.
        names: [n] what to call them in the answer.
    """

    x: Tensor
    names: tuple[str, ...]


def reads_images(inputs: Inputs) -> bool:
    """Whether the model takes image files; one of images of floats takes arrays only."""
    return isinstance(inputs, ArrayInputs) and len(inputs.shape) == 3 and inputs.dtype == "uint8"


def json_bytes(inputs: Inputs, items: int) -> int:
    """The longest JSON that so many examples can need."""
    if isinstance(inputs, FrameInputs):
        each = sum(len(json.dumps(column.name)) + _CELL for column in inputs.columns)
    else:
        each = int(np.prod(inputs.shape)) * _NUMBER
    return min(_LARGEST_JSON, 65_536 + items * (each + _NUMBER))


# Images ---------------------------------------------------------------------------------------


def safe_name(given: str | None, number: int) -> str:
    """A client's name of a file, to say it back: one line, the last part, never opened."""
    last = (given or "").replace("\\", "/").rpartition("/")[2]
    plain = "".join(c if c.isprintable() else "?" for c in last)[:_LONGEST_NAME]
    return plain or f"image {number}"


def image(content: bytes, name: str, shape: tuple[int, ...], max_pixels: int) -> Tensor:
    """[channels, height, width] uint8, read exactly as ``revar predict`` reads a file.

    Raises:
        Refused: 413 for too many pixels, 415 for another format, 422 for a damaged picture.
    """
    from PIL import Image

    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    too_large = f'"{name}" has more than {max_pixels} pixels: shrink it'
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as header:
            pixels = header.width * header.height
    except bombs as error:
        raise Refused(413, too_large) from error
    except Exception as error:  # each format fails in its own way
        listed = ", ".join(FORMATS)
        raise Refused(415, f'"{name}" is no image of a known format ({listed})') from error
    if pixels > max_pixels:
        raise Refused(413, too_large)
    try:
        return torch.from_numpy(decode(Path(name), shape, content).copy())
    except InputError as error:
        raise Refused(422, str(error)) from error


# Rows -----------------------------------------------------------------------------------------


def rows(body: bytes, inputs: Inputs, max_items: int) -> Tensor:
    """[n, ...] as stored, of ``{"rows": [...]}``.

    Raises:
        Refused: 400 for no JSON, 413 for too many rows, 422 for rows the model cannot read.
    """
    given = _parse(body)
    if not isinstance(given, dict) or not isinstance(given.get("rows"), list):
        raise Refused(400, f'the body must be {{"rows": [...]}}, each of them {shape_of(inputs)}')
    strange = sorted(set(given) - {"rows"})
    if strange:
        raise Refused(400, f'the body has "{strange[0][:40]}" beside "rows": leave it out')
    examples: list[Any] = given["rows"]
    if not examples:
        raise Refused(422, "there are no rows: give at least one")
    if len(examples) > max_items:
        msg = f"{len(examples)} rows are too many for one request: send at most {max_items}"
        raise Refused(413, msg)
    try:
        if isinstance(inputs, FrameInputs):
            return _frame(examples, inputs)
        return _array(examples, inputs)
    except InputError as error:
        raise Refused(422, str(error)) from error


def shape_of(inputs: Inputs) -> str:
    """What one example is, in words."""
    if isinstance(inputs, FrameInputs):
        return f"an object with {len(inputs.columns)} named values"
    if len(inputs.shape) == 1:
        return f"a list of {inputs.shape[0]} numbers"
    return f"nested lists of numbers of shape {list(inputs.shape)}"


def _parse(body: bytes) -> Any:
    def constant(name: str) -> NoReturn:
        raise Refused(422, f"the body holds {name}: give finite numbers, or null where allowed")

    try:
        return json.loads(body, parse_constant=constant)
    except RecursionError as error:
        raise Refused(400, "the JSON is nested too deeply") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Refused(400, f"the body is no JSON: {error.msg} ({where})") from error
    except ValueError as error:  # not UTF-8, or a number of thousands of digits
        raise Refused(400, "the body is no JSON: use UTF-8 and ordinary numbers") from error


def _array(examples: Sequence[Any], inputs: ArrayInputs) -> Tensor:
    """Numbers in the model's shape; channels may come last, and grey images may have none."""
    blocks = []
    for number, example in enumerate(examples):
        block = _numbers(example, number)
        if block.shape != inputs.shape and len(inputs.shape) == 3:
            channels, height, width = inputs.shape
            if block.shape == (height, width, channels):
                block = np.moveaxis(block, -1, 0)
            elif block.shape == (height, width) and channels == 1:
                block = block[None]
        if block.shape != inputs.shape:
            found = list(block.shape) if block.ndim else "no list"
            msg = f"row {number} has shape {found}: this model reads {shape_of(inputs)}"
            raise InputError(msg)
        blocks.append(block)
    # A tensor has its channels first, so that nothing is left to guess.
    encoded = inputs.encode(torch.from_numpy(np.stack(blocks)))
    assert isinstance(encoded, Tensor)
    return encoded


def _numbers(example: Any, number: int) -> NDArray[np.float64]:
    try:
        block = np.array(example)
    except (ValueError, OverflowError) as error:
        raise InputError(f"row {number} is ragged or nested too deeply") from error
    if not block.size:
        raise InputError(f"row {number} is empty")
    if block.dtype.kind not in "iuf":
        odd = _first_odd(example)
        needed = "a smaller number" if type(odd) is int else "a number"
        raise InputError(f"row {number} holds {_shown(odd)} where {needed} is needed")
    values = block.astype(np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"row {number} holds a number too large for a float: scale it down")
    return values


def _first_odd(example: Any) -> Any:
    """The first value that is no number, or the largest one: some have too many digits."""
    left, numbers = [example], []
    while left:
        value = left.pop()
        if isinstance(value, list):
            left.extend(reversed(value))
        elif isinstance(value, bool) or not isinstance(value, int | float):
            return value
        else:
            numbers.append(value)
    return max(numbers, key=abs)


def _frame(examples: Sequence[Any], inputs: FrameInputs) -> Tensor:
    """Named values as the columns of a frame; null is a gap, as an empty cell of a CSV file."""
    import pandas as pd

    for number, example in enumerate(examples):
        if not isinstance(example, dict):
            raise InputError(f"row {number} is {_shown(example)}: give {shape_of(inputs)}")
        for column in inputs.columns:
            if column.name not in example:
                msg = f'row {number} lacks "{column.name}": give null where it is not known'
                raise InputError(msg)
    columns = {
        column.name: _column(column, [example[column.name] for example in examples])
        for column in inputs.columns
    }
    return inputs.encode(pd.DataFrame(columns))


def _column(column: Column, cells: list[Any]) -> Any:
    import pandas as pd

    for number, cell in enumerate(cells):
        if isinstance(cell, list | dict):
            raise InputError(f'"{column.name}" of row {number} is {_shown(cell)}, not one value')
        if column.median is not None and isinstance(cell, str):
            msg = f'"{column.name}" of row {number} is {_shown(cell)} where a number is needed'
            raise InputError(msg)
        if isinstance(cell, int) and abs(cell) > 2**1000:
            raise InputError(f'"{column.name}" of row {number} is too large for a float')
    if column.median is None:
        return pd.Series(cells, dtype=object)
    return pd.Series([np.nan if cell is None else float(cell) for cell in cells], dtype="float64")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."

"""Files that are either whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from revar.errors import InputError


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside the path, to the disk, then rename: a reader sees the old file or the new."""
    beside = path.with_name(f".{path.name}.new")
    write(beside)
    with beside.open("rb+") as file:
        os.fsync(file.fileno())
    beside.replace(path)


def write_text(path: Path, text: str) -> None:
    """A text file, atomically."""
    write_atomically(path, lambda beside: _write_utf8(beside, text))


def _write_utf8(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:
    """A JSON file, atomically."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        InputError: missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f'"{path}" is missing') from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f'"{path}" is damaged: {error}') from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file, atomically."""
    whole = {name: value.contiguous() for name, value in tensors.items()}
    write_atomically(path, lambda beside: save_file(whole, beside))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """What a safetensors file holds.

    Raises:
        InputError: missing or damaged.
    """
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise InputError(f'"{path}" is missing') from error
    except SafetensorError as error:
        raise InputError(f'"{path}" is damaged: {error}') from error

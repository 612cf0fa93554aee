"""Tiny imitations of how published data sets lie on disk."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.pictures import pixels, save


def write(path: Path, text: str) -> Path:
    """A file of text, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def table(path: Path, header: str, rows: Sequence[Sequence[object]]) -> Path:
    """A CSV file."""
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    return write(path, "\n".join(lines) + "\n")


def sheet(path: Path, n: int, side: int, columns: int = 4, seed: int = 0) -> NDArray[np.uint8]:
    """A lossless sheet of tiles, its last row filled up; gives [n, side, side, 3] back.

    ``path`` may end in .jpg: the content tells what it is.
    """
    rows = -(-n // columns)
    picture = pixels(rows * side, columns * side, 3, seed)
    save(path, picture, format="PNG")
    cut = [picture[side * (i // columns) :, side * (i % columns) :][:side, :side] for i in range(n)]
    return np.stack(cut)


def class_tree(root: Path, counts: Mapping[str, int], side: int = 8, below: str = "") -> None:
    """``root/<class>/<image>``, in a folder ``below`` the class if it is given."""
    for k, (name, count) in enumerate(counts.items()):
        for i in range(count):
            save(root / name / below / f"{name}_{i}.JPEG", pixels(side, side, 3, 100 * k + i))


def retina(root: Path, sheets: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, Any]:
    """Packed retinal images: sheet to (image id, grade)s; gives the tiles by sheet."""
    rows: list[tuple[object, ...]] = []
    tiles = {}
    for k, (name, listed) in enumerate(sheets.items()):
        tiles[name] = sheet(root / f"{name}.jpg", len(listed), 96, seed=k)
        rows += [(name, i, image, "", grade, "") for i, (image, grade) in enumerate(listed)]
    table(root / "labels.csv", "file,index,image_id,source,grade,quality_ok", rows)
    return tiles


def idx(path: Path, values: NDArray[np.uint8]) -> None:
    """An idx file of bytes, packed if its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    content = bytes((0, 0, 8, values.ndim)) + sizes + values.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)

"""The general readers of published image files: class folders, and folders with a CSV of labels.

The third general reader, of packed images, is `revar.data.packed`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np

from revar.data.columns import read_columns
from revar.data.images import SUFFIXES
from revar.data.source import Part, Source
from revar.data.stored import ImageFiles
from revar.data.trees import classes_in
from revar.errors import InputError
from revar.library.specs import Found


def class_folders(found: Found) -> Source:
    """``<part>/<class>/<image>`` for the parts of the form; labels are the names of the folders.

    A form with ``test`` only gives a source that is all test domain.
    """
    parts = {
        name: class_folder(found.path / folder, found.shape)
        for name, folder in found.form.parts.items()
    }
    return source_of(parts)


def source_of(parts: dict[str, Part]) -> Source:
    """Parts by name as a source: ``train``, ``meta``, ``test``, the others as further splits."""
    others = {name: p for name, p in parts.items() if name not in ("train", "meta", "test")}
    if "train" not in parts:
        return Source(parts["test"], splits=others)
    tests = {"test": parts["test"]} if "test" in parts else {}
    return Source(parts["train"], parts.get("meta"), tests, splits=others)


def class_folder(
    root: Path, shape: tuple[int, ...], classes: Collection[str] | None = None
) -> Part:
    """The images of ``root/<class>/``, at any depth below the class.

    Args:
        root: the folder.
        shape: (channels, height, width) to read them at.
        classes: the names wanted, or none: all that are there.

    Raises:
        InputError: no such folder, none of the classes, or no images in them.
    """
    wanted = [name for name in classes_in(root) if classes is None or name in classes]
    paths, labels = [], []
    for label in wanted:
        files = images_below(root / label)
        paths += files
        labels += [label] * len(files)
    if not paths:
        raise InputError(f'"{root}" has no images in class folders: expected <class>/<image>')
    names = tuple(str(path.relative_to(root)) for path in paths)
    return Part(ImageFiles(tuple(paths), shape), np.array(labels, dtype=np.str_), names=names)


def images_below(root: Path) -> list[Path]:
    """Image files below a folder, in the order of their paths; no file is opened."""
    found = []
    for folder, _, files in os.walk(root):
        found += [Path(folder, name) for name in files if name.lower().endswith(SUFFIXES)]
    return sorted(found)


def labelled_images(
    table: Path,
    pattern: str,
    shape: tuple[int, ...],
    *,
    label: str,
    group: str | None = None,
) -> Part:
    """Images that a CSV file names, with a column of labels.

    Args:
        table: the CSV file.
        pattern: path of an image beside the table, with ``{column}`` for cells of its row.
        shape: (channels, height, width) to read them at.
        label: the column of labels; whole numbers where all of them are.
        group: the column of what must stay together, or none.

    Raises:
        InputError: no such table or column.
    """
    fields = [piece.partition("}")[0] for piece in pattern.split("{")[1:]]
    columns = list(dict.fromkeys([*fields, label, *([group] if group else [])]))
    cells = read_columns(table, *columns)
    named = zip(*(cells[field].tolist() for field in fields), strict=True)
    names = [pattern.format(**dict(zip(fields, row, strict=True))) for row in named]
    if not names:
        raise InputError(f'"{table}" has no rows below its header')
    numbers = all(cell.lstrip("-").isdigit() for cell in cells[label].tolist())
    return Part(
        ImageFiles(tuple(table.parent / name for name in names), shape),
        cells[label].astype(np.int64) if numbers else cells[label],
        cells[group] if group else None,
        tuple(names),
    )


def joined(parts: list[Part]) -> Part:
    """Parts of images one after another, arrays or files; groups where all have them."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0].x
    if isinstance(first, ImageFiles):
        x: object = ImageFiles(tuple(p for part in parts for p in part.x.paths), first.image_shape)
    else:
        x = np.concatenate([part.x for part in parts])
    labelled = all(part.y is not None for part in parts)
    grouped = all(part.groups is not None for part in parts)
    return Part(
        x,
        np.concatenate([np.asarray(part.y) for part in parts]) if labelled else None,
        np.concatenate([np.asarray(part.groups) for part in parts]) if grouped else None,
        tuple(name for part in parts for name in part.names or ()),
    )

"""A SPEC to parts: registered names, class folders, ``.npz`` archives and CSV files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.data.inputs import is_frame
from revar.data.kinds import conversion, is_csv, is_npz
from revar.data.stored import ImageFiles, Items
from revar.errors import InputError, unknown
from revar.library.specs import DatasetSpec
from revar.registry import DATASETS, Entry, load


@dataclass(frozen=True, slots=True)
class Part:
    """Examples of one part of a source, as read.

    Attributes:
        x: an array, a tensor or a frame.
        y: labels as given, or none.
        groups: what must not be torn apart (patients), or none.
        names: what the examples are called where they come from.
        weights: how much each example counts, or none: all alike.
    """

    x: Any
    y: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    names: tuple[str, ...] | None = None
    weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: NDArray[np.int64]) -> Part:
        """Some of the examples, in that order."""
        if is_frame(self.x):
            x = self.x.iloc[rows]
        else:
            x = self.x.take(rows) if isinstance(self.x, ImageFiles | Items) else self.x[rows]
        return Part(
            x,
            None if self.y is None else self.y[rows],
            None if self.groups is None else self.groups[rows],
            None if self.names is None else tuple(self.names[i] for i in rows),
            None if self.weights is None else self.weights[rows],
        )


@dataclass(frozen=True, slots=True)
class Source:
    """Data with the parts it came in.

    Attributes:
        train: what training may see; meta and tune are taken off it.
        meta: a meta set of its own, if the data has one.
        tests: test sets by name; ``test`` is the one meant when none is named.
        unlabelled: inputs without labels, if the data has them.
        splits: further parts by name that the data came with or was split into by patient, such
            as ``tune``, ``calibration`` and ``val``; nobody trains or reports on them unasked.
    """

    train: Part
    meta: Part | None = None
    tests: Mapping[str, Part] = field(default_factory=dict)
    unlabelled: Part | None = None
    splits: Mapping[str, Part] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to read files.

    Attributes:
        target: the column of labels of a CSV file.
        group: the column of groups of a CSV file.
        image: the column of image paths of a CSV file, relative to it.
        image_shape: (channels, height, width) to read images at, where that is settled.
        skip_unreadable: leave images out that cannot be read, with a warning that counts them.
        text: columns of a CSV file that are text, whatever is written in them; its labels are
            where the classes of a run are.
        needed: columns a model reads, which must be there; those not of text hold numbers.
        numeric_labels: labels are numbers wherever they can be, as those of the run are.
        strip: blanks after a text of a CSV file are no part of it.
        leave_out: columns of a CSV file that are no inputs.
    """

    target: str | None = None
    group: str | None = None
    image: str | None = None
    image_shape: tuple[int, ...] | None = None
    skip_unreadable: bool = False
    text: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    numeric_labels: bool = False
    strip: bool = True
    leave_out: tuple[str, ...] = ()


def load_source(spec: str, reading: Reading | None = None) -> Source:
    """Read labelled data.

    Args:
        spec: a registered name, ``name:part`` of one, a folder of class folders, an ``.npz`` or a
            ``.csv`` file.
        reading: how.

    Raises:
        InputError: nothing there, or not readable as any of these.
    """
    how = reading or Reading()
    name, _, split = spec.partition(":")
    for entry in DATASETS:
        if entry.name == name:
            source = _registered(entry, how, split)
            return Source(_part_named(source, split, spec)) if split else source
    path = Path(spec)
    if path.is_dir():
        from revar.data.folders import read_class_folders

        return read_class_folders(path, how)
    if not path.exists():
        if path.suffix or path.parent != Path():
            raise InputError(f'no data at "{spec}"')
        raise unknown("dataset", spec, [entry.name for entry in DATASETS])
    if is_npz(path):
        from revar.data.files import read_npz

        return read_npz(path)
    if is_csv(path):
        from revar.data.files import read_csv

        return read_csv(path, how)
    msg = f'"{spec}" is none of: a registered name, a folder of class folders, .npz, .csv'
    raise InputError(f"{msg}{conversion(spec)}")


def _registered(entry: Entry, reading: Reading, part: str) -> Source:
    if isinstance(entry, DatasetSpec) and entry.forms:
        from revar.data.datasets import read_dataset

        return read_dataset(entry, image_shape=reading.image_shape, part=part)
    source: Source = load(entry.target)()
    return source


def _part_named(source: Source, split: str, spec: str) -> Part:
    own = {} if source.meta is None else {"meta": source.meta}
    parts = {"train": source.train, **own, **source.splits, **source.tests}
    if split not in parts:
        raise unknown(f"part of {spec.partition(':')[0]}", split, parts)
    return parts[split]


def evaluation_part(source: Source) -> Part:
    """What of a source to evaluate on: its test part where it has one, else all of it."""
    return source.tests.get("test", source.train)


def load_inputs(spec: str, reading: Reading) -> Part:
    """Read inputs without labels; labels that are there are left alone.

    Args:
        spec: an image file, a folder of images, an ``.npz`` with ``x``, a ``.csv`` file, or what
            `load_source` reads by name.
        reading: how; its ``image_shape`` is that of the model's images, ``None`` for tables.

    Raises:
        InputError: nothing there, or not of the kind the model reads.
    """
    path = Path(spec)
    registered = spec.partition(":")[0] in [entry.name for entry in DATASETS]
    if registered or not path.exists():
        part = evaluation_part(load_source(spec))
        return Part(part.x, names=part.names)
    if is_npz(path):
        from revar.data.arrays import read_arrays

        arrays = read_arrays(path)
        if "x" not in arrays:
            raise InputError(f'"{spec}" has no array "x" (it has {", ".join(arrays) or "nothing"})')
        return Part(arrays["x"])
    if is_csv(path):
        from revar.data.files import image_column, read_frame
        from revar.data.spelling import check_features

        as_written = (*reading.text, *([reading.image] if reading.image is not None else []))
        frame = read_frame(path, as_written, strip=reading.strip)
        if reading.image is not None:
            return image_column(path, frame, reading)
        if reading.needed:
            check_features(path, frame, reading)
        return Part(frame)
    if reading.image_shape is None:
        msg = f'"{spec}" is no table: this model reads .csv or .npz files'
        raise InputError(f"{msg}{conversion(spec)}")
    from revar.data.folders import keep_readable
    from revar.data.listing import image_files

    files = image_files(path)
    if not files:
        raise InputError(f'"{spec}" has no image files')
    names = [str(file.relative_to(path)) if path.is_dir() else str(file) for file in files]
    part = Part(ImageFiles(tuple(files), reading.image_shape), names=tuple(names))
    return keep_readable(part, reading)

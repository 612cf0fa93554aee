"""A published data set by its spec: found, read, checked."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from revar.data.holdings import odd_sizes
from revar.data.published import locate
from revar.data.source import Source
from revar.errors import DataWarning, InputError
from revar.library.specs import DatasetSpec, Form
from revar.registry import DATASETS, find, load


def dataset_spec(name: str) -> DatasetSpec:
    """The spec of that name.

    Raises:
        InputError: there is none.
    """
    spec = find("dataset", name, DATASETS)
    assert isinstance(spec, DatasetSpec)
    return spec


def read_dataset(
    spec: DatasetSpec, *, image_shape: tuple[int, ...] | None = None, part: str = ""
) -> Source:
    """Read a published data set from the folder of data.

    Args:
        spec: which.
        image_shape: (channels, height, width) to read image files at, in place of the spec's.
        part: the only part that is needed, if it is one.

    Raises:
        InputError: it is not there, cannot be read, or has other classes than it should.
    """
    found = replace(locate(spec), image_shape=image_shape, part=part)
    source: Source = load(found.form.reader)(found)
    _check(spec, found.form, source, part)
    return source


def _check(spec: DatasetSpec, form: Form, source: Source, asked: str) -> None:
    """Refuse labels that cannot be; warn of parts that are not whole, if they are asked for."""
    own = {} if source.meta is None else {"meta": source.meta}
    parts = {"train": source.train, **own, **source.splits, **source.tests}
    if not source.tests and "train" not in form.sizes:
        # A test domain: all of it is what others are tested on.
        parts = {"test": source.train}
    classes: set[object] = set()
    for part in parts.values():
        classes |= set(np.unique(part.y).tolist()) if part.y is not None else set()
    if len(classes) > spec.n_classes:
        msg = f'dataset "{spec.name}" has {len(classes)} classes, it should have {spec.n_classes}'
        raise InputError(msg)
    odd = odd_sizes(form, {n: len(part) for n, part in parts.items() if asked in ("", n)})
    if odd:
        msg = f'dataset "{spec.name}" is not complete: {odd}'
        warnings.warn(msg, DataWarning, stacklevel=4)

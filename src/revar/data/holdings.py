"""Which published data sets are there, whole or not: for `revar list datasets`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from revar.data.published import how_to_get, locate
from revar.errors import InputError
from revar.library.specs import DatasetSpec, Form, Sizes
from revar.registry import DATASETS, find, load

State = Literal["here", "absent", "damaged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What there is of one data set.

    Attributes:
        state: ``damaged`` is there, but files are missing or cannot be read.
        sizes: examples by part, as counted; none unless it is ``here``.
        side: pixels of its square images as they are read; 0 for tables and what is not here.
        missing: why it is not here, or how to get it.
        lacking: the data set whose images it takes, where that is all that is not here.
        incomplete: parts that have other sizes than a complete copy.
    """

    state: State
    sizes: Sizes | None = None
    side: int = 0
    missing: str | None = None
    lacking: str | None = None
    incomplete: str | None = None


def holdings(specs: tuple[DatasetSpec, ...]) -> dict[str, Holding]:
    """Name to what there is of it; data sets that others take images from are counted once."""
    known: dict[str, Holding] = {}
    for spec in specs:
        _hold(spec, known)
    return known


def _hold(spec: DatasetSpec, known: dict[str, Holding]) -> Holding:
    if spec.name not in known:
        known[spec.name] = _look(spec, known)
    return known[spec.name]


def _look(spec: DatasetSpec, known: dict[str, Holding]) -> Holding:
    if not spec.forms:
        return Holding(state="here", sizes=dict(spec.sizes), side=spec.side)
    try:
        found = locate(spec)
    except InputError:
        return Holding(state="absent", missing=how_to_get(spec))
    if spec.base:
        base = find("dataset", spec.base, DATASETS)
        assert isinstance(base, DatasetSpec)
        images = _hold(base, known)
        if images.sizes is None:
            reason = f'the images of "{base.name}" are not here: {images.missing}'
            return Holding(state=images.state, missing=reason, lacking=base.name)
        found = replace(found, base=images.sizes)
    try:
        sizes = dict(load(found.form.counter)(found))
    except (InputError, OSError) as error:
        return Holding(state="damaged", missing=str(error))
    except Exception as error:  # One odd file must not hide all other data sets.
        reason = f'"{found.path}" cannot be counted: {type(error).__name__}: {error}'
        return Holding(state="damaged", missing=reason)
    empty = [part for part, size in sizes.items() if not size]
    if empty:
        reason = f'"{found.path}" has no examples of {", ".join(empty)}'
        return Holding(state="damaged", missing=reason)
    return Holding(
        state="here",
        sizes=sizes,
        side=found.form.side,
        incomplete=odd_sizes(found.form, sizes) or None,
    )


def odd_sizes(form: Form, sizes: Sizes) -> str:
    """Parts that are there with another size than a complete copy has, in words; or nothing."""
    odd = [
        f"{part} has {sizes[part]:,} examples, not {size:,}"
        for part, size in form.sizes.items()
        if part in sizes and sizes[part] != size
    ]
    return "; ".join(odd)

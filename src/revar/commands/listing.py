"""``revar list``"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from revar.calibrators import CALIBRATORS
from revar.errors import InputError, unknown
from revar.library.specs import DatasetSpec
from revar.published import published
from revar.registry import BACKBONES, DATASETS, METHODS, OWN_SCORES, SCORES, Entry, find, load
from revar.tables.names import NAMES

Kind = Literal["methods", "scores", "calibrators", "backbones", "datasets", "tables"]
_LISTS: dict[str, tuple[Entry, ...]] = {
    "methods": METHODS,
    "scores": (*SCORES, *OWN_SCORES),
    "calibrators": CALIBRATORS,
    "backbones": BACKBONES,
    "datasets": DATASETS,
    "tables": tuple(
        Entry(name=name, summary=published(name).caption) for name in (*NAMES, "controlled")
    ),
}


def list_names(kind: str, *, timm: str | None = None) -> list[dict[str, Any]]:
    """What is registered, one object each, with at least ``name`` and ``summary``.

    Args:
        kind: ``methods``, ``scores``, ``calibrators``, ``backbones``, ``datasets`` or
            ``tables``.
        timm: with ``backbones``: timm's names that match this shell pattern instead of ours.

    Raises:
        InputError: no such list, or ``timm`` with another one.
    """
    if kind not in _LISTS:
        raise unknown("list", kind, _LISTS)
    if timm is not None and kind != "backbones":
        raise InputError(f"--timm goes with backbones only: revar list backbones --timm '{timm}'")
    if timm is not None:
        from revar.nets.external import timm_names

        return [{"name": name, "summary": "timm"} for name in timm_names(timm)]
    return [
        _dataset(entry) if isinstance(entry, DatasetSpec) else _plain(entry)
        for entry in _LISTS[kind]
    ]


def _plain(entry: Entry) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(entry).items() if key != "target"}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}


def _dataset(spec: DatasetSpec) -> dict[str, Any]:
    """A row of the table of data sets: what it is, and what of it is there.

    ``sizes`` has the examples that are there by part, none where it is not; ``missing`` then says
    how to get it. ``paper`` has the sizes that the ReVaR paper gives.
    """
    sizes, missing = _there(spec)
    return {
        "name": spec.name,
        "summary": spec.summary,
        "classes": spec.n_classes,
        "sizes": sizes,
        "paper": dict(spec.paper),
        "missing": missing,
        "layout": {form.place: form.layout for form in spec.forms},
        "obtain": spec.obtain,
        "licence": spec.licence,
        "citation": spec.citation,
    }


def _there(spec: DatasetSpec) -> tuple[dict[str, int] | None, str | None]:
    """Sizes of the parts that are there, or why they are not."""
    from revar.data.published import how_to_get, locate

    if not spec.forms:
        return dict(spec.sizes), None
    try:
        found = locate(spec)
        if spec.base:
            base = find("dataset", spec.base, DATASETS)
            assert isinstance(base, DatasetSpec)
            locate(base)
    except InputError:
        return None, how_to_get(spec)
    if not found.form.counter:
        return dict(found.form.sizes), None
    try:
        return dict(load(found.form.counter)(found)), None
    except (InputError, OSError) as error:
        return None, str(error)

"""``revar list``"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from revar.calibrators import CALIBRATORS
from revar.errors import InputError, unknown
from revar.library.specs import DatasetSpec
from revar.published import published
from revar.registry import BACKBONES, DATASETS, METHODS, OWN_SCORES, SCORES, Entry
from revar.tables.names import NAMES

if TYPE_CHECKING:
    from revar.data.holdings import Holding

Kind = Literal["methods", "scores", "calibrators", "backbones", "datasets", "tables"]
_LISTS: dict[str, tuple[Entry, ...]] = {
    "methods": METHODS,
    "scores": (
        *SCORES,
        *OWN_SCORES,
        Entry(name="own", summary="another name for the one the run's method is published with"),
    ),
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
    if kind == "datasets":
        return _datasets()
    return [_plain(entry) for entry in _LISTS[kind]]


def _plain(entry: Entry) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(entry).items() if key != "target"}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}


def _datasets() -> list[dict[str, Any]]:
    """The rows of the table of data sets: what each is, and what of it is there.

    ``sizes`` has the examples that are there by part, none where it is not; ``missing`` then says
    what is damaged or how to get it, and ``state`` which of the two. ``paper`` has the sizes that
    the ReVaR paper gives.
    """
    from revar.data.holdings import holdings
    from revar.data.published import data_folder

    data_folder()  # a wrong one is told, and not taken for an empty one
    specs = tuple(entry for entry in DATASETS if isinstance(entry, DatasetSpec))
    held = holdings(specs)
    return [_dataset(spec, held[spec.name]) for spec in specs]


def _dataset(spec: DatasetSpec, held: Holding) -> dict[str, Any]:
    return {
        "name": spec.name,
        "summary": spec.summary,
        "classes": spec.n_classes,
        "state": held.state,
        "sizes": None if held.sizes is None else dict(held.sizes),
        "image_size": _square(held.side),
        "incomplete": held.incomplete,
        "paper": dict(spec.paper),
        "paper_image_size": _square(spec.paper_side),
        "missing": held.missing,
        "lacking": held.lacking,
        "layout": {form.place: form.layout for form in spec.forms},
        "obtain": spec.obtain,
        "licence": spec.licence,
        "citation": spec.citation,
    }


def _square(side: int) -> str | None:
    return f"{side}x{side}" if side else None

"""``revar list``"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from revar.calibrators import CALIBRATORS
from revar.errors import InputError, unknown
from revar.registry import BACKBONES, DATASETS, METHODS, OWN_SCORES, SCORES, Entry

Kind = Literal["methods", "scores", "calibrators", "backbones", "datasets"]
_LISTS: dict[str, tuple[Entry, ...]] = {
    "methods": METHODS,
    "scores": (*SCORES, *OWN_SCORES),
    "calibrators": CALIBRATORS,
    "backbones": BACKBONES,
    "datasets": DATASETS,
}


def list_names(kind: str, *, timm: str | None = None) -> list[dict[str, Any]]:
    """What is registered, one object each, with at least ``name`` and ``summary``.

    Args:
        kind: ``methods``, ``scores``, ``calibrators``, ``backbones`` or ``datasets``.
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
    entries = []
    for entry in _LISTS[kind]:
        fields = {key: value for key, value in asdict(entry).items() if key != "target"}
        entries.append({k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()})
    return entries

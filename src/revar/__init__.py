"""Classifiers that know when to stay silent.

    from revar import SelectiveClassifier

Names are imported when first used, so that ``import revar`` loads no tensors.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "ERM": "revar.methods.erm",
    "InputError": "revar.errors",
    "ReVaR": "revar.methods.revar",
    "SelectiveClassifier": "revar.estimator",
}
_MODULES = ("calibrators", "metrics", "selection")

__all__ = [
    "ERM",
    "InputError",
    "ReVaR",
    "SelectiveClassifier",
    "calibrators",
    "metrics",
    "selection",
]

if TYPE_CHECKING:
    from revar import calibrators, metrics, selection
    from revar.errors import InputError
    from revar.estimator import SelectiveClassifier
    from revar.methods.erm import ERM
    from revar.methods.revar import ReVaR


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _MODULES:
        return import_module(f"revar.{name}")
    raise AttributeError(f"module 'revar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

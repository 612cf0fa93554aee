"""The numbers that the ReVaR paper prints, so that they can stand beside ours.

    from revar.published import published

    published("main").values["revar", "aptos"].mean

Jain, Shanmugam and Shenoy, "Selective classification using a robust meta-learning approach". A
table has one metric; where the paper prints several, `parts` has them all. Rows are methods by our
names, where ``revar`` is what the paper calls ours and ``sr`` is plain training with softmax
response. Notes say where the paper contradicts itself.
"""

from __future__ import annotations

from revar.errors import unknown
from revar.published import (
    ablations,
    architectures,
    calibration,
    controls,
    cost,
    noise,
    plex,
    selective,
    shift,
)
from revar.published.base import PublishedTable, PublishedValue

__all__ = ["TABLES", "PublishedTable", "PublishedValue", "parts", "published"]

TABLES: tuple[str, ...] = (
    "main",
    "calibration",
    "ood",
    "shifted-validation",
    "label-noise",
    "label-uncertainty",
    "adaptation",
    "lesion",
    "controlled",
    "plex-calibration",
    "plex-label",
    "plex-selective",
    "dr-coverage",
    "imagenet100-coverage",
    "imagenet1k-coverage",
    "uscore-architecture",
    "vit",
    "wrn",
    "cost",
    "parameter-control",
    "entropy-regularisation",
    "reweighting",
    "simple-calibrators",
    "entropy-correlation",
    "hard-samples",
    "matched-sets",
    "adaptation-ood",
    "two-phase-adaptation",
    "dataset-statistics",
)
"""In the paper's order, nearly."""

_EVERY = (
    *selective.TABLES,
    *calibration.TABLES,
    *shift.TABLES,
    *noise.TABLES,
    *plex.TABLES,
    *ablations.TABLES,
    *architectures.TABLES,
    *controls.TABLES,
    *cost.TABLES,
)
_BY_NAME = {table.name: table for table in _EVERY}


def published(name: str) -> PublishedTable:
    """What the paper prints under a name.

    Args:
        name: of `TABLES`, or one that `parts` gave, such as ``dr-coverage/auc``.

    Raises:
        InputError: there is no such table.
    """
    if name not in _BY_NAME:
        raise unknown("published table", name, TABLES)
    return _BY_NAME[name]


def parts(name: str) -> tuple[PublishedTable, ...]:
    """All metrics that the paper prints under a name of `TABLES`, `published` of it first.

    >>> [part.metric for part in parts("dr-coverage")]
    ['accuracy', 'AUC', 'ECE']

    Raises:
        InputError: there is no such table.
    """
    first = published(name)
    return (first, *(table for table in _EVERY if table.name.startswith(f"{name}/")))

"""What one registered name is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One registered name.

    Attributes:
        name: what users type.
        summary: one line.
        target: ``module:attribute`` of what it stands for.
        citation: where it comes from.
    """

    name: str
    summary: str
    target: str = ""
    citation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneEntry(Entry):
    """A network of our own.

    Attributes:
        reads: what inputs it takes.
    """

    reads: Literal["image", "any"]

"""Rows: how a method of the paper's tables is trained here, and by which score it selects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One row.

    Attributes:
        method: a name of ``revar list methods``.
        score: a name of ``revar list scores``; ``own`` is the method's, ``default`` the run's.
        settings: further fields.
        unlabelled: whether it is given unlabelled points of the test set it is asked about.
    """

    method: str
    score: str = "own"
    settings: Settings = field(default=())
    unlabelled: bool = False

    def with_settings(self, **settings: str) -> Way:
        """The same with further fields."""
        return replace(self, settings=(*self.settings, *sorted(settings.items())))


_PV = Way(method="revar", score="default", unlabelled=True).with_settings(unlabelled="pooled")

WAYS: dict[str, Way] = {
    "sr": Way(method="erm", score="softmax"),
    "mcd": Way(method="erm", score="mcd"),
    "entropy": Way(method="erm", score="softmax_entropy"),
    **{
        name: Way(method=name)
        for name in (
            "gamblers", "selectivenet", "sat", "vr", "mbr", "mmce", "brier", "flsd53", "adafocal",
            "mwn", "l2r", "fsr", "history",
        )
    },
    "revar": Way(method="revar", score="default"),
    "revar-uscore": Way(method="revar", score="uscore"),
    "revar-sr": Way(method="revar", score="softmax"),
    "revar-mcd": Way(method="revar", score="mcd"),
    "revar-paper": Way(method="revar-paper", score="uscore"),
    "plex": Way(method="erm", score="softmax"),
    "plex-revar": Way(method="revar", score="default"),
    "novarmin": Way(method="revar", score="default").with_settings(variance_weight="0"),
    "ibr": Way(method="ibr", score="uscore"),
    "revar-pv": _PV,
    "revar-dsv": replace(_PV, settings=(("unlabelled", "only"),)),
    "vr-pv": Way(method="vr", unlabelled=True).with_settings(unlabelled="pooled"),
    "vr-dsv": Way(method="vr", unlabelled=True).with_settings(unlabelled="only"),
}  # fmt: skip
"""By the name of the row. ``revar`` is our form of ReVaR and stands where the paper has its own;
``revar-paper`` is the paper's text."""

LITERAL = ("revar-paper", "ibr")
"""Methods whose U-Score is a network of its own, as in the paper's text."""

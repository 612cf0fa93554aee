"""Every table and figure of the paper, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from revar.errors import unknown
from revar.tables import controls, learning, plex, selective
from revar.tables.places import Scale
from revar.tables.questions import Grid


@dataclass(frozen=True, slots=True)
class Table:
    """A table by name.

    Attributes:
        name: what users type; that of `revar.published` too.
        build: its grids at a scale; its first line of documentation says what the table shows.
    """

    name: str
    build: Callable[[Scale], list[Grid]]

    @property
    def summary(self) -> str:
        """One line."""
        return (self.build.__doc__ or "").splitlines()[0].removesuffix(".")


TABLES: tuple[Table, ...] = (
    Table("main", selective.main),
    Table("calibration", selective.calibration),
    Table("ood", selective.ood),
    Table("shifted-validation", selective.shifted_validation),
    Table("label-noise", learning.label_noise),
    Table("label-uncertainty", learning.label_uncertainty),
    Table("adaptation", learning.adaptation),
    Table("lesion", learning.lesion),
    Table("plex-calibration", plex.calibration),
    Table("plex-label", plex.label),
    Table("plex-selective", plex.selective),
    Table("dr-coverage", selective.dr_coverage),
    Table("imagenet100-coverage", selective.hundred),
    Table("imagenet1k-coverage", selective.thousand),
    Table("uscore-architecture", controls.uscore_architecture),
    Table("vit", controls.vit),
    Table("wrn", controls.wrn),
    Table("cost", controls.cost),
    Table("parameter-control", controls.parameter_control),
    Table("entropy-regularisation", learning.entropy_regularisation),
    Table("reweighting", learning.reweighting),
    Table("simple-calibrators", controls.simple_calibrators),
    Table("entropy-correlation", controls.entropy_correlation),
    Table("hard-samples", selective.hard_samples),
    Table("matched-sets", selective.matched_sets),
    Table("adaptation-ood", learning.adaptation_ood),
    Table("two-phase-adaptation", learning.two_phase),
)
"""Without ``controlled``, which trains no classifier."""


def find_table(name: str) -> Table:
    """By its name.

    Raises:
        InputError: no such table.
    """
    for table in TABLES:
        if table.name == name:
            return table
    raise unknown("table", name, [*(table.name for table in TABLES), "controlled"])

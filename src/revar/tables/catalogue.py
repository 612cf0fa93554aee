"""Every table and figure of the paper, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from revar.errors import InputError, unknown
from revar.tables import controls, learning, plex, selective
from revar.tables.places import SCALES, Scale, scale_of
from revar.tables.questions import Grid, asked_of


@dataclass(frozen=True, slots=True)
class Table:
    """A table by name.

    Attributes:
        name: what users type; that of `revar.published` too.
        build: its grids at a scale; its first line of documentation says what the table shows.
        control: whether it asks if something else explains a result, of fewer seeds if the scale
            says so.
    """

    name: str
    build: Callable[[Scale], list[Grid]]
    control: bool = False

    def grids(self, scale: Scale) -> list[Grid]:
        """At a scale, each question asked of as many seeds as the scale has for it."""
        made = self.build(scale)
        if not self.control or scale.control_seeds is None:
            return made
        return [asked_of(grid, scale.control_seeds) for grid in made]

    def has_columns(self, scale: Scale) -> bool:
        """Whether there is anything to ask at a scale."""
        return any(grid.columns for grid in self.grids(scale))

    @property
    def summary(self) -> str:
        """One line."""
        return (self.build.__doc__ or "").splitlines()[0].removesuffix(".")


TABLES: tuple[Table, ...] = (
    Table("main", selective.main),
    Table("calibration", selective.calibration),
    Table("ood", selective.ood),
    Table("shifted-validation", selective.shifted_validation, control=True),
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
    Table("uscore-architecture", controls.uscore_architecture, control=True),
    Table("vit", controls.vit, control=True),
    Table("wrn", controls.wrn, control=True),
    Table("cost", controls.cost),
    Table("parameter-control", controls.parameter_control, control=True),
    Table("entropy-regularisation", learning.entropy_regularisation, control=True),
    Table("reweighting", learning.reweighting),
    Table("simple-calibrators", controls.simple_calibrators),
    Table("entropy-correlation", controls.entropy_correlation),
    Table("hard-samples", selective.hard_samples),
    Table("matched-sets", selective.matched_sets),
    Table("adaptation-ood", learning.adaptation_ood, control=True),
    Table("two-phase-adaptation", learning.two_phase, control=True),
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


def tables_at(names: Sequence[str], scale: Scale) -> tuple[Table, ...]:
    """Tables by their names; of ``all`` those that have columns at the scale.

    Raises:
        InputError: no such table, or one that has no columns at the scale.
    """
    if "all" in names:
        return tuple(table for table in TABLES if table.has_columns(scale))
    found = tuple(find_table(name) for name in names)
    for table in found:
        if not table.has_columns(scale):
            why = "; ".join(f"{name}: {said}" for name, said in left_out([table], scale).items())
            others = [name for name in SCALES if table.has_columns(scale_of(name))]
            msg = f'table "{table.name}" has no columns at scale "{scale.name}" ({why})'
            raise InputError(f"{msg}: use --scale {' or '.join(others)}")
    return found


def left_out(tables: Sequence[Table], scale: Scale) -> dict[str, str]:
    """Why places that tables ask about have no columns at a scale, by their names."""
    grids = [grid for table in tables for grid in table.grids(scale)]
    return {name: reason for grid in grids for name, reason in grid.left_out.items()}

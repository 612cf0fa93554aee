"""What a scale is made of: settings of runs, places of columns, nets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from revar.tables.cell import Cell, DataChoice
from revar.tables.ways import LITERAL, Settings, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How everything on one data set is trained, whatever the method.

    Attributes:
        data: with all test sets that any column asks about, so that columns share runs.
        backbone: of the classifier.
        epochs: passes over the training data.
        settings: further fields for every method.
        scorer: network of the U-Score for the methods of the paper's text, if it is not of the
            classifier's kind.
    """

    data: DataChoice
    backbone: str
    epochs: int
    settings: Settings = ()
    scorer: str | None = None

    def cell(self, way: Way, **changes: object) -> Cell:
        """A method on this data; changes are those of the data.

        Args:
            way: the method.
            changes: fields of `DataChoice`.
        """
        data = replace(self.data, **changes)  # type: ignore[arg-type]
        own: Settings = ()
        if self.scorer is not None and way.method in LITERAL:
            own = (("scorer_backbone", self.scorer),)
        return Cell(
            data=data,
            method=way.method,
            settings=(*self.settings, *own, *way.settings),
            backbone=self.backbone,
            epochs=self.epochs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a column is asked.

    Attributes:
        setting: of the runs.
        tests: sets of those runs; a figure over several is their mean.
        stands_for: what is asked here instead of the paper's data, or nothing.
        soft: name of the soft labels of the test set, if there are any.
    """

    setting: Setting
    tests: tuple[str, ...] = ("test",)
    stands_for: str = ""
    soft: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the tables are.

    Attributes:
        name: of the scale.
        seeds: of every cell.
        control_seeds: of tables of controls, if they have fewer.
        places: by the name of the column; what is not there is left out of the tables.
        scorers: nets of the U-Score for ``uscore-architecture``, by row.
        nets: of both networks for ``vit``, ``wrn`` and ``parameter-control``, by name.
        net_settings: further fields where one of these nets is trained, by its name.
        pretrained: how the large pretrained model is fine-tuned, by the name of the column.
        scratch: where other nets are asked about, instead of places that start from trained
            weights: those are of one net alone.
        left_out: why a column is not asked at this scale, by its name.
    """

    name: str
    seeds: int
    places: Mapping[str, Place]
    scorers: Mapping[str, str]
    nets: Mapping[str, str]
    pretrained: Mapping[str, Setting]
    scratch: Mapping[str, Place] = field(default_factory=dict)
    control_seeds: int | None = None
    net_settings: Mapping[str, Settings] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

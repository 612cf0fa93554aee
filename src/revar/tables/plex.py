"""Tables of fine-tuning a large pretrained model, plainly and with the U-Score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import mean

from revar.tables import figures
from revar.tables.build import ACCURACY, AUC, at_coverages, cell_at, grid, stand_ins
from revar.tables.places import Place, Scale
from revar.tables.questions import Figure, Grid, Question
from revar.tables.store import Finished
from revar.tables.ways import WAYS

ROWS = ("plex", "plex-revar")
_SETS = {
    "in-distribution": ("eyepacs", "cifar100"),
    "out-of-distribution": ("aptos", "imagenet-c"),
}
"""Columns of ``plex-calibration``; the paper does not say which sets it means."""


def _pretrained(scale: Scale) -> Scale:
    """The places that the pretrained model is fine-tuned at."""
    places = {
        name: replace(scale.places[name], setting=setting)
        for name, setting in scale.pretrained.items()
        if name in scale.places
    }
    return replace(scale, places=places)


def calibration(scale: Scale) -> list[Grid]:
    """Calibration error of fine-tuned models, at home and under shift."""
    questions = {}
    told = {column: _told(scale, places) for column, places in _SETS.items()}
    columns = [c for c, places in _SETS.items() if all(p in scale.pretrained for p in places)]
    for row in ("flsd53", "mmce", "revar", *ROWS):
        there = _pretrained(scale) if row in ROWS else scale
        for column in columns:
            places = {name: there.places[name] for name in _SETS[column]}
            cells = {name: cell_at(WAYS[row], place) for name, place in places.items()}
            questions[row, column] = Question(cells, _mean_ece(places))
    return [
        Grid(
            name="plex-calibration", title="calibration error of a fine-tuned model", metric="ECE",
            higher=False, rows=("flsd53", "mmce", "revar", *ROWS), columns=tuple(columns),
            questions=questions, stands_for={c: told[c] for c in columns if told[c]},
        )
    ]  # fmt: skip


def _told(scale: Scale, places: tuple[str, ...]) -> str:
    return " and ".join(dict.fromkeys(stand_ins(scale, places).values()))


def _mean_ece(places: Mapping[str, Place]) -> Figure:
    asked = [
        figures.over(place.tests, figures.plain("ece"), part=name) for name, place in places.items()
    ]

    def ask(cells: Mapping[str, Finished]) -> float:
        return mean(figure(cells) for figure in asked)

    return ask


def label(scale: Scale) -> list[Grid]:
    """Fine-tuned models and the disagreement of people."""
    there = _pretrained(scale)
    columns = ("imagenet-100h", "cifar100h")
    title = "divergence of a fine-tuned model from what people said"
    return [
        grid(
            there, "plex-label", title, "KL", ROWS, columns,
            lambda request: figures.kl_to(request.place.soft or ""), higher=False, percent=False,
        )
    ]  # fmt: skip


def selective(scale: Scale) -> list[Grid]:
    """Fine-tuned models on retinal images by coverage."""
    there, columns = _pretrained(scale), ("eyepacs", "aptos")
    coverages = at_coverages(columns, (0.2, 0.4, 0.6, 0.8, 1.0))
    title = "a fine-tuned model on retinal images"
    return [
        grid(there, "plex-selective", title, "accuracy", ROWS, coverages, ACCURACY),
        grid(there, "plex-selective/auc", title, "AUC", ROWS, columns, AUC),
    ]

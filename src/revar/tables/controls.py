"""Tables of controls: nets, parameters, calibrators, cost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from revar.tables import figures
from revar.tables.build import (
    ACCURACY,
    AUARC,
    AUC,
    ERROR,
    MAIN,
    SELECTIVE,
    Ask,
    Request,
    at_coverages,
    cell_at,
    grid,
    left_out,
    split_column,
    stand_ins,
)
from revar.tables.cell import Cell
from revar.tables.places import Scale
from revar.tables.questions import Grid, Question
from revar.tables.ways import WAYS, Way


def _instead(way: Way, _: Way) -> Way:
    return way


def uscore_architecture(scale: Scale) -> list[Grid]:
    """Nets of the U-Score."""
    columns = at_coverages(("aptos",))
    title = "the net of the U-Score, reading the inputs"
    questions = {}
    for row, net in scale.scorers.items():
        way = WAYS["revar"].with_settings(scorer="network", scorer_backbone=net)
        one = grid(scale, "", "", "", ("revar",), columns, ACCURACY, change=partial(_instead, way))
        questions.update({(row, column): q for (_, column), q in one.questions.items()})
    return [
        Grid(
            name="uscore-architecture", title=title, metric="accuracy",
            rows=tuple(scale.scorers), columns=columns, questions=questions,
            stands_for=stand_ins(scale, columns),
        )
    ]  # fmt: skip


def _from_scratch(scale: Scale) -> Scale:
    """The scale at places where any net can start anew."""
    return replace(scale, places={**scale.places, **scale.scratch})


def _with_net(scale: Scale, net: str) -> Scale:
    """Every place with another classifier."""
    there, further = _from_scratch(scale), scale.net_settings.get(net, ())
    places = {}
    for name, place in there.places.items():
        fields = (*place.setting.settings, *further)
        setting = replace(place.setting, backbone=scale.nets[net], settings=fields)
        places[name] = replace(place, setting=setting)
    return replace(scale, places=places)


def vit(scale: Scale) -> list[Grid]:
    """A transformer and a deep ResNet as classifiers."""
    columns = at_coverages(("aptos", "imagenet-1k"))
    questions: dict[tuple[str, str], Question] = {}
    for net in ("resnet101", "vit-small"):
        one = grid(_with_net(scale, net), "", "", "", ("revar",), columns, ACCURACY)
        questions.update({(net, column): q for (_, column), q in one.questions.items()})
    there = tuple(c for c in columns if split_column(c)[0] in scale.places)
    return [
        Grid(
            name="vit", title="another kind of classifier", metric="accuracy",
            rows=("resnet101", "vit-small"), columns=there, questions=questions,
            stands_for=stand_ins(_from_scratch(scale), there), left_out=left_out(scale, columns),
        )
    ]  # fmt: skip


def wrn(scale: Scale) -> list[Grid]:
    """A wide ResNet as classifier."""
    rows = ("selectivenet", "sat", "revar")
    wide = _with_net(scale, "wrn")
    columns = at_coverages(("eyepacs", "aptos"))
    hundred = at_coverages(("imagenet-100",), (0.6, 0.7, 0.8, 0.9, 1.0))
    title = "a wider classifier"
    return [
        grid(wide, "wrn", title, "accuracy", rows, columns, ACCURACY),
        grid(wide, "wrn/auc", title, "AUC", rows, columns, AUC),
        grid(wide, "wrn/error", title, "error", rows, hundred, ERROR, higher=False),
    ]


def parameter_control(scale: Scale) -> list[Grid]:
    """Baselines with as many parameters.

    Baselines on a larger net, so that f and g together have no more parameters.
    """
    title = "baselines with as many parameters as f and g together"
    columns = ("aptos", "imagenet-1k")
    larger = grid(
        _with_net(scale, "resnet101"), "parameter-control", title, "AUARC", SELECTIVE[:4], columns,
        AUARC,
    )  # fmt: skip
    ours = grid(_from_scratch(scale), "", "", "AUARC", SELECTIVE[4:], columns, AUARC)
    return [replace(larger, rows=SELECTIVE, questions={**larger.questions, **ours.questions})]


CALIBRATORS = {
    "probout": "correctness_logistic",
    "platt": "vector",
    "temperature": "temperature",
    "conformal": "aps",
}
"""The calibrator of each row; a conformal one ranks by the size of its set, at alpha = 0.1."""


def _calibrated(name: str, _: Request) -> figures.OfSet:
    return figures.calibrated_auarc(name)


def simple_calibrators(scale: Scale) -> list[Grid]:
    """Plain training and a calibrator."""
    title = "plain training with a calibrator fitted on the tune split"
    ours = grid(scale, "simple-calibrators", title, "AUARC", ("revar", "revar-paper"), MAIN, AUARC)
    questions = dict(ours.questions)
    for row, calibrator in CALIBRATORS.items():
        ask = partial(_calibrated, calibrator)
        one = grid(scale, "", "", "", ("sr",), MAIN, ask)
        questions.update({(row, column): q for (_, column), q in one.questions.items()})
    return [replace(ours, rows=(*CALIBRATORS, *ours.rows), questions=questions)]


def entropy_correlation(scale: Scale) -> list[Grid]:
    """The U-Score and the entropy."""
    title = "the U-Score against the entropy of the softmax"
    ask: Ask = lambda _: figures.entropy_correlation("pearson")  # noqa: E731
    return [
        grid(
            scale, "entropy-correlation", title, "AUARC", ("entropy", "revar", "revar-paper"), MAIN,
            AUARC,
        ),
        grid(
            scale, "entropy-correlation/correlation", title, "correlation",
            ("revar", "revar-paper"), MAIN, ask, higher=None, percent=False,
        ),
    ]  # fmt: skip


TIMED_EPOCHS = 3
TIMED_IMAGES = 4_000


def _timed(cell: Cell) -> Cell:
    """A short run of it, with nothing beside it."""
    data = replace(cell.data, train=TIMED_IMAGES, tests=("test",), test=256, meta=None)
    return replace(cell, data=data, epochs=TIMED_EPOCHS, timed=True)


def cost(scale: Scale) -> list[Grid]:
    """Time per epoch, and epochs to converge, relative to plain training.

    Time is the fastest epoch of three over 4,000 examples, with nothing beside it; epochs are
    those of the ordinary runs. Rows that end in ``paper`` are of the paper's text.
    """
    asked = ("imagenet-1k", "cifar100", "eyepacs", "imagenet-100", "camelyon17", "iwildcam")
    columns = tuple(column for column in asked if column in scale.places)
    questions = {}
    for way, ending in (("revar", ""), ("revar-paper", "-paper")):
        for column in columns:
            place = scale.places[column]
            cells = {"cell": cell_at(WAYS[way], place), "plain": cell_at(WAYS["sr"], place)}
            timed = {part: _timed(cell) for part, cell in cells.items()}
            # Epochs of one run differ as much as runs do: more seeds would only take longer.
            questions[f"time-per-epoch{ending}", column] = Question(timed, figures.epoch_ratio, 1)
            questions[f"epochs{ending}", column] = Question(cells, figures.epochs_ratio)
    return [
        Grid(
            name="cost", title="time and epochs relative to plain training", metric="ratio",
            higher=None, percent=False, rows=tuple(dict.fromkeys(row for row, _ in questions)),
            columns=columns, questions=questions, stands_for=stand_ins(scale, columns),
            left_out=left_out(scale, asked),
        )
    ]  # fmt: skip

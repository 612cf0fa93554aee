"""Calibrators: predictions in, predictions out; fitted on the tune split of a run that has one.

They change the logits, or add named scores beside them; what the dropout passes and the method's
own columns say stays as it is. A calibrator is a frozen dataclass of plain numbers, so it is kept
as JSON:

    tuned = calibrators.fit("temperature", folder.predictions("tune"))
    test = tuned.apply(folder.predictions("test"))

Importing this package loads no arrays; that happens when something is fitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from revar.registry import Entry, find, load

if TYPE_CHECKING:
    from revar.calibrators.base import Calibrator
    from revar.predictions import Predictions

_GUO = "Guo et al. 2017"

CALIBRATORS: tuple[Entry, ...] = (
    Entry(
        name="temperature",
        summary="z / T; the predicted class stays",
        target="revar.calibrators.scaling:Temperature",
        citation=_GUO,
    ),
    Entry(
        name="vector",
        summary="a * z + b, a factor and an offset per class",
        target="revar.calibrators.scaling:Vector",
        citation=_GUO,
    ),
    Entry(
        name="matrix",
        summary="A z + b; overfits where there are many classes",
        target="revar.calibrators.scaling:Matrix",
        citation=_GUO,
    ),
    Entry(
        name="platt",
        summary="sigmoid(a s + b) of the logit difference s, two classes only",
        target="revar.calibrators.scaling:Platt",
        citation="Platt 1999",
    ),
    Entry(
        name="isotonic",
        summary="a rising step curve per class against the rest, normalised over classes",
        target="revar.calibrators.isotonic:Isotonic",
        citation="Zadrozny and Elkan 2002",
    ),
    Entry(
        name="correctness_logistic",
        summary="adds the logit of P(wrong) given top logit and margin",
        target="revar.calibrators.correctness:CorrectnessLogistic",
        citation="our reading of the ReVaR paper's ProbOut, after Platt 1999",
    ),
    Entry(
        name="lac",
        summary="adds conformal set size, confidence and credibility from 1 - p",
        target="revar.calibrators.conformal:LAC",
        citation="Sadinle, Lei and Wasserman 2019",
    ),
    Entry(
        name="aps",
        summary="adds conformal set size, confidence and credibility from cumulative mass",
        target="revar.calibrators.conformal:APS",
        citation="Romano, Sesia and Candes 2020",
    ),
    Entry(
        name="raps",
        summary="the same with a penalty on ranks beyond the fifth",
        target="revar.calibrators.conformal:RAPS",
        citation="Angelopoulos et al. 2021",
    ),
)


def check(name: str) -> None:
    """Refuse a name that is not registered.

    Raises:
        InputError: with the nearest name.
    """
    find("calibrator", name, CALIBRATORS)


def fit(name: str, predictions: Predictions) -> Calibrator:
    """Fit the named calibrator on labelled predictions of the tune split.

    Raises:
        InputError: no such calibrator, another split, no labels, or logits it cannot use.
    """
    fitted: Calibrator = load(find("calibrator", name, CALIBRATORS).target).fit(predictions)
    return fitted


def to_json(calibrator: Calibrator) -> dict[str, Any]:
    """A fitted calibrator as plain JSON values, with its name."""
    from revar import fields

    return {"name": calibrator.name, **fields.to_json(calibrator)}


def from_json(data: dict[str, Any]) -> Calibrator:
    """The calibrator that `to_json` wrote, to the bit.

    Raises:
        InputError: no such calibrator, or fields that are not its own.
    """
    from revar import fields

    values = dict(data)
    name = str(values.pop("name", ""))
    loaded: Calibrator = fields.from_json(
        load(find("calibrator", name, CALIBRATORS).target), values
    )
    return loaded

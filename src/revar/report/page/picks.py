"""Which examples are worth a look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.predictions import Predictions
from revar.scores import answers, available, correct, uncertainty
from revar.scores.learned import Fitted

EACH = 12
SUSPECTS = 16
POINT = 0.8
"""Coverage at which two scores are held against each other."""


@dataclass(frozen=True, slots=True)
class Picks:
    """Places of examples of one set, by why they were picked.

    Attributes:
        title: of this shelf of the gallery.
        note: what it shows.
        rows: the worst first.
        scores: names of the scores that are shown beside each.
    """

    title: str
    note: str
    rows: tuple[int, ...]
    scores: tuple[str, ...]


def other_score(predictions: Predictions, fitted: Fitted) -> str | None:
    """The score to hold against the default one: softmax, or else the method's own."""
    there = available(predictions, fitted)
    wanted = ("softmax", "uscore", "dropout_entropy", "softmax_entropy")
    return next((name for name in wanted if name in there and name != fitted.default_score), None)


def picks(predictions: Predictions, fitted: Fitted) -> list[Picks]:
    """The most uncertain, the most confident mistakes, and what two scores disagree about."""
    name = fitted.default_score
    values = uncertainty(predictions, name, fitted)
    right = correct(predictions, name, fitted)
    falling = np.argsort(-values, kind="stable")
    wrong = np.flatnonzero(~right)
    confident = wrong[np.argsort(values[wrong], kind="stable")]
    shelves = [
        Picks("Most uncertain", f"Rejected first by {name}.", _few(falling), (name,)),
        Picks(
            "Most confident mistakes", f"Wrong answers that {name} rejects last.",
            _few(confident), (name,),
        ),
    ]  # fmt: skip
    other = other_score(predictions, fitted)
    if other is not None:
        mine, theirs = _ranks(values), _ranks(uncertainty(predictions, other, fitted))
        border = POINT * len(values)
        for first, second, a, b in ((name, other, mine, theirs), (other, name, theirs, mine)):
            apart = np.flatnonzero((a >= border) & (b < border))
            rows = apart[np.argsort(-(a - b)[apart], kind="stable")]
            title = f"Rejected by {first}, accepted by {second}"
            note = f"At {100 * POINT:.0f} % coverage of each, the furthest apart first."
            shelves.append(Picks(title, note, _few(rows), (first, second)))
    return [shelf for shelf in shelves if shelf.rows]


def suspects(train: Predictions | None, fitted: Fitted) -> list[Picks]:
    """Training points of least weight and of highest U-Score; none where there is no U-Score.

    The least weight is where the training hardly listened, the highest U-Score where it saw
    uncertainty. Which of them holds the wrong labels depends on the method and its settings; a
    method that weighs nothing has the second only.
    """
    if train is None or train.labels is None or "uscore" not in train.columns:
        return []
    shelves = []
    if "weight" in train.columns:
        light = np.argsort(train.columns["weight"], kind="stable")[:SUSPECTS]
        note = "The least weight in training."
        shelves.append(Picks("Weighed down most", note, tuple(light.tolist()), ("uscore",)))
    unsure = np.argsort(-uncertainty(train, "uscore", fitted), kind="stable")[:SUSPECTS]
    note = "Least certain of all training points."
    shelves.append(Picks("Highest U-Score", note, tuple(unsure.tolist()), ("uscore",)))
    return shelves


def examples(
    rows: Sequence[int], predictions: Predictions, fitted: Fitted, scores: tuple[str, ...]
) -> list[dict[str, Any]]:
    """What is said of examples beside their inputs; the answers go with the first of the scores."""
    few = _taken(predictions, np.asarray(rows, dtype=np.int64))
    assert few.labels is not None
    predicted, probabilities = answers(few, scores[0], fitted)
    values = {name: uncertainty(few, name, fitted) for name in scores}
    return [
        {
            "row": int(row),
            "index": int(few.index[i]),
            "label": int(few.labels[i]),
            "predicted": int(predicted[i]),
            "confidence": float(probabilities[i].max()),
            "given": float(probabilities[i, few.labels[i]]),
            "scores": {name: float(values[name][i]) for name in scores},
        }
        for i, row in enumerate(rows)
    ]


def _taken(predictions: Predictions, rows: NDArray[np.int64]) -> Predictions:
    """Some of the examples, with all that is known of them."""
    held = {field.name: getattr(predictions, field.name) for field in fields(predictions)}
    for name, value in held.items():
        if isinstance(value, np.ndarray):
            held[name] = value[rows]
        elif isinstance(value, Mapping):
            held[name] = {key: column[rows] for key, column in value.items()}
    return Predictions(**held)


def _few(rows: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(rows[:EACH].tolist())


def _ranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks

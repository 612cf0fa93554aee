"""What tables ask of finished cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from revar import calibrators, metrics
from revar.errors import InputError
from revar.scores import answers, correct, uncertainty
from revar.tables.questions import Figure
from revar.tables.sources import set_name
from revar.tables.store import Finished

OfSet = Callable[[Finished, str], float]
"""A finished cell and one of its test sets to a number."""


def over(tests: tuple[str, ...], figure: OfSet, part: str = "cell") -> Figure:
    """The mean of a figure over test sets."""

    def ask(cells: Mapping[str, Finished]) -> float:
        return mean(figure(cells[part], set_name(test)) for test in tests)

    return ask


def auarc(score: str) -> OfSet:
    """Area under the accuracy-rejection curve."""
    return partial(_of_score, score=score, figure="auarc")


def _of_score(cell: Finished, test: str, *, score: str, figure: str) -> float:
    name = cell.entry(str, test, "default_score") if score == "default" else score
    if name not in cell.entry(dict, test, "scores"):
        raise InputError(f'cell "{cell.path.name}" has no score "{name}"')
    return cell.number(test, "scores", name, figure)


def plain(figure: str) -> OfSet:
    """A figure that needs no score: accuracy, ece, nll."""
    return lambda cell, test: cell.number(test, figure)


def accuracy_at(coverage: float, score: str) -> OfSet:
    """Accuracy of the most certain share."""

    def ask(cell: Finished, test: str) -> float:
        values, right = _selection(cell, test, score)
        return metrics.accuracy_at_coverage(values, right, coverage)

    return ask


def error_at(coverage: float, score: str) -> OfSet:
    """One minus it."""
    accuracy = accuracy_at(coverage, score)
    return lambda cell, test: 1 - accuracy(cell, test)


def auc_at(coverage: float, score: str) -> OfSet:
    """Area under the ROC curve of the class, among the most certain share."""

    def ask(cell: Finished, test: str) -> float:
        values, probabilities, labels = _answered(cell, test, score)
        return metrics.auc_at_coverage(values, probabilities, labels, coverage)

    return ask


def selective_ece_at(coverage: float, score: str) -> OfSet:
    """Calibration error of the most certain share."""

    def ask(cell: Finished, test: str) -> float:
        values, probabilities, labels = _answered(cell, test, score)
        found = metrics.selective_ece(values, probabilities, labels, coverages=(coverage,))
        return float(found[0])

    return ask


def _selection(
    cell: Finished, test: str, score: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Uncertainty, and whether the answers that go with it are right."""
    predictions, fitted = cell.predictions(test), cell.fitted
    name = fitted.default_score if score == "default" else score
    return uncertainty(predictions, name, fitted), correct(predictions, name, fitted)


def _answered(
    cell: Finished, test: str, score: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64] | None]:
    """Uncertainty, the probabilities of the answers that go with it, and the labels."""
    predictions, fitted = cell.predictions(test), cell.fitted
    name = fitted.default_score if score == "default" else score
    _, probabilities = answers(predictions, name, fitted)
    return uncertainty(predictions, name, fitted), probabilities, predictions.labels


def kl_to(soft: str) -> OfSet:
    """Divergence of the prediction from what people said."""

    def ask(cell: Finished, test: str) -> float:
        predictions = cell.predictions(test)
        return metrics.label_kl(predictions.probabilities, _crowd(soft, cell)[predictions.index])

    return ask


def _crowd(soft: str, cell: Finished) -> NDArray[np.float64]:
    if soft == "generated":
        from revar.data.generated import generated_soft_labels

        return generated_soft_labels(cell.seed)
    from revar.data.soft import soft_labels

    return soft_labels(soft)


def calibrated_auarc(name: str) -> OfSet:
    """Of softmax response, or of the score the calibrator adds, fitted on the tune split."""

    def ask(cell: Finished, test: str) -> float:
        plain_predictions = cell.predictions(test)
        fitted = calibrators.fit(name, cell.predictions("tune"))
        predictions = fitted.apply(plain_predictions)
        added = [s for s in predictions.scores if s not in plain_predictions.scores]
        score = added[0] if added else "softmax"
        values = uncertainty(predictions, score, cell.fitted)
        return metrics.auarc(values, correct(predictions, score, cell.fitted))

    return ask


def entropy_correlation(kind: str) -> OfSet:
    """Of the U-Score with the entropy of the softmax."""

    def ask(cell: Finished, test: str) -> float:
        return cell.number(test, "scores", "uscore", f"entropy_{kind}")

    return ask


def on_selection_of(test: str, coverage: float, score: str, selector_score: str) -> Figure:
    """Accuracy of the cell ``classifier`` on what the cell ``selector`` keeps."""

    def ask(cells: Mapping[str, Finished]) -> float:
        _, right = _selection(cells["classifier"], test, score)
        values, _ = _selection(cells["selector"], test, selector_score)
        return metrics.accuracy_at_coverage(values, right, coverage)

    return ask


def epoch_ratio(cells: Mapping[str, Finished]) -> float:
    """Fastest epoch of the cell ``cell`` over that of ``plain``."""
    return _fastest(cells["cell"]) / _fastest(cells["plain"])


def _fastest(cell: Finished) -> float:
    seconds = min(cell.log("seconds"))
    if not seconds > 0:
        raise InputError(f"{cell.path}/log.jsonl has an epoch of {seconds:g} seconds")
    return seconds


CONVERGED = 0.95
"""Share of the whole rise of the training accuracy after which a run counts as converged."""


def epochs_ratio(cells: Mapping[str, Finished]) -> float:
    """Epochs that the cell ``cell`` needs to converge over those of ``plain``.

    The paper does not say how it sees convergence. Here: the first epoch whose training accuracy
    (of all points alike, whatever their weights) has made 95 % of its rise from the first epoch
    to the best one.
    """
    return _converged(cells["cell"]) / _converged(cells["plain"])


def _converged(cell: Finished) -> int:
    accuracies = cell.log("accuracy")
    if not np.isfinite(accuracies).all():
        raise InputError(f"{cell.path}/log.jsonl has accuracies that are no numbers")
    goal = accuracies[0] + CONVERGED * (max(accuracies) - accuracies[0])
    return next(epoch for epoch, value in enumerate(accuracies, 1) if value >= goal)

"""Several opinions on the same inputs: deep ensembles, and the arithmetic of mixing.

A deep ensemble (Lakshminarayanan, Pritzel and Blundell 2017) is a handful of runs that differ in
their seed; their mean probability predicts and says how certain it is. Here each member is the
predictions of one run, so that nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax

from revar.errors import InputError
from revar.predictions import Floats, Predictions
from revar.scores.learned import Fitted
from revar.scores.softmax import log_odds

FITTED = Fitted(default_score="ensemble_softmax", own="ensemble_softmax")
"""What goes with a combination: nothing is fitted, so nothing is fused."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """The mean of several predictions of the same inputs.

    Attributes:
        log_mean: [n, C] logarithms of the mean probabilities.
        expected_entropy: [n] mean of the members' entropies.
    """

    log_mean: NDArray[np.float64]
    expected_entropy: NDArray[np.float64]

    def scores(self, prefix: str) -> dict[str, NDArray[np.float64]]:
        """Uncertainties of the mixture, [n] each, higher is rejected first.

        ``softmax`` is the negative log-odds of the top class, ``entropy`` that of the mean,
        ``mutual_information`` the part of it that is disagreement: ``H(mean) - mean H``.
        """
        entropy = _entropy(self.log_mean)
        return {
            f"{prefix}_softmax": -log_odds(self.log_mean),
            f"{prefix}_entropy": entropy,
            # Rounding may take the difference of two equal entropies a hair below zero.
            f"{prefix}_mutual_information": np.maximum(entropy - self.expected_entropy, 0.0),
        }


def mix(members: Iterable[Floats]) -> Mixture:
    """``log (1/K) sum_k p_k`` and ``(1/K) sum_k H(p_k)``, one member at a time.

    Args:
        members: K arrays of logits, [n, C] each; at least one.
    """
    count = 0
    total: NDArray[np.float64] | None = None
    entropies: NDArray[np.float64] | None = None
    for logits in members:
        log_p: NDArray[np.float64] = log_softmax(logits.astype(np.float64), axis=1)
        entropy = _entropy(log_p)
        total = log_p if total is None else np.logaddexp(total, log_p)
        entropies = entropy if entropies is None else entropies + entropy
        count += 1
    if total is None or entropies is None:
        raise InputError("there is nothing to mix: give at least one member")
    return Mixture(total - np.log(count), entropies / count)


def combine(members: Sequence[Predictions]) -> Predictions:
    """The predictions of a deep ensemble.

    Its logits are the logarithms of the mean probabilities. Scores, higher is rejected first:
    ``ensemble_softmax``, ``ensemble_entropy``, ``ensemble_mutual_information`` (see `Mixture`) and
    ``ensemble_disagreement``: members that predict another class than the ensemble, ties broken
    by the mean probability of its class, ``(disagreeing + 1 - p) / K``.

    Args:
        members: of the same examples, by their index, with the same labels; in any order.

    Raises:
        InputError: none, or members that belong to other examples, labels or classes.
    """
    if not members:
        raise InputError("an ensemble of no runs predicts nothing: give at least one")
    first = members[0]
    for number, other in enumerate(members[1:], start=2):
        difference = _difference(first, other)
        if difference:
            raise InputError(f"members 1 and {number} of the ensemble have {difference}")
    mixture = mix(member.logits for member in members)
    predicted = mixture.log_mean.argmax(axis=1)
    against = np.sum([member.predicted != predicted for member in members], axis=0)
    scores = mixture.scores("ensemble")
    doubt = expit(scores["ensemble_softmax"])
    scores["ensemble_disagreement"] = (against + doubt) / len(members)
    same_split = all(member.split == first.split for member in members)
    return Predictions(
        index=first.index,
        logits=mixture.log_mean,
        labels=first.labels,
        scores=scores,
        split=first.split if same_split else "",
    )


def _entropy(log_p: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = -(np.exp(log_p) * log_p).sum(axis=1)
    return result


def _difference(first: Predictions, other: Predictions) -> str:
    mine, theirs = first.labels, other.labels
    if not np.array_equal(first.index, other.index):
        return "predictions of different examples"
    if first.logits.shape[1] != other.logits.shape[1]:
        return "different numbers of classes"
    if mine is None or theirs is None:
        return "" if mine is theirs else "labels in one case and none in the other"
    return "" if np.array_equal(mine, theirs) else "different labels"

"""Conformal prediction as a source of scores: LAC, APS and RAPS.

All are split conformal: the scores s(x_i, y_i) of held-out examples say how strange a label may
look. Those examples are the tune split, as for every calibrator here; conformal papers call them
the calibration set, but in a run that split sets the threshold and nothing else.

Nothing is drawn at random: APS and RAPS count the class itself in full (U = 1). So coverage is at
least 1 - alpha, and the same row always gets the same set.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from revar import fields
from revar.calibrators.base import Calibrator, Table, Values, finite_logits, tuning_data
from revar.predictions import Predictions


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformal(Calibrator):
    """Adds three scores and leaves the logits alone.

    - ``<name>_size``: classes in the set at alpha, plus ``1 - max p`` between equal sizes;
    - ``<name>_confidence``: the second-largest p-value of a class, the smallest alpha at which
      the set is a single class; one minus it is the confidence of Saunders et al. 1999;
    - ``<name>_credibility``: one minus the largest p-value of a class.

    The p-value of class y is ``(1 + #{i : s_i >= s(x, y)}) / (n + 1)``.

    Attributes:
        strangeness: [n] s(x_i, y_i) of the tune split, sorted.
        alpha: share of examples whose label the set may miss.
    """

    strangeness: tuple[float, ...]
    alpha: float = 0.1

    def __post_init__(self) -> None:
        fields.check(self)
        fields.require(0 < self.alpha < 1, self, "alpha", "be in (0, 1)")

    @abstractmethod
    def nonconformity(self, predictions: Predictions) -> Table:
        """[n, C] s(x, y) of every class: higher is stranger."""

    @property
    def threshold(self) -> float:
        """The ceil((n + 1)(1 - alpha))-th smallest s; infinite where n is too small for alpha."""
        n = len(self.strangeness)
        # Rounding in the product must not ask for one example more.
        rank = ceil((n + 1) * (1 - self.alpha) - 1e-9)
        return self.strangeness[rank - 1] if rank <= n else inf

    def sets(self, predictions: Predictions) -> NDArray[np.bool_]:
        """[n, C] which classes are in the set: ``s(x, y) <= threshold``, and the top class.

        The top class is in also where it does not conform, so that no set is empty; the chance
        that the label is in is at least 1 - alpha all the same.
        """
        members = self._conforming(self.nonconformity(predictions))
        members[np.arange(len(members)), predictions.predicted] = True
        return members

    def p_values(self, predictions: Predictions) -> Table:
        """[n, C] p-value of each class."""
        return self._p_values(self.nonconformity(predictions))

    def apply(self, predictions: Predictions) -> Predictions:
        """Add the three scores."""
        strange = self.nonconformity(predictions)
        second, largest = np.partition(self._p_values(strange), -2, axis=1)[:, -2:].T
        doubt = 1.0 - predictions.probabilities.max(axis=1)
        added = {
            f"{self.name}_size": self._sizes(strange) + doubt,
            f"{self.name}_confidence": second,
            f"{self.name}_credibility": 1.0 - largest,
        }
        return replace(predictions, scores={**predictions.scores, **added})

    def _conforming(self, strange: Table) -> NDArray[np.bool_]:
        members: NDArray[np.bool_] = strange <= self.threshold
        return members

    def _p_values(self, strange: Table) -> Table:
        ordered = np.array(self.strangeness)
        below = np.searchsorted(ordered, strange, side="left")
        values: Table = (1 + len(ordered) - below) / (len(ordered) + 1)
        return values

    def _sizes(self, strange: Table) -> Values:
        """[n] classes in each set, the top class with them."""
        count: Values = self._conforming(strange).sum(axis=1, dtype=np.float64)
        return np.maximum(count, 1.0)

    def _fitted(self, predictions: Predictions) -> Self:
        """The same, with the strangeness of these examples."""
        _, labels = tuning_data(predictions)
        own = self.nonconformity(predictions)[np.arange(len(labels)), labels]
        return replace(self, strangeness=tuple(np.sort(own).tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class LAC(Conformal):
    """``s(x, y) = 1 - p_y`` (Sadinle, Lei and Wasserman 2019).

    Credibility is a step function of max p, so it ranks as softmax response does, up to ties.
    Where not even the top class conforms, max p is smaller than wherever it does; the size of
    such a set counts as C, not as one.
    """

    name: ClassVar[str] = "lac"

    @classmethod
    def fit(cls, predictions: Predictions, *, alpha: float = 0.1) -> Self:
        """Keep the strangeness of the tune split; see `Calibrator.fit`."""
        return cls(strangeness=(), alpha=alpha)._fitted(predictions)

    def nonconformity(self, predictions: Predictions) -> Table:
        """[n, C] one minus the probability."""
        finite_logits(predictions)
        distance: Table = -np.expm1(predictions.log_probabilities)
        return distance

    def _sizes(self, strange: Table) -> Values:
        """[n] classes in each set, all of them where none conforms."""
        count: Values = self._conforming(strange).sum(axis=1, dtype=np.float64)
        return np.where(count > 0, count, float(strange.shape[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class APS(Conformal):
    """``s(x, y)`` = mass of the classes ranked above y, and p_y itself (Romano et al. 2020).

    With U = 1 the top class has ``s = max p``, so a surer row conforms less: ``aps_credibility``
    ranks against softmax response and is here because the definition says so. With two classes
    the second always has s = 1, so ``aps_confidence`` is constant. Prefer the size.
    """

    name: ClassVar[str] = "aps"

    @classmethod
    def fit(cls, predictions: Predictions, *, alpha: float = 0.1) -> Self:
        """Keep the strangeness of the tune split; see `Calibrator.fit`."""
        return cls(strangeness=(), alpha=alpha)._fitted(predictions)

    def nonconformity(self, predictions: Predictions) -> Table:
        """[n, C] cumulative mass down to the class."""
        return _cumulative(predictions)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RAPS(Conformal):
    """APS plus ``penalty * max(0, rank of y - k_reg)``, ranks from 1 (Angelopoulos et al. 2021).

    What is said of the credibility and confidence of `APS` holds here too. With C <= k_reg
    nothing is penalised.

    Attributes:
        k_reg: ranks that cost nothing.
        penalty: lambda, of each rank beyond.
    """

    name: ClassVar[str] = "raps"
    k_reg: int = 5
    penalty: float = 0.01

    def __post_init__(self) -> None:
        Conformal.__post_init__(self)
        fields.require(self.k_reg >= 0, self, "k_reg", "not be negative")
        fields.require(0 <= self.penalty < inf, self, "penalty", "be finite and not negative")

    @classmethod
    def fit(
        cls,
        predictions: Predictions,
        *,
        alpha: float = 0.1,
        k_reg: int = 5,
        penalty: float = 0.01,
    ) -> Self:
        """Keep the strangeness of the tune split; see `Calibrator.fit`."""
        return cls(strangeness=(), alpha=alpha, k_reg=k_reg, penalty=penalty)._fitted(predictions)

    def nonconformity(self, predictions: Predictions) -> Table:
        """[n, C] cumulative mass down to the class, and the penalty of its rank."""
        mass, rank = _cumulative(predictions)
        strangeness: Table = mass + self.penalty * np.maximum(0, rank - self.k_reg)
        return strangeness


def _cumulative(predictions: Predictions) -> tuple[Table, NDArray[np.int64]]:
    """[n, C] mass of the classes down to each one, itself included, and its rank from 1.

    Of equal classes the first ranks higher, as in the predicted class.
    """
    order = np.argsort(-finite_logits(predictions), axis=1, kind="stable")
    p = np.take_along_axis(predictions.probabilities, order, axis=1)
    # One minus what is left, so that the last class has exactly 1 and not a rounded sum.
    left = np.zeros_like(p)
    left[:, :-1] = np.cumsum(p[:, :0:-1], axis=1)[:, ::-1]
    mass, rank = np.empty_like(p), np.empty(p.shape, dtype=np.int64)
    np.put_along_axis(mass, order, 1.0 - left, axis=1)
    np.put_along_axis(rank, order, np.arange(1, p.shape[1] + 1)[None, :], axis=1)
    return mass, rank

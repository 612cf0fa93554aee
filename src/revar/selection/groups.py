"""One threshold a group, all of which hold together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError
from revar.metrics.arrays import as_array
from revar.selection.arguments import open_share, same_length, vector
from revar.selection.result import Threshold
from revar.selection.risk import Procedure, threshold_for_risk

Label = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupThresholds:
    """A threshold for each group.

    Attributes:
        groups: their labels.
        thresholds: in the same order, each at its share of the confidence.
        confidence: that all of them hold.
    """

    groups: tuple[Label, ...]
    thresholds: tuple[Threshold, ...]
    confidence: float

    def __getitem__(self, group: Label) -> Threshold:
        if group not in self.groups:
            raise KeyError(group)
        return self.thresholds[self.groups.index(group)]

    def __iter__(self) -> Iterator[Label]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def accept(self, uncertainty: Any, groups: Any) -> NDArray[np.bool_]:
        """[n] whether each is accepted by the threshold of its group; never in an unknown one.

        Raises:
            InputError: not two vectors of one length, or NaN.
        """
        values = vector(uncertainty, "uncertainty")
        labels = _labels(groups)
        same_length(values, labels, "groups")
        accepted = np.zeros(len(values), dtype=bool)
        for group, threshold in zip(self.groups, self.thresholds, strict=True):
            rows = labels == group
            if rows.any():
                accepted[rows] = threshold.accept(values[rows])
        return accepted

    def describe(self) -> str:
        """One line a group, for people."""
        pairs = zip(self.groups, self.thresholds, strict=True)
        return "\n".join(f"{group}: {threshold.describe()}" for group, threshold in pairs)


def thresholds_by_group(
    uncertainty: Any,
    correct: Any,
    groups: Any,
    *,
    max_risk: float,
    confidence: float = 0.95,
    procedure: Procedure = "fixed_sequence",
    loss: Any = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    score: str = "",
) -> GroupThresholds:
    """`threshold_for_risk` in each group, with one confidence for all groups together.

    Each of the G groups has the confidence ``1 - (1 - confidence) / G`` (Bonferroni). A group must
    be known when the decision is made: a site, an age band or the predicted class, never the true
    one.

    Args:
        uncertainty: [n] of calibration examples, higher is rejected first.
        correct: [n] booleans, or ``None`` with a `loss`.
        groups: [n] labels, whole numbers or text.
        max_risk: the limit in every group.
        confidence: that it holds in all of them.
        procedure: see `threshold_for_risk`.
        loss: [n] instead of `correct`.
        bounds: of the loss.
        score: the name of the score, kept with the results.

    Raises:
        InputError: as for `threshold_for_risk`; or groups that are no labels.
    """
    values = vector(uncertainty, "uncertainty")
    labels = _labels(groups)
    same_length(values, labels, "groups")
    given = [None if part is None else as_array(part) for part in (correct, loss)]
    for part, name in zip(given, ("correct", "loss"), strict=True):
        if part is not None:
            same_length(values, np.atleast_1d(part), name)
    names = _distinct(labels)
    each = 1.0 - (1.0 - open_share(confidence, "confidence")) / len(names)
    found = []
    for group in names:
        rows = labels == group
        mine = [None if part is None else part[rows] for part in given]
        found.append(
            threshold_for_risk(
                values[rows],
                mine[0],
                max_risk=max_risk,
                confidence=each,
                procedure=procedure,
                loss=mine[1],
                bounds=bounds,
                score=score,
            )
        )
    return GroupThresholds(groups=names, thresholds=tuple(found), confidence=float(confidence))


def _distinct(labels: NDArray[Any]) -> tuple[Label, ...]:
    return tuple(np.unique(labels).tolist())


def _labels(groups: Any) -> NDArray[Any]:
    labels = as_array(groups)
    if labels.dtype == object and all(isinstance(label, str) for label in labels.ravel()):
        labels = labels.astype(str)
    if labels.ndim != 1 or labels.dtype.kind not in "biuU":
        msg = f"groups has shape {labels.shape} and holds {labels.dtype}"
        raise InputError(f"{msg}: a vector [n] of whole numbers or text is needed")
    return labels.astype(np.int64) if labels.dtype.kind == "b" else labels

"""Five splits that are never mixed: train, meta, tune, calibration, test.

Train and meta teach f and g; tune fits what is fitted after training (fusion, orientation);
calibration sets thresholds and nothing else; test is for reporting.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from revar import fields
from revar.data.shares import of_each, wanted
from revar.data.stored import Stored, scan
from revar.errors import DataWarning, InputError
from revar.randomness import derive

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """Shares of the training data taken off for the meta and the tune split.

    Tables of the paper have both for every method, also for those that need no meta set.
    """

    meta: float = 0.1
    tune: float = 0.1

    def __post_init__(self) -> None:
        fields.check(self)
        for name in ("meta", "tune"):
            fields.require(0 <= getattr(self, name) < 0.5, self, name, "be in [0, 0.5)")

    @classmethod
    def chosen(
        cls, meta: float | None, tune: float | None, *, uses_meta: bool, uses_tune: bool
    ) -> Self:
        """What a user asks for: without a word on it, each only where it is used.

        >>> SplitPlan.chosen(None, None, uses_meta=False, uses_tune=True)
        SplitPlan(meta=0.0, tune=0.1)

        Args:
            meta: share, or ``None``.
            tune: share, or ``None``.
            uses_meta: whether the method learns from a meta set.
            uses_tune: whether its default score is fitted on held-out labels.
        """
        plan = cls()
        if meta is None:
            meta = plan.meta if uses_meta else 0.0
        if tune is None:
            tune = plan.tune if uses_tune else 0.0
        return cls(meta=meta, tune=tune)


def take_off(
    y: NDArray[np.int64],
    groups: NDArray[np.generic] | None,
    shares: dict[str, float],
    seed: int,
) -> dict[str, Rows]:
    """Rows of each named share and of ``train``, the rest; stratified, whole groups together.

    Every class keeps at least one example in ``train``.

    Args:
        y: [n] class numbers.
        groups: [n] what must stay together, or none.
        shares: name to share of the rows.
        seed: of the draw.

    Raises:
        InputError: a share that would be empty.
    """
    left = np.arange(len(y), dtype=np.int64)
    taken: dict[str, Rows] = {}
    for name, share in shares.items():
        if share == 0:
            taken[name] = np.empty(0, dtype=np.int64)
            continue
        # The share is of all rows, whatever was taken before; tiny data gives a little more.
        number = wanted(len(y), share)
        if number < 2 and name == "tune":
            # One row decides nothing: better to train on it.
            taken[name] = np.empty(0, dtype=np.int64)
            continue
        of_rest = max(number, 2) / len(left)
        own_seed = derive(seed, "split", name)
        if groups is None:
            chosen = _stratified(y[left], of_rest, own_seed)
        else:
            chosen = _stratified_groups(y[left], groups[left], of_rest, own_seed)
        if not chosen.any():
            msg = (
                f"{len(y)} examples are too few to take {share:.0%} off for {name}: give more, or "
                f"set {name}_fraction=0"
            )
            raise InputError(msg)
        taken[name] = left[chosen]
        left = left[~chosen]
    return {"train": left, **taken}


def _stratified(y: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows to take: of each class its share, rounded so that the total fits best."""
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(y, return_counts=True)
    take = of_each(counts, share)
    chosen = np.zeros(len(y), dtype=bool)
    for label, number in zip(classes, take, strict=True):
        rows = generator.permutation(np.flatnonzero(y == label))
        chosen[rows[:number]] = True
    return chosen


def _stratified_groups(
    y: NDArray[np.int64], groups: NDArray[np.generic], share: float, seed: int
) -> NDArray[np.bool_]:
    """The same with whole groups: the fold of a stratified group split nearest in size."""
    from sklearn.model_selection import StratifiedGroupKFold

    folds = max(2, round(1 / share))
    n_groups = len(np.unique(groups))
    if n_groups < folds:
        msg = f"{n_groups} groups are too few to take {share:.0%} of them off whole: give more"
        raise InputError(msg)
    largest = int(np.bincount(y).max())
    if largest < folds:
        msg = (
            f"{largest} examples of the largest class are too few to take {share:.0%} off in "
            "whole groups: give more"
        )
        raise InputError(msg)
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed % 2**32)
    with warnings.catch_warnings():
        # A class rarer than the folds are many is no problem: it need not be in every one.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        found = [rows for _, rows in splitter.split(np.zeros(len(y)), y, groups) if len(rows)]
    classes = set(np.unique(y))
    fitting = [rows for rows in found if classes == set(np.unique(np.delete(y, rows)))]
    if not fitting:
        msg = (
            "every way to take groups off leaves a class without training examples: give more "
            "groups"
        )
        raise InputError(msg)
    chosen = np.zeros(len(y), dtype=bool)
    chosen[min(fitting, key=lambda rows: abs(len(rows) - share * len(y)))] = True
    return chosen


_CHANCE = 0.02
"""Share of rows that may be equal to used ones by chance, without a word about it."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which examples a split holds, without holding them.

    Attributes:
        digest: of all rows, whatever their order.
        rows: [n] a 64-bit hash of each, sorted.
    """

    digest: str
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, x: Stored) -> Fingerprint:
        """Of [n, ...] stored inputs; labels do not count."""
        return cls.of_rows(scan(x).hashes)

    @classmethod
    def of_rows(cls, rows: NDArray[np.int64]) -> Fingerprint:
        """From the hashes themselves."""
        ordered = np.sort(rows)
        return cls(hashlib.blake2b(ordered.tobytes(), digest_size=16).hexdigest(), ordered)

    def shared_with(self, other: Fingerprint) -> int:
        """How many of these rows ``other`` holds too.

        Rows that occur more than once in ``other`` prove nothing and are not counted: tables of
        a few categories repeat rows by chance.
        """
        values, counts = np.unique(other.rows, return_counts=True)
        return int(np.isin(self.rows, values[counts == 1]).sum())

    def share_within(self, other: Fingerprint) -> float:
        """The share of these rows that ``other`` holds too, see `shared_with`."""
        return self.shared_with(other) / len(self.rows) if len(self.rows) else 0.0


def refuse_reuse(new: Fingerprint, purpose: str, used: dict[str, Fingerprint]) -> None:
    """Refuse data that serves another purpose already.

    Args:
        new: the data.
        purpose: what it is to serve as; ``test:a`` and ``test:b`` are one purpose.
        used: what serves already, by purpose.

    Raises:
        InputError: there are no rows, or more than half of them serve another one, or several
            together.
    """
    kind = purpose.partition(":")[0]
    if not len(new.rows):
        raise InputError(f"there are no rows that could serve as {kind}: give some examples")
    others = {name: old for name, old in used.items() if name.partition(":")[0] != kind}
    shares = {
        name: 1.0 if new.digest == old.digest else new.share_within(old)
        for name, old in others.items()
    }
    share = min(sum(shares.values()), 1.0)
    held = sorted((name for name, part in shares.items() if part), key=lambda name: -shares[name])
    *most, last = dict.fromkeys(name.partition(":")[0] for name in held) or [""]
    where = f"{', '.join(most)} and {last} splits" if most else f"{last} split"
    if share > 0.5:
        msg = (
            f"{share:.0%} of these rows are in the {where} and cannot serve as {kind} "
            "too: use examples that this model has not used"
        )
        raise InputError(msg)
    if share > _CHANCE and kind == "calibration":
        msg = (
            f"{share:.0%} of these rows are in the {where}: a threshold promises nothing "
            "of examples that the model has used, leave them out"
        )
        warnings.warn(msg, DataWarning, stacklevel=2)

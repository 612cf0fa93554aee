"""Label noise: flips that depend on nothing, on the class, or on the input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError

InputScale = Literal["raw255", "unit", "standardised"]
Labels = NDArray[np.int64]

CIFAR10_PAIRS = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
"""Truck to automobile, bird to airplane, deer to horse, cat and dog (Patrini et al. 2017)."""
_DEVIATION = 0.1
"""Of the flip rates of the instance-dependent noise."""
_BLOCK = 1024
"""Inputs turned into float64 at a time."""


@dataclass(frozen=True, slots=True)
class NoisyLabels:
    """What noise made of labels.

    Attributes:
        labels: [n] class numbers.
        flipped: [n] where they are not the given ones.
    """

    labels: Labels
    flipped: NDArray[np.bool_]

    @classmethod
    def of(cls, labels: Labels, clean: Labels) -> NoisyLabels:
        """Compared with the clean ones."""
        return cls(labels, labels != clean)


def symmetric(y: Labels, rate: float, n_classes: int, seed: int) -> NoisyLabels:
    """Flip each label with probability ``rate``, to each of the other classes alike.

    Args:
        y: [n] class numbers.
        rate: in [0, 1].
        n_classes: C.
        seed: of the draws.
    """
    _check(y, rate, n_classes)
    generator = np.random.default_rng(seed)
    flip = generator.random(len(y)) < rate
    steps = generator.integers(1, n_classes, len(y))
    return NoisyLabels.of(np.where(flip, (y + steps) % n_classes, y), y)


def asymmetric(
    y: Labels, rate: float, n_classes: int, seed: int, mapping: Mapping[int, int] | None = None
) -> NoisyLabels:
    """Flip each label with probability ``rate``, to the class that its own is mistaken for.

    Args:
        y: [n] class numbers.
        rate: in [0, 1].
        n_classes: C.
        seed: of the draws.
        mapping: class to class; a class that is not in it keeps its labels. ``None`` takes the
            next class, and the first for the last. `CIFAR10_PAIRS` is that of the literature.
    """
    _check(y, rate, n_classes)
    towards = np.arange(n_classes)
    if mapping is None:
        towards = (towards + 1) % n_classes
    else:
        for source, target in mapping.items():
            if not (0 <= source < n_classes and 0 <= target < n_classes):
                msg = f"mapping has {source} to {target}: classes are 0 to {n_classes - 1}"
                raise InputError(msg)
            towards[source] = target
    flip = np.random.default_rng(seed).random(len(y)) < rate
    return NoisyLabels.of(np.where(flip, towards[y], y), y)


def instance_dependent(
    x: Any,
    y: Labels,
    rate: float,
    n_classes: int,
    seed: int,
    *,
    input_scale: InputScale = "raw255",
    per_class: bool = True,
) -> NoisyLabels:
    """Flip labels where the input says so (Xia et al. 2020, algorithm 2).

    Example i is flipped with probability ``q_i``, a normal of mean ``rate`` and deviation 0.1
    truncated to [0, 1]; to which class is drawn from the softmax of ``x_i' W[y_i]`` over the other
    classes, W standard normal. The truncation moves the mean: at ``rate`` 0.2 it is 0.2055.

    Memory is that of one W [d, C] and of 1,024 inputs, however many there are of both.

    Args:
        x: [n, ...] inputs; only ``len(x)`` and ``x[rows]`` are used, so files may stay on disk.
        y: [n] class numbers.
        rate: in [0, 1].
        n_classes: C.
        seed: of the draws.
        input_scale: what the noise sees of x. ``raw255`` is that of the original: at the scale
            of bytes the softmax is all but one-hot, and the input decides where a label flips
            to. ``unit`` divides by 255, ``standardised`` has mean 0 and deviation 1 (all pixels
            of images together, a table column by column); both leave more to chance. Values
            other than bytes are brought to the range 0..255, or 0..1, in the same way.
        per_class: a W for each class, as in the original; ``False`` shares one among them, as in
            a common re-implementation. That is another law of noise.
    """
    from scipy.stats import truncnorm

    _check(y, rate, n_classes)
    if len(x) != len(y):
        raise InputError(f"x has {len(x)} rows, y has {len(y)}")
    scale = _Scale.of(x, input_scale)
    generator = np.random.default_rng(seed)
    low, high = (0 - rate) / _DEVIATION, (1 - rate) / _DEVIATION
    flip_rate = truncnorm.rvs(
        low, high, loc=rate, scale=_DEVIATION, size=len(y), random_state=generator
    )
    noisy = y.copy()
    shape = (int(np.prod(x.shape[1:])), n_classes)
    towards = np.empty(0) if per_class else generator.standard_normal(shape)
    for label in range(n_classes):
        if per_class:
            towards = generator.standard_normal(shape)
        rows = np.flatnonzero(y == label)
        flipped = rows[generator.random(len(rows)) < flip_rate[rows]]
        draws = generator.random(len(flipped))
        for block in _blocks(len(flipped)):
            logits = scale.read(x, flipped[block]) @ towards
            # Never to itself.
            logits[:, label] = -np.inf
            noisy[flipped[block]] = _drawn(logits, draws[block])
    return NoisyLabels.of(noisy, y)


def _drawn(logits: NDArray[np.float64], draws: NDArray[np.float64]) -> Labels:
    """[k] a class of each row of [k, C] by its softmax, from a uniform number each."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    below = (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)
    below /= below[:, -1:]
    classes: Labels = (below <= draws[:, None]).sum(axis=1)
    return classes


@dataclass(frozen=True, slots=True)
class _Scale:
    """``(x - shift) / unit``: by column of a table [d], the same for all pixels of images."""

    shift: NDArray[np.float64] | float
    unit: NDArray[np.float64] | float

    @classmethod
    def of(cls, x: Any, wanted: InputScale) -> _Scale:
        if wanted not in ("raw255", "unit", "standardised"):
            msg = f'input_scale is "{wanted}", it must be one of raw255, unit, standardised'
            raise InputError(msg)
        if len(x) == 0:
            return cls(0.0, 1.0)
        # Of the values of a table by column, of those of images all together.
        axis = 0 if len(x.shape) == 2 else None
        if wanted == "standardised":
            mean = sum(block.sum(axis) for block in _read(x)) / _count(x, axis)
            squares = sum(np.square(block - mean).sum(axis) for block in _read(x))
            return cls(mean, _positive(np.sqrt(squares / _count(x, axis))))
        if np.asarray(x[:1]).dtype == np.uint8:
            return cls(0.0, 1.0 if wanted == "raw255" else 255.0)
        low = np.min([block.min(axis) for block in _read(x)], axis=0)
        high = np.max([block.max(axis) for block in _read(x)], axis=0)
        return cls(low, _positive(high - low) / (255.0 if wanted == "raw255" else 1.0))

    def read(self, x: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """[rows, d] inputs in this scale."""
        scaled: NDArray[np.float64] = (np.asarray(x[rows]) - self.shift) / self.unit
        return scaled.reshape(len(rows), -1)


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK))


def _read(x: Any) -> Iterator[NDArray[np.float64]]:
    return (np.asarray(x[block], dtype=np.float64) for block in _blocks(len(x)))


def _count(x: Any, axis: int | None) -> int:
    return len(x) if axis == 0 else int(np.prod(x.shape))


def _positive(spread: Any) -> NDArray[np.float64]:
    """A constant column is only centred."""
    return np.where(spread > 0, spread, 1.0)


def _check(y: Labels, rate: float, n_classes: int) -> None:
    if not 0.0 <= rate <= 1.0:
        raise InputError(f"the rate of label noise is {rate}, it must be in [0, 1]")
    if n_classes < 2:
        raise InputError(f"{n_classes} classes: a label needs another class to flip to")
    if len(y) and not (y.min() >= 0 and y.max() < n_classes):
        msg = f"labels from {y.min()} to {y.max()}: they must be class numbers below {n_classes}"
        raise InputError(msg)

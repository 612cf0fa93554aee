"""Label noise added to the training part of any source: ``symmetric:0.4``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from revar.data.frames import FrameInputs
from revar.data.inputs import is_frame
from revar.data.label_noise import (
    CIFAR10_PAIRS,
    Labels,
    NoisyLabels,
    asymmetric,
    instance_dependent,
    symmetric,
)
from revar.data.labels import Classes
from revar.data.source import Part, Source
from revar.errors import InputError, unknown
from revar.randomness import derive
from revar.splits import take_off

_KINDS = ("symmetric", "asymmetric", "asymmetric-cifar10", "instance")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNoise:
    """A law of noise and its rate.

    Attributes:
        kind: ``symmetric``, ``asymmetric`` (to the next class), ``asymmetric-cifar10`` (the pairs
            of the literature) or ``instance`` (Xia et al. 2020), see `revar.data.label_noise`.
        rate: share of labels that flip, on average.
        clean_meta: take the meta set off before the noise.
    """

    kind: str
    rate: float
    clean_meta: bool = False

    @classmethod
    def parse(cls, text: str, *, clean_meta: bool = False) -> Self:
        """From ``KIND:RATE``.

        Raises:
            InputError: it is something else.
        """
        kind, colon, rate = text.partition(":")
        if not colon:
            raise InputError(f'label noise "{text}" is not KIND:RATE, such as symmetric:0.4')
        if kind not in _KINDS:
            raise unknown("label noise", kind, _KINDS)
        try:
            number = float(rate)
        except ValueError:
            number = np.nan
        if not 0.0 < number < 1.0:
            raise InputError(f'label noise "{text}": the rate must be in (0, 1)')
        return cls(kind=kind, rate=number, clean_meta=clean_meta)

    def __str__(self) -> str:
        return f"{self.kind}:{self.rate:g}" + (" with a clean meta set" if self.clean_meta else "")

    def added_to(self, source: Source, *, meta_share: float, seed: int) -> Source:
        """The source with noise in its training part; test sets and a meta set stay clean.

        Args:
            source: clean data.
            meta_share: of the training part, for a clean meta set.
            seed: of the run.

        Raises:
            InputError: a clean meta set cannot be had.
        """
        train, meta = source.train, source.meta
        if train.y is None:
            raise InputError("the training data has no labels")
        # Of all, so that a class number means the same with and without a clean meta set.
        classes = Classes.of(train.y)
        if self.kind == "asymmetric-cifar10" and len(classes) != 10:
            msg = f"label noise {self.kind} is for the classes of CIFAR-10, not for {len(classes)}"
            raise InputError(msg)
        if self.clean_meta:
            if meta is not None:
                raise InputError("the data has a meta set of its own, which no noise is added to")
            if meta_share == 0:
                raise InputError("a clean meta set needs meta_fraction above 0")
            rows = take_off(classes.encode(train.y), train.groups, {"meta": meta_share}, seed)
            train, meta = train.take(rows["train"]), train.take(rows["meta"])
        return replace(source, train=self._flipped(train, classes, seed), meta=meta)

    def _flipped(self, part: Part, classes: Classes, seed: int) -> Part:
        numbers = classes.encode(part.y if part.y is not None else [])
        noisy = self._drawn(part.x, numbers, len(classes), derive(seed, "label noise"))
        return replace(part, y=classes.decode(noisy.labels))

    def _drawn(self, x: Any, y: Labels, n_classes: int, seed: int) -> NoisyLabels:
        if self.kind == "instance":
            x = FrameInputs.fit(x).encode(x) if is_frame(x) else x
            return instance_dependent(x, y, self.rate, n_classes, seed)
        if self.kind == "symmetric":
            return symmetric(y, self.rate, n_classes, seed)
        mapping = CIFAR10_PAIRS if self.kind == "asymmetric-cifar10" else None
        return asymmetric(y, self.rate, n_classes, seed, mapping)

"""A small problem with wrong labels, and what a method makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from revar.data.source import Part, Source
from revar.methods.base import Method
from revar.metrics import failure_auroc
from revar.model import Model
from support.problems import fit


@dataclass(frozen=True)
class Outcome:
    """What came of training with wrong labels.

    Attributes:
        accuracy: on clean test labels.
        memorised: accuracy on the training labels, wrong ones included.
        auroc: of the mean weights, in the second half, for right against wrong labels.
        model: trained.
        wrong: [n] which training labels are.
    """

    accuracy: float
    memorised: float
    auroc: float
    model: Model
    wrong: NDArray[np.bool_]


def _draw(
    n: int, generator: np.random.Generator, dimensions: int = 20
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Four clusters, far apart, in enough dimensions to remember every example."""
    y = np.arange(n) % 4
    centres = np.random.default_rng(99).standard_normal((4, dimensions)) * 1.26
    return centres[y] + generator.standard_normal((n, dimensions)), y


def outcome(
    name: str, monkeypatch: pytest.MonkeyPatch, cls: type[Method], **settings: object
) -> Outcome:
    """Train with 40 % symmetric noise and a clean meta set, and watch the weights."""
    generator = np.random.default_rng(0)
    x, clean = _draw(600, generator)
    wrong = generator.random(len(x)) < 0.4
    y = np.where(wrong, (clean + generator.integers(1, 4, len(x))) % 4, clean)
    data = Source(
        Part(x, y), meta=Part(*_draw(200, generator)), tests={"test": Part(*_draw(1000, generator))}
    )
    total, visits = np.zeros(len(x)), np.zeros(len(x))
    original: Any = cls.loss

    def watched(self: Any, networks: Any, task: Any, batch: Any, feeds: Any, clock: Any) -> Any:
        result = original(self, networks, task, batch, feeds, clock)
        if result.weights is not None and clock.step >= clock.total / 2:
            total[batch.index.numpy()] += result.weights.numpy()
            visits[batch.index.numpy()] += 1
        return result

    monkeypatch.setattr(cls, "loss", watched)
    model = fit(name, data, epochs=25, batch_size=64, dropout_rate=0.1, **settings)
    monkeypatch.undo()
    train = model.predictions["train"]
    n = len(train.index)
    weighted = visits.any()
    return Outcome(
        accuracy=float(model.predictions["test"].correct().mean()),
        memorised=float(train.correct().mean()),
        auroc=failure_auroc(-total[:n] / visits[:n], ~wrong[train.index]) if weighted else 0.5,
        model=model,
        wrong=wrong[train.index],
    )

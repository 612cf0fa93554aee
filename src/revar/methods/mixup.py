"""Mixup (Zhang, Cisse, Dauphin and Lopez-Paz 2018): trained on pairs of examples and of labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from revar.sharded import own, whole
from revar.types import Batch, Task


@dataclass(frozen=True, slots=True)
class Mixed:
    """A batch with two labels an example, the first for a share of it.

    Attributes:
        first: inputs, mixed, with the labels of the larger part.
        second: the same inputs with the labels of the smaller part.
        share: [n] of the larger part; ``None`` where nothing is mixed.
    """

    first: Batch
    second: Batch
    share: Tensor | None

    @classmethod
    def plain(cls, batch: Batch) -> Self:
        """Nothing mixed."""
        return cls(batch, batch, None)

    @property
    def x(self) -> Tensor:
        """[n, ...] inputs."""
        return self.first.x

    def counts(self, task: Task) -> Tensor:
        """As how many examples each one counts, by its weights and those of its classes, [n]."""
        one = torch.ones(len(self.first.y), device=self.first.y.device)
        counts = task.weighted(one, self.first)
        if self.share is None:
            return counts
        return counts.lerp(task.weighted(one, self.second), 1 - self.share.to(counts.dtype))

    def unweighted(self) -> Self:
        """The same examples, all counting alike."""
        first, second = (replace(part, weight=None) for part in (self.first, self.second))
        return type(self)(first, second, self.share)

    def losses(self, task: Task, logits: Tensor) -> Tensor:
        """``share l(y) + (1 - share) l(y')``, [n]."""
        losses = task.losses(logits, self.first)
        if self.share is None:
            return losses
        return losses.lerp(task.losses(logits, self.second), 1 - self.share.to(losses.dtype))


def mix(batch: Batch) -> Mixed:
    """Mix every example with another one: shares ``1 - u^2 / 2``, u uniform.

    FSR draws them so. A share is one half at least: an example stays itself, more or less, and
    keeps its place in the memory.
    """
    u = torch.rand(len(batch.y), device=batch.x.device)
    share = 1 - u.square() / 2
    other = torch.randperm(len(batch.y), device=batch.x.device)
    factor = own(share).to(batch.x.dtype).view(-1, *[1] * (batch.x.ndim - 1))
    # The other example may be one that another process has.
    x = factor * batch.x + (1 - factor) * whole(batch.x)[own(other)]
    first = replace(batch, x=x)
    weight = None if batch.weight is None else batch.weight[other]
    return Mixed(first, replace(first, y=batch.y[other], weight=weight), share)

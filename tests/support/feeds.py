"""Batches that are always the same, and networks to try a method on, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from revar.fitting import build_networks
from revar.functional import flat_state
from revar.methods.base import Method, Sizes
from revar.nets.base import Dropout, DropoutPlacement
from revar.recipe import Recipe
from revar.types import Batch, Clock, Networks, Task

TASK = Task(n_classes=3, input_shape=(4,))
CLOCK = Clock(step=50, total=100, steps_per_epoch=10, lr=0.1)


@dataclass
class FixedFeeds:
    """Always the same meta batch, and a record of what was asked for."""

    x: Tensor
    y: Tensor
    x_unlabelled: Tensor
    x_train: Tensor
    y_train: Tensor
    asked: list[str] = field(default_factory=list)

    @property
    def train_size(self) -> int:
        return len(self.x_train)

    @property
    def train_labels(self) -> Tensor:
        return self.y_train

    @property
    def meta_size(self) -> int:
        return len(self.x)

    @property
    def unlabelled_size(self) -> int:
        return len(self.x_unlabelled)

    def train_at(self, index: Tensor) -> Batch:
        self.asked.append(f"train {len(index)}")
        return Batch(self.x_train[index], self.y_train[index], index)

    def meta(self, count: int) -> Batch:
        self.asked.append(f"meta {count}")
        return Batch(self.x[:count], self.y[:count], torch.arange(count))

    def meta_at(self, index: Tensor) -> Batch:
        self.asked.append(f"meta {len(index)}")
        return Batch(self.x[index], self.y[index], index)

    def unlabelled(self, count: int) -> Tensor:
        self.asked.append(f"unlabelled {count}")
        return self.x_unlabelled[:count]

    def unlabelled_at(self, index: Tensor) -> Tensor:
        self.asked.append(f"unlabelled {len(index)}")
        return self.x_unlabelled[index]


def small(
    method: Method, placement: DropoutPlacement = "head", *, rate: float = 0.4, n: int = 12
) -> tuple[Networks, Batch, FixedFeeds]:
    """Networks of a method in float64, a training batch of n, and feeds with 16 meta points."""
    recipe = Recipe(method=method, backbone="mlp", dropout=Dropout(rate=rate, placement=placement))
    networks = build_networks(recipe, TASK, torch.zeros(2, 4), None, torch.device("cpu")).double()
    weights = len(flat_state(networks.classifier))
    sizes = Sizes(train=n, meta=16, unlabelled=16, n_classes=TASK.n_classes, weights=weights)
    memory = method.build_memory(sizes)
    networks.memory = None if memory is None else memory.double()
    torch.manual_seed(3)
    x, y = torch.randn(n, 4).double(), torch.arange(n) % 3
    feeds = FixedFeeds(
        torch.randn(16, 4).double(), torch.arange(16) % 3, torch.randn(16, 4).double(), x, y
    )
    return networks, Batch(x, y, torch.arange(n)), feeds

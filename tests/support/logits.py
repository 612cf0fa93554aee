"""A classifier whose inputs are its logits, to hand a method the logits it shall see."""

from __future__ import annotations

from torch import Tensor, nn

import support.feeds
from revar.methods.base import Method
from revar.nets.base import Classifier
from revar.types import Batch, Networks, StepResult, Task
from support.feeds import CLOCK


class Through(Classifier):
    """Inputs come out as logits."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_features = n_classes
        self.identity = nn.Identity()

    def forward_features(self, x: Tensor) -> Tensor:
        return x

    def forward_head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.identity(features)
        return logits


def step_on(
    method: Method,
    logits: Tensor,
    labels: Tensor,
    *,
    weight: Tensor | None = None,
    class_weights: tuple[float, ...] | None = None,
) -> tuple[StepResult, Networks]:
    """What a method makes of [n, C] logits and [n] labels, and the networks it was given."""
    networks, _, feeds = support.feeds.small(method)
    networks.classifier = Through(logits.shape[1])
    task = Task(n_classes=logits.shape[1], input_shape=(4,), class_weights=class_weights)
    batch = Batch(logits, labels, labels.new_zeros(len(labels)), weight)
    return method.loss(networks, task, batch, feeds, CLOCK), networks

"""Training with the Brier score (Brier 1950): squared error of the class probabilities.

A proper score like cross-entropy, but bounded: one confident mistake costs at most 2.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from revar.functional import at_least_single
from revar.methods.base import Method
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


def brier_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """``sum_c (p_c - 1[c = y])^2`` of each example, [n], from [n, C] logits and class numbers."""
    p = at_least_single(logits).softmax(dim=1)
    target = F.one_hot(labels, p.shape[1]).to(p.dtype)
    return (p - target).square().sum(dim=1)


@dataclass(frozen=True, kw_only=True)
class Brier(Method):
    """Minimise the mean Brier score of the training set."""

    def kind(self, clock: Clock) -> Hashable:
        """All steps are alike."""
        return "every"

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i sum_c (p_ic - y_ic)^2``, each example times its weight."""
        logits = networks.classifier(batch.x)
        losses = task.weighted(brier_losses(logits, batch.y), batch)
        return StepResult(losses.mean(), logits)

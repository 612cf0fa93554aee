"""Focal loss with a sample-dependent gamma, FLSD-53 (Mukhoti et al. 2020).

Cross-entropy rewards ever larger confidence on examples that are right already. The focal loss
fades as the label becomes likely, faster where gamma is larger, and ends up less overconfident.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch

from revar import fields
from revar.functional import at_least_single
from revar.methods.base import Method
from revar.methods.focal_loss import focal_factor, label_log_probability
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


@dataclass(frozen=True, kw_only=True)
class FLSD53(Method):
    """Fields, with the authors' value in brackets; the ReVaR paper gives none.

    Attributes:
        gamma: where the label is likely enough [3].
        gamma_unlikely: where its probability is below the threshold [5].
        threshold: of the probability of the label [0.2].
    """

    gamma: float = 3.0
    gamma_unlikely: float = 5.0
    threshold: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("gamma", "gamma_unlikely"):
            fields.require(getattr(self, name) >= 0, self, name, "not be negative")
        fields.require(0 <= self.threshold <= 1, self, "threshold", "be in [0, 1]")

    def kind(self, clock: Clock) -> Hashable:
        """All steps are alike."""
        return "every"

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i (1 - p_y)^gamma_i l(y_i, f(x_i))``, gamma_i from the current p_y."""
        logits = networks.classifier(batch.x)
        log_p_y = label_log_probability(logits, batch.y)
        unlikely = log_p_y.detach().exp() < self.threshold
        gamma = torch.where(unlikely, self.gamma_unlikely, self.gamma)
        losses = focal_factor(log_p_y, gamma) * task.losses(at_least_single(logits), batch)
        return StepResult(losses.mean(), logits)

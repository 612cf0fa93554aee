"""Margin-based reweighting: examples near or beyond the decision boundary weigh more.

The ReVaR paper compares with "margin-based reweighting" and gives no formula. This is our
reading, after the margin weights of Wang et al. (2021): a fixed function of the probability
margin, with nothing learned and no meta set.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from revar import fields
from revar.errors import InputError
from revar.functional import at_least_single
from revar.methods.base import Method, Plan, phase_start
from revar.methods.reweighting import normalise_weights
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


def probability_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """``p_y - max_{c != y} p_c`` of each example, [n] in [-1, 1]; negative where f is wrong."""
    p = at_least_single(logits).softmax(dim=1)
    label = labels[:, None]
    # No probability is negative, so the label is never its own rival.
    rival = p.scatter(1, label, -1.0).max(dim=1).values
    return p.gather(1, label).squeeze(1) - rival


@dataclass(frozen=True, kw_only=True)
class MBR(Method):
    """Fields; all defaults are ours, the paper gives none.

    Attributes:
        slope: how sharply the weight falls with the margin.
        centre: the margin at which the weight is half of its largest.
        weight_normalisation: of the weights in a batch. The code of Wang et al. has ``none``, with
            ``slope=1`` and ``centre=-1.5``, and three times the learning rate.
        warmup: share of the budget trained unweighted first, as for ReVaR.
        warmup_epochs: the same in epochs, instead.
    """

    slope: float = 5.0
    centre: float = 0.0
    weight_normalisation: Literal["none", "batch_mean_one"] = "batch_mean_one"
    warmup: float = 1 / 12
    warmup_epochs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.require(self.slope >= 0, self, "slope", "not be negative: small margins weigh more")
        fields.require(math.isfinite(self.centre), self, "centre", "be finite")
        fields.require(0 <= self.warmup < 1, self, "warmup", "be in [0, 1)")
        epochs = self.warmup_epochs
        fields.require(epochs is None or epochs >= 0, self, "warmup_epochs", "not be negative")

    def check(self, plan: Plan) -> None:
        """Refuse a run that is all warm-up."""
        start = self._weighted_from(plan.total, plan.steps_per_epoch)
        if start >= plan.total:
            msg = (
                f"no step would be weighted: {plan.total} steps, warm-up until step {start}; "
                "train longer or shorten the warm-up"
            )
            raise InputError(msg)

    def kind(self, clock: Clock) -> Hashable:
        """Whether it still warms up."""
        return clock.step < self._weighted_from(clock.total, clock.steps_per_epoch)

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i w_i l(y_i, f(x_i))``, unweighted during the warm-up."""
        logits = networks.classifier(batch.x)
        losses = task.losses(logits, batch)
        if clock.step < self._weighted_from(clock.total, clock.steps_per_epoch):
            return StepResult(losses.mean(), logits)
        weights = self.weights(logits, batch.y)
        return StepResult((weights * losses).mean(), logits, weights)

    @torch.no_grad()
    def weights(self, logits: Tensor, labels: Tensor) -> Tensor:
        """``sigmoid(-slope (margin - centre))`` of each example, normalised, [n]."""
        margin = probability_margin(logits, labels)
        raw = (-self.slope * (margin - self.centre)).sigmoid()
        return normalise_weights(raw, self.weight_normalisation)

    def _weighted_from(self, total: int, steps_per_epoch: int) -> int:
        return phase_start(self.warmup, self.warmup_epochs, total, steps_per_epoch)

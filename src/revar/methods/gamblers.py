"""Deep Gamblers (Liu et al. 2019): a classifier that may keep its stake instead of betting it.

The network bets a unit on C classes and may reserve a part p_{C+1} of it. A bet on the right
class pays o, a reserved stake pays 1, so the loss is the negative log-return (up to log o).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from revar import fields
from revar.methods.abstention import Abstaining, joint_log_probabilities, with_abstention
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


@dataclass(frozen=True, kw_only=True)
class Gamblers(Abstaining):
    """Fields, with the value of the authors' code in brackets.

    Attributes:
        payoff: o > 1 [2.2]. Where no class has a probability above 1/o it pays to reserve
            everything; a larger o abstains less. ``None`` is 2.2, and 1.8 for two classes: with
            o >= C betting evenly on all classes is never worse than reserving [the ReVaR paper
            gives no value; the authors choose it per dataset and coverage].
        pretrain: share of the budget trained with cross-entropy on the class logits first
            [100 of 300 epochs on CIFAR-10 with o < 6.1, none with larger o].
        pretrain_epochs: the same in epochs, instead.
    """

    payoff: float | None = None
    pretrain: float = 1 / 3

    def __post_init__(self) -> None:
        super().__post_init__()
        o = self.payoff
        fields.require(
            o is None or (o > 1 and math.isfinite(o)), self, "payoff", "be finite and above 1"
        )

    def kind(self, clock: Clock) -> Hashable:
        """Whether it still pretrains."""
        return clock.step < self.abstains_from(clock.total, clock.steps_per_epoch)

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i -log(p_{i,y} + p_{i,C+1} / o)``, or cross-entropy while pretraining."""
        if clock.step < self.abstains_from(clock.total, clock.steps_per_epoch):
            logits = networks.classifier(batch.x)
            return StepResult(task.losses(logits, batch).mean(), logits)
        logits, abstention = with_abstention(networks, batch.x)
        losses = gambler_losses(logits, abstention, batch.y, self.payoff_for(task.n_classes))
        return StepResult(task.weighted(losses, batch).mean(), logits)

    def payoff_for(self, n_classes: int) -> float:
        """The payoff o a task of that many classes is trained with."""
        if self.payoff is not None:
            return self.payoff
        return 2.2 if n_classes > 2 else 1.8


def gambler_losses(logits: Tensor, abstention: Tensor, y: Tensor, payoff: float) -> Tensor:
    """``-log(p_y + p_{C+1} / o)`` of each example, from log-probabilities.

    As o grows this becomes cross-entropy on the label over C+1 outputs, which is cross-entropy
    over the class logits plus ``softplus(abstention log-odds)``: nothing pays for p_{C+1} then.

    Args:
        logits: [n, C] class logits.
        abstention: [n] logit of p_{C+1}.
        y: [n] class numbers.
        payoff: o.

    Returns:
        [n]
    """
    log_p = joint_log_probabilities(logits, abstention)
    bet = log_p.gather(1, y[:, None]).squeeze(1)
    return -torch.logaddexp(bet, log_p[:, -1] - math.log(payoff))

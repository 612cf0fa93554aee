"""Self-adaptive training, selective form (Huang, Zhang and Zhang 2020).

A running mean of what the network itself gives the label of a training example says how far the
label is believed; the rest of the target goes to an output for abstaining.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from revar import fields
from revar.functional import at_least_single
from revar.methods.abstention import Abstaining, joint_log_probabilities, with_abstention
from revar.methods.base import Sizes
from revar.rows import Rows
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


class Beliefs(Rows):
    """t_{i,y}, the belief in the label of every training example.

    Of the running vector t_i in R^C the loss reads the label's entry only, and each entry has a
    running mean of its own, so this is exact and N numbers are kept instead of N C.
    """

    belief: Tensor

    def __init__(self, n_train: int) -> None:
        super().__init__()
        # One-hot targets: what the first visit starts from.
        self.add_rows("belief", n_train, fill=1.0)

    @torch.no_grad()
    def update(self, index: Tensor, p_label: Tensor, momentum: float) -> Tensor:
        """``t <- m t + (1 - m) p``: the new beliefs [n] of these examples, which are kept too.

        Args:
            index: [n] positions in the training split, all different.
            p_label: [n] probability of the label.
            momentum: m.
        """
        belief = self.read("belief", index).lerp(p_label.to(self.belief.dtype), 1 - momentum)
        self.write("belief", index, belief)
        return belief


@dataclass(frozen=True, kw_only=True)
class SAT(Abstaining):
    """Fields, with the value of the authors' code in brackets.

    Attributes:
        target_momentum: m of the running targets [0.9]; 1 never doubts a label [the ReVaR paper
            gives no value; Feng et al. take 0.99 on ImageNet].
        pretrain: share of the budget trained with cross-entropy on the class logits first
            [150 of 300 epochs on CIFAR-10, none on SVHN].
        pretrain_epochs: the same in epochs, instead.
    """

    target_momentum: float = 0.9
    pretrain: float = 1 / 2

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.require(0 <= self.target_momentum <= 1, self, "target_momentum", "be in [0, 1]")

    def build_memory(self, sizes: Sizes) -> nn.Module:
        """A belief for every training example."""
        return Beliefs(sizes.train)

    def kind(self, clock: Clock) -> Hashable:
        """Whether it still pretrains."""
        return clock.step < self.abstains_from(clock.total, clock.steps_per_epoch)

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i -[t_i log p_{i,y} + (1 - t_i) log p_{i,C+1}]``, p over C+1 outputs.

        While pretraining, cross-entropy on the class logits. The beliefs t follow the
        probabilities of this very pass, over the C classes.
        """
        if clock.step < self.abstains_from(clock.total, clock.steps_per_epoch):
            logits = networks.classifier(batch.x)
            return StepResult(task.losses(logits, batch).mean(), logits)
        logits, abstention = with_abstention(networks, batch.x)
        assert isinstance(networks.memory, Beliefs)
        p = at_least_single(logits.detach()).softmax(dim=1)
        p_label = p.gather(1, batch.y[:, None]).squeeze(1)
        belief = networks.memory.update(batch.index, p_label, self.target_momentum)
        losses = adaptive_losses(logits, abstention, batch.y, belief)
        return StepResult(task.weighted(losses, batch).mean(), logits)


def adaptive_losses(logits: Tensor, abstention: Tensor, y: Tensor, belief: Tensor) -> Tensor:
    """``-[t log p_y + (1 - t) log p_{C+1}]`` of each example, [n].

    Args:
        logits: [n, C] class logits.
        abstention: [n] logit of p_{C+1}.
        y: [n] class numbers.
        belief: [n] t, in [0, 1].
    """
    log_p = joint_log_probabilities(logits, abstention)
    log_p_label = log_p.gather(1, y[:, None]).squeeze(1)
    return -(belief * log_p_label + (1 - belief) * log_p[:, -1])

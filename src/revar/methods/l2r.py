"""Learning to reweight examples (Ren, Zeng, Yang and Urtasun 2018).

Every training batch gets weights of its own, from how well each example's gradient agrees with
that of a held-out batch. Nothing is learned outside the classifier and nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from revar import fields
from revar.bilevel import OneStep, alignments
from revar.errors import InputError
from revar.functional import parameters
from revar.methods.base import Plan
from revar.methods.reweighting import Reweighting, losses_of, unweighted
from revar.nets.base import convolution_weights
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


@dataclass(frozen=True, kw_only=True)
class L2R(Reweighting):
    """Fields beside those of `Reweighting`, with the value of the authors' code in brackets.

    Attributes:
        meta_batch: held-out examples in every step; ``None`` takes the training batch's size
            [100, as the training batch]. At most the meta set.
    """

    meta_batch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.meta_batch
        fields.require(size is None or size >= 1, self, "meta_batch", "be at least 1")

    @property
    def learns_numbers(self) -> bool:
        """Its weights come from gradients, whatever the loss."""
        return True

    @property
    def uses_meta(self) -> bool:
        """Its weights come from there."""
        return True

    def check(self, plan: Plan) -> None:
        """Refuse a run without held-out examples."""
        if plan.meta_size < 1:
            raise InputError(
                "the meta set is empty, L2R takes its weights from it; set meta_fraction"
            )

    def kind(self, clock: Clock) -> Hashable:
        """All steps are alike."""
        return "every"

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``sum_i w_i a_i l_i``, a sum, because the ``w_i a_i`` have a total of one already.

        The weights are the derivatives at weights of zero, where the look-ahead has not moved:
        ``w_i ~ max(0, <grad l_i(theta), grad meta(theta)>)``, whatever its step size. Class
        and sample weights a_i have no part in it, else they would count twice: an example of
        weight 2 is two examples.
        """
        meta = feeds.meta(min(self.meta_batch or len(batch.y), feeds.meta_size))
        problem = OneStep(
            losses=losses_of(networks, *unweighted(task, batch), training=True),
            weights=None,
            lr=1.0,
            meta_loss=self.meta_objective.labelled(networks, task, meta, None),
            halved=convolution_weights(networks.classifier),
        )
        aligned = alignments(problem, parameters(networks.classifier), self.engine)
        counts = task.weighted(torch.ones_like(aligned.values), batch)
        weights = rectified(aligned.values, counts)
        logits = networks.classifier(batch.x)
        return StepResult((weights * task.losses(logits, batch)).sum(), logits, weights)


def rectified(alignment: Tensor, counts: Tensor) -> Tensor:
    """``max(0, s_i)`` divided by its sum, [n]; all zero where no example agrees.

    Args:
        alignment: [n] s_i.
        counts: [n] as how many examples each one counts, in the sum.

    >>> rectified(torch.tensor([3.0, -1.0, 1.0]), torch.ones(3)).tolist()
    [0.75, 0.0, 0.25]
    """
    positive = alignment.clamp_min(0)
    total = (counts * positive).sum()
    return positive / torch.where(total > 0, total, torch.ones_like(total))

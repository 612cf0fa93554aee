"""Meta-Weight-Net (Shu, Xie, Yi, Zhao, Zhou, Xu and Meng 2019).

A small network V turns the loss of a training example into its weight. It is updated in every
step, through a one-step look-ahead of the classifier, so that the loss on a held-out set falls.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from revar import fields
from revar.bilevel import OneStep, Taken, alignments, full_precision
from revar.errors import InputError
from revar.functional import at_least_single, average, parameters
from revar.methods.base import Bilevel, MakeClassifier, OuterOptimiser, Plan
from revar.methods.reweighting import (
    Reweighting,
    linear_surrogate,
    losses_of,
    normalise_weights,
    unweighted,
)
from revar.nets.base import Classifier, convolution_weights
from revar.randomness import preserved
from revar.types import Batch, Clock, Feeds, Networks, OuterResult, StepResult, Task


class WeightNet(nn.Module):
    """V: the loss of an example to the logit of its weight, by one hidden layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, losses: Tensor) -> Tensor:
        """[n] to [n]."""
        logits: Tensor = self.net(losses.unsqueeze(-1)).squeeze(-1)
        return logits


@dataclass(frozen=True, kw_only=True)
class MetaWeightNet(Reweighting, Bilevel):
    """Fields beside those of `Reweighting`, with the value of the authors' code in brackets.

    The authors have published two programs: a "stable" one, whose settings these are, and the
    original one.

    Attributes:
        width: of V's hidden layer [100].
        weight_normalisation: ``none``, ``(1/n) sum_i V(l_i) l_i`` [paper and stable code];
            ``sum_one``, ``sum_i V(l_i) l_i / sum_i V(l_i)`` [original code]. Without it the mean
            of V, about a half at first, scales the learning rate.
        meta_batch: held-out examples in every meta step; ``None`` takes the training batch's
            size [100, as the training batch]. At most the meta set.
        interval: training steps per meta step [1].
        outer_optimiser: of V: ``adam`` [stable code] or ``sgd`` [original code].
        outer_learning_rate: [1e-3]
        outer_momentum: of sgd [0.9].
        outer_weight_decay: [1e-4; original code 5e-4]
    """

    width: int = 100
    weight_normalisation: Literal["none", "sum_one"] = "none"
    meta_batch: int | None = None
    interval: int = 1
    outer_optimiser: Literal["adam", "sgd"] = "adam"
    outer_learning_rate: float = 1e-3
    outer_momentum: float = 0.9
    outer_weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.meta_batch
        for name in ("width", "interval"):
            fields.require(getattr(self, name) >= 1, self, name, "be at least 1")
        for name in ("outer_momentum", "outer_weight_decay"):
            fields.require(getattr(self, name) >= 0, self, name, "not be negative")
        fields.require(self.outer_learning_rate > 0, self, "outer_learning_rate", "be positive")
        fields.require(size is None or size >= 1, self, "meta_batch", "be at least 1")

    @property
    def outer(self) -> OuterOptimiser:
        """As the fields say."""
        return OuterOptimiser(
            name=self.outer_optimiser,
            learning_rate=self.outer_learning_rate,
            momentum=self.outer_momentum,
            weight_decay=self.outer_weight_decay,
        )

    @property
    def learns_numbers(self) -> bool:
        """V reads a loss, whatever it is the loss of."""
        return True

    def check(self, plan: Plan) -> None:
        """Refuse a run without held-out examples."""
        if plan.meta_size < 1:
            msg = "the meta set is empty, Meta-Weight-Net learns from it; set meta_fraction"
            raise InputError(msg)

    def build_scorer(self, classifier: Classifier, make: MakeClassifier) -> nn.Module:
        """A new V."""
        return WeightNet(self.width)

    def kind(self, clock: Clock) -> Hashable:
        """All steps are alike."""
        return "every"

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i w_i l_i`` with ``w_i = V(l_i)``, no gradient through V.

        Class and sample weights multiply the loss in the sum and not the one that V reads: V
        would take what counts more for something harder.
        """
        logits = networks.classifier(batch.x)
        losses = task.losses(logits, batch)
        with torch.no_grad():
            even_task, even = unweighted(task, batch)
            weights = self._weights(networks, even_task.losses(logits, even))
        return StepResult(average(weights * losses), logits, weights)

    def outer_due(self, clock: Clock) -> bool:
        """Every ``interval`` steps."""
        return clock.step % self.interval == 0

    def outer_loss(
        self,
        networks: Networks,
        task: Task,
        batch: Batch,
        feeds: Feeds,
        clock: Clock,
        taken: tuple[StepResult, Taken] | None = None,
    ) -> OuterResult:
        """``-(lr/n) sum_i s_i w_i``, s the alignments; the look-ahead is a plain step at lr."""
        meta = feeds.meta(min(self.meta_batch or len(batch.y), feeds.meta_size))
        train = losses_of(networks, task, batch, training=True)
        params = parameters(networks.classifier)
        # V reads the losses of the very pass that is weighted: same masks, same statistics.
        with torch.no_grad(), preserved(batch.x.device):
            losses = losses_of(networks, *unweighted(task, batch), training=True)(params)
        weights = self._weights(networks, losses)
        problem = OneStep(
            losses=train,
            weights=weights.detach(),
            lr=clock.lr,
            meta_loss=self.meta_objective.labelled(networks, task, meta, None),
            halved=convolution_weights(networks.classifier),
        )
        aligned = alignments(problem, params, self.engine)
        return OuterResult(linear_surrogate(weights, aligned.values, clock.lr), aligned.meta_loss)

    @torch.no_grad()
    def weigh(self, networks: Networks, task: Task, batch: Batch) -> Tensor:
        """``V(l_i)``, l by a deterministic pass."""
        losses = losses_of(networks, *unweighted(task, batch), training=False)
        return self._weights(networks, losses(parameters(networks.classifier)))

    def _weights(self, networks: Networks, losses: Tensor) -> Tensor:
        """[n] factors on the terms of the mean loss, differentiable in V and not in the losses."""
        assert networks.scorer is not None
        # Half precision would blur the small losses, where most of a training set ends up.
        with full_precision(parameters(networks.scorer)):
            raw: Tensor = networks.scorer(at_least_single(losses.detach())).sigmoid()
        # A mean of one in a mean over n is a sum of one in a sum.
        return normalise_weights(
            raw, "batch_mean_one" if self.weight_normalisation == "sum_one" else "none"
        )

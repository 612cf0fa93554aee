"""ERM with variance reduction in the training loss: the ReVaR paper's baseline without weights.

The dropout variance that ReVaR puts into its meta-loss is put into the training loss instead.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from revar import fields
from revar.again import computed_again
from revar.errors import InputError
from revar.functional import Params, at_least_single, average, call
from revar.methods.base import Method, Plan, phase_start
from revar.stochastic import Space
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


@dataclass(frozen=True, kw_only=True)
class VR(Method):
    """Fields, with what the ReVaR paper says of them in brackets.

    Attributes:
        variance_weight: lambda of the dropout variance [not said]; 0 is ERM.
        variance_space: ``softmax`` or ``logits`` [not said].
        passes: T, all of them with gradient [10].
        prediction: cross-entropy of one of the passes, ``single``, which is ordinary training
            with dropout, or of their mean probabilities, ``dropout_mean`` [not said].
        unlabelled: ``none`` [yes]; ``pooled`` takes the variance over the training batch and as
            many unlabelled inputs (VR-PV); ``only`` over the unlabelled inputs (VR-DSV).
        unlabelled_from: share of the budget after which they take part [230 of 300 epochs].
        unlabelled_from_epoch: the same in epochs, instead.
    """

    variance_weight: float = 1.0
    variance_space: Space = "softmax"
    passes: int = 10
    prediction: Literal["single", "dropout_mean"] = "single"
    unlabelled: Literal["none", "pooled", "only"] = "none"
    unlabelled_from: float = 230 / 300
    unlabelled_from_epoch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        epoch = self.unlabelled_from_epoch
        fields.require(self.variance_weight >= 0, self, "variance_weight", "not be negative")
        fields.require(self.passes >= 1, self, "passes", "be at least 1")
        fields.require(0 <= self.unlabelled_from < 1, self, "unlabelled_from", "be in [0, 1)")
        fields.require(
            epoch is None or epoch >= 0, self, "unlabelled_from_epoch", "not be negative"
        )
        if self.uses_unlabelled:
            fields.require(
                self.variance_weight > 0, self, "variance_weight",
                f"be positive with unlabelled={self.unlabelled}",
            )  # fmt: skip

    @property
    def needs_dropout(self) -> bool:
        """The variance and the mean of the passes need it."""
        return self.variance_weight > 0 or self.prediction == "dropout_mean"

    @property
    def uses_unlabelled(self) -> bool:
        """VR-PV and VR-DSV do."""
        return self.unlabelled != "none"

    @property
    def learns_numbers(self) -> bool:
        """By squared error and the variance of the outputs."""
        return True

    def check(self, plan: Plan) -> None:
        """Refuse a run in which the unlabelled phase would never start."""
        if not self.uses_unlabelled:
            return
        if plan.unlabelled_size == 0:
            msg = f"unlabelled={self.unlabelled} needs unlabelled inputs, and there are none"
            raise InputError(msg)
        first = self._unlabelled_from(plan.total, plan.steps_per_epoch)
        if first >= plan.total:
            msg = (
                f"the phase with unlabelled inputs would never start: it begins at step {first} of "
                f"{plan.total}; lower unlabelled_from"
            )
            raise InputError(msg)

    def kind(self, clock: Clock) -> Hashable:
        """Whether unlabelled inputs take part."""
        late = clock.step >= self._unlabelled_from(clock.total, clock.steps_per_epoch)
        return self.uses_unlabelled and late

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i [l_i + lambda leps_i]``, leps over the pooled or unlabelled inputs."""
        late = clock.step >= self._unlabelled_from(clock.total, clock.steps_per_epoch)
        alone = self.unlabelled == "only" and late
        several = self.needs_dropout and not (alone and self.prediction == "single")
        samples = training_passes(networks, batch.x, self.passes if several else 1)
        if self.prediction == "single":
            logits = samples[0]
        else:
            logits = task.mean_output(at_least_single(samples))
        loss = average(task.losses(logits, batch))
        if self.variance_weight == 0:
            return StepResult(loss, logits)
        spreads = []
        if not alone:
            own = task.variance(at_least_single(samples), self.variance_space)
            spreads.append(task.weighted(own, batch))
        if self.uses_unlabelled and late:
            assert networks.sampler is not None
            # They are not trained on: running statistics, as at test time.
            _, others = networks.sampler.run(feeds.unlabelled(len(batch.y)), self.passes)
            spreads.append(task.variance(at_least_single(others), self.variance_space))
        return StepResult(loss + self.variance_weight * average(torch.cat(spreads)), logits)

    def _unlabelled_from(self, total: int, steps_per_epoch: int) -> int:
        fraction, epoch = self.unlabelled_from, self.unlabelled_from_epoch
        return phase_start(fraction, epoch, total, steps_per_epoch)


def training_passes(networks: Networks, x: Tensor, passes: int) -> Tensor:
    """T training passes under masks of their own, batch norm by the batch, [T, n, C].

    The first is the pass of any training step and the only one that moves the statistics of
    batch norm. Passes share the trunk where its output is not random; else the others are
    computed once more in the backward pass, so that the memory stays that of one.

    Args:
        networks: with a sampler if there is more than one pass.
        x: [n, ...] normalised inputs.
        passes: T.
    """
    classifier = networks.classifier
    features = classifier.forward_features(x)
    first = classifier.forward_head(features)
    if passes == 1:
        return first.unsqueeze(0)
    assert networks.sampler is not None
    # In place of themselves, so that they do not move the statistics.
    own: Params = dict(classifier.named_parameters())
    if networks.sampler.shared_trunk:
        head = partial(call, classifier, own, features, part="forward_head")
        rest = [head() for _ in range(passes - 1)]
    else:
        whole = partial(call, classifier, own)
        rest = [computed_again(classifier, whole, x) for _ in range(passes - 1)]
    return torch.stack([first, *rest])

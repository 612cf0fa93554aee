"""A U-Score taught by the training trajectory.

What a network said of an example in the course of training tells more than what it says at the
end: averages over the run rank errors better where labels are wrong (Rabanser et al. 2022 keep
snapshots for that; Swayamdipta et al. 2020 map data sets by them). Here g, a small network on the
evidence of f, learns that average along the run, from the same passes, so that an input that was
never seen has it too, in one pass. The averages also say how far the label of a training example
is to be believed, which weighs it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar import fields
from revar.errors import InputError
from revar.functional import at_least_single, average, mode
from revar.methods.base import MakeClassifier, OuterOptimiser, Plan, Sizes, Taught, phase_start
from revar.methods.history import summed_log_odds
from revar.methods.reweighting import evidence_for, normalise_weights, uscore_column
from revar.nets.base import Classifier
from revar.nets.scorer import Evidence, EvidenceScorer, Scored
from revar.sharded import sharing, whole
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task

_FURTHEST = 12.0
"""Log-odds beyond which averages are rounding."""


class Averages(nn.Module):
    """What was said of every training example, and the scale of what is taught."""

    sums: Tensor
    mean: Tensor
    deviation: Tensor
    seen: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(sizes.train, sizes.n_classes))
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("deviation", torch.ones(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def add(self, index: Tensor, probabilities: Tensor) -> Tensor:
        """[n, C] sums of these examples with those of one more pass.

        Args:
            index: [n] positions, all different.
            probabilities: [n, C] of the pass.
        """
        sums = self.sums[index] + probabilities.to(self.sums.dtype)
        self.sums[index] = sums
        return sums

    @torch.no_grad()
    def standardised(self, values: Tensor, rate: float) -> Tensor:
        """[n] values by a running mean and deviation, which they move first."""
        step = torch.where(self.seen, rate, 1.0)
        self.mean.lerp_(values.mean(), step)
        self.deviation.lerp_(values.std(unbiased=False).clamp_min(1e-4), step)
        self.seen.fill_(True)
        return (values - self.mean) / self.deviation


@dataclass(frozen=True, kw_only=True)
class Trajectory(Taught):
    """Fields; the defaults are ours.

    Attributes:
        start: share of the budget before averages begin.
        start_epochs: the same in epochs, instead.
        weighted_from: share of the budget after which examples are weighted by belief in their
            labels: their mean probability as a share of that of the likeliest class. 1 never
            weights.
        outer_learning_rate: of g, at its highest; it follows the schedule of the classifier's.
        outer_momentum: of g.
        outer_weight_decay: of g.
        smoothing: rate of the running mean and deviation of what is taught.
    """

    start: float = 0.4
    start_epochs: int | None = None
    weighted_from: float = 0.5
    outer_learning_rate: float = 0.05
    outer_momentum: float = 0.9
    outer_weight_decay: float = 1e-4
    smoothing: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.require(0 <= self.start < 1, self, "start", "be in [0, 1)")
        epochs = self.start_epochs
        fields.require(epochs is None or epochs >= 0, self, "start_epochs", "not be negative")
        fields.require(0 < self.weighted_from <= 1, self, "weighted_from", "be in (0, 1]")
        for name in ("outer_learning_rate", "smoothing"):
            fields.require(getattr(self, name) > 0, self, name, "be positive")
        for name in ("outer_momentum", "outer_weight_decay"):
            fields.require(getattr(self, name) >= 0, self, name, "not be negative")

    @property
    def own_score(self) -> str:
        """The U-Score."""
        return "uscore"

    @property
    def default_score(self) -> str:
        """With what else the classifier knows, weighed on held-out splits."""
        return "fused"

    @property
    def tuned_on(self) -> tuple[str, ...]:
        """The meta set as well, which it has no other use for."""
        return ("tune", "meta")

    @property
    def outer(self) -> OuterOptimiser:
        """As the fields say."""
        return OuterOptimiser(
            name="sgd",
            learning_rate=self.outer_learning_rate,
            momentum=self.outer_momentum,
            weight_decay=self.outer_weight_decay,
        )

    def check(self, plan: Plan) -> None:
        """Refuse a run of which nothing would be averaged."""
        first = self._from(plan.total, plan.steps_per_epoch)
        if first >= plan.total:
            msg = (
                f"nothing would be averaged: {plan.total} steps, averages from step {first} on; "
                "train longer or lower start_epochs"
            )
            raise InputError(msg)

    def build_scorer(self, classifier: Classifier, make: MakeClassifier) -> nn.Module:
        """A new g: a correction to softmax response, at first zero."""
        return EvidenceScorer(classifier.n_features)

    def build_memory(self, sizes: Sizes) -> nn.Module:
        """C numbers for every training example."""
        return Averages(sizes)

    def kind(self, clock: Clock) -> Hashable:
        """Whether averages have begun, and whether they weigh."""
        return self._averaging(clock), self._weighting(clock)

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i w_i l(y_i, f(x_i))``, and what g is to learn from the same pass."""
        classifier = networks.classifier
        features = classifier.forward_features(batch.x)
        logits = classifier.forward_head(features)
        losses = task.losses(logits, batch)
        if not self._averaging(clock):
            return StepResult(average(losses), logits)
        assert isinstance(networks.memory, Averages)
        probabilities = at_least_single(logits.detach()).softmax(dim=1)
        sums = networks.memory.add(batch.index, probabilities)
        teaching = self._teaching(networks, batch, features.detach(), sums)
        if not self._weighting(clock):
            return StepResult(average(losses), logits, teaching=teaching)
        weights = normalise_weights(belief(sums, batch.y), "batch_mean_one")
        return StepResult(average(weights * losses), logits, weights, teaching=teaching)

    def _teaching(self, networks: Networks, batch: Batch, features: Tensor, sums: Tensor) -> Tensor:
        """Mean Huber loss of g against the log-odds of the averages, standardised."""
        assert isinstance(networks.memory, Averages)
        with torch.no_grad(), mode(networks.classifier, dropout=False, statistics=True):
            predicted = networks.classifier.forward_head(features).argmax(dim=1)
        wanted = summed_log_odds(sums, predicted).clamp(-_FURTHEST, _FURTHEST)
        target = networks.memory.standardised(wanted, self.smoothing)
        evidence = evidence_for(networks, batch.x, features)
        precise = torch.autocast(features.device.type, enabled=False)
        with sharing(len(batch.y)), mode(networks.scorer or nn.Identity(), dropout=True,
                                         statistics=False), precise:  # fmt: skip
            assert networks.scorer is not None
            exact = Evidence(
                evidence.x, at_least_single(evidence.embedding), at_least_single(evidence.log_odds)
            )
            scored: Scored = networks.scorer(exact)
            logit = whole(scored.base).detach() + whole(scored.correction)
            return F.smooth_l1_loss(logit, target.to(logit.dtype))

    def columns(
        self, networks: Networks, x: Tensor, features: Tensor, logits: Tensor
    ) -> dict[str, Tensor]:
        """``uscore``: the logit of g."""
        return uscore_column(networks, x, features, logits)

    def _from(self, total: int, steps_per_epoch: int) -> int:
        return phase_start(self.start, self.start_epochs, total, steps_per_epoch)

    def _averaging(self, clock: Clock) -> bool:
        return clock.step >= self._from(clock.total, clock.steps_per_epoch)

    def _weighting(self, clock: Clock) -> bool:
        return self._averaging(clock) and clock.step >= round(self.weighted_from * clock.total)


def belief(sums: Tensor, labels: Tensor) -> Tensor:
    """Mean probability of the label as a share of that of the likeliest class, [n].

    >>> belief(torch.tensor([[3.0, 1.0], [1.0, 3.0]]), torch.tensor([0, 0]))
    tensor([1.0000, 0.3333])

    Args:
        sums: [n, C] of probabilities; how many passes there were cancels out.
        labels: [n] class numbers.
    """
    own = sums.gather(1, labels[:, None]).squeeze(1)
    return own / sums.amax(dim=1)

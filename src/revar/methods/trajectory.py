"""A classifier and a U-Score taught by the training trajectory.

What a network said of an example in the course of training tells more than what it says at the
end, above all where labels are wrong: it learns what is right first and the rest by heart later.
So here the run teaches twice. f is held to what it used to say of each example (early-learning
regularisation, Liu et al. 2020), and its trained weights are their running mean. g, a small
network on the evidence of f, learns the average of what was said along the run, from the same
passes, so that an input that was never seen has it too, in one pass (Rabanser et al. 2022 keep
snapshots for that; Swayamdipta et al. 2020 map data sets by such averages).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar import fields
from revar.errors import InputError
from revar.functional import (
    at_least_single,
    average,
    follow_flat_state,
    load_flat_state,
    mode,
)
from revar.methods.base import (
    DefaultScore,
    MakeClassifier,
    OuterOptimiser,
    Plan,
    Sizes,
    Taught,
    phase_start,
)
from revar.methods.dictionary import Average
from revar.methods.history import summed_log_odds
from revar.methods.reweighting import uscore_column
from revar.nets.base import Classifier
from revar.nets.scorer import Evidence, EvidenceScorer, Scored, top_log_odds
from revar.rows import Rows
from revar.sharded import alone, sharing, whole
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task

_FURTHEST = 12.0
"""Log-odds beyond which averages are rounding."""
_LEAST = 1e-4
"""Disagreement below which f is not held any closer."""


class Averages(Rows):
    """What was said of every training example, the scale of what is taught, and mean weights.

    Attributes:
        sums: [n, C] of probabilities.
        targets: [n, C] running means of probabilities, from zero on.
        mean: of what is taught.
        deviation: of what is taught.
        seen: whether anything was.
        weights: of the classifier, if they are averaged.
    """

    sums: Tensor
    targets: Tensor
    mean: Tensor
    deviation: Tensor
    seen: Tensor

    def __init__(self, sizes: Sizes, *, weights: bool) -> None:
        super().__init__()
        self.add_rows("sums", sizes.train, sizes.n_classes)
        self.add_rows("targets", sizes.train, sizes.n_classes)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("deviation", torch.ones(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))
        self.weights = Average(sizes.weights) if weights else None

    @torch.no_grad()
    def add(self, index: Tensor, probabilities: Tensor) -> Tensor:
        """[n, C] sums of these examples with those of one more pass.

        Args:
            index: [n] positions, all different.
            probabilities: [n, C] of the pass.
        """
        sums = self.read("sums", index) + probabilities.to(self.sums.dtype)
        self.write("sums", index, sums)
        return sums

    @torch.no_grad()
    def follow(self, index: Tensor, probabilities: Tensor, momentum: float) -> Tensor:
        """``t <- m t + (1 - m) p``: the new targets [n, C] of these examples, which are kept too.

        Args:
            index: [n] positions, all different.
            probabilities: [n, C] of the pass.
            momentum: m.
        """
        said = probabilities.to(self.targets.dtype)
        targets = self.read("targets", index).lerp(said, 1 - momentum)
        self.write("targets", index, targets)
        return targets

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
        early: lambda of the early-learning term ``lambda log(1 - <p_i, t_i>)``, which holds f to
            the running targets t_i of its own words; 0 leaves it out [3 on CIFAR-10 in the
            authors' code, 7 on CIFAR-100].
        early_from: share of the budget before the term counts [from the first step].
        early_momentum: m of the targets [0.7 on CIFAR-10, 0.9 on CIFAR-100].
        half_life: of the running mean of weights that is the trained model, as a share of the
            budget; 0 leaves the last weights.
        outer_learning_rate: of g, at its highest; it follows the schedule of the classifier's.
        outer_momentum: of g.
        outer_weight_decay: of g.
        smoothing: rate of the running mean and deviation of what is taught.
        default_score: the score a run uses unless told otherwise; ``fused`` holds a tenth of the
            labels back to be fitted on.
    """

    start: float = 0.4
    start_epochs: int | None = None
    early: float = 1.0
    early_from: float = 0.3
    early_momentum: float = 0.7
    half_life: float = 0.05
    outer_learning_rate: float = 0.05
    outer_momentum: float = 0.9
    outer_weight_decay: float = 1e-4
    smoothing: float = 0.05
    default_score: DefaultScore = "softmax"

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.require(0 <= self.start < 1, self, "start", "be in [0, 1)")
        epochs = self.start_epochs
        fields.require(epochs is None or epochs >= 0, self, "start_epochs", "not be negative")
        for name in ("early_from", "early_momentum", "half_life"):
            fields.require(0 <= getattr(self, name) < 1, self, name, "be in [0, 1)")
        for name in ("outer_learning_rate", "smoothing"):
            fields.require(getattr(self, name) > 0, self, name, "be positive")
        for name in ("early", "outer_momentum", "outer_weight_decay"):
            fields.require(getattr(self, name) >= 0, self, name, "not be negative")

    @property
    def own_score(self) -> str:
        """The U-Score."""
        return "uscore"

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
        """2 C numbers for every training example, and as many as the classifier has."""
        return Averages(sizes, weights=self.half_life > 0)

    def kind(self, clock: Clock) -> Hashable:
        """Whether it is the first step, f is held, and averages have begun."""
        return clock.step == 0, self._holding(clock), self._averaging(clock)

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i [l(y_i, f(x_i)) + lambda log(1 - <p_i, t_i>)]``, and what g learns of it.

        The targets t_i follow the probabilities p_i of this very pass; no gradient flows into
        them. The second term falls as f agrees more with them, and its gradient cancels that of
        a label they contradict.
        """
        classifier, memory = networks.classifier, networks.memory
        assert isinstance(memory, Averages)
        if memory.weights is not None:
            rate = 1 - 0.5 ** (1 / max(self.half_life * clock.total, 1))
            follow_flat_state(classifier, memory.weights.flat, 1.0 if clock.step == 0 else rate)
        features = classifier.forward_features(batch.x)
        logits = classifier.forward_head(features)
        losses = task.losses(logits, batch)
        probabilities = at_least_single(logits).softmax(dim=1)
        said = probabilities.detach()
        if self.early > 0:
            targets = memory.follow(batch.index, said, self.early_momentum)
            if self._holding(clock):
                penalties = early_learning(probabilities, targets)
                losses = losses + self.early * task.weighted(penalties, batch)
        if not self._averaging(clock):
            return StepResult(average(losses), logits)
        sums = memory.add(batch.index, said)
        teaching = self._teaching(networks, batch, features.detach(), sums)
        return StepResult(average(losses), logits, teaching=teaching)

    def finish(self, networks: Networks) -> None:
        """Make the averaged weights the trained model."""
        assert isinstance(networks.memory, Averages)
        if networks.memory.weights is not None:
            load_flat_state(networks.classifier, networks.memory.weights.flat)

    def _teaching(self, networks: Networks, batch: Batch, features: Tensor, sums: Tensor) -> Tensor:
        """Mean Huber loss of g against the log-odds of the averages, standardised."""
        classifier, memory = networks.classifier, networks.memory
        assert isinstance(memory, Averages)
        assert networks.scorer is not None
        with torch.no_grad(), alone(), mode(classifier.upper, dropout=False, statistics=True):
            embedding = at_least_single(classifier.embed(features))
            logits = at_least_single(classifier.forward_head(features))
        predicted = whole(logits).argmax(dim=1)
        wanted = summed_log_odds(sums, predicted).clamp(-_FURTHEST, _FURTHEST)
        target = memory.standardised(wanted, self.smoothing)
        with sharing(len(batch.y)), mode(networks.scorer, dropout=True, statistics=False):
            scored: Scored = networks.scorer(Evidence(batch.x, embedding, top_log_odds(logits)))
            logit = scored.of_all().logit
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

    def _holding(self, clock: Clock) -> bool:
        return self.early > 0 and clock.step >= round(self.early_from * clock.total)


def early_learning(probabilities: Tensor, targets: Tensor) -> Tensor:
    """``log(1 - <p, t>)`` of each example, [n] (Liu et al. 2020, equation 6).

    >>> early_learning(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]])).exp()
    tensor([0.5000])

    Args:
        probabilities: [n, C] p, with their gradient.
        targets: [n, C] t; their sum is at most one.
    """
    return (1 - (probabilities * targets).sum(dim=1)).clamp_min(_LEAST).log()

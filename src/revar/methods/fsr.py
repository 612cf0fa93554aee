"""Fast sample reweighting (Zhang and Pfister 2021).

Weights as in L2R, without held-out data: a class-balanced dictionary of the most valuable
*training* examples stands for the clean set, and the look-ahead moves the last layer only.
`FSR.full` adds what the authors train with: mixup, averaged weights, soft labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar import fields
from revar.bilevel import Losses, Objective, OneStep, alignments, losses_after
from revar.errors import InputError
from revar.functional import (
    Params,
    at_least_single,
    call,
    load_flat_state,
    mode,
    parameters,
)
from revar.methods.base import Plan, Sizes, phase_start
from revar.methods.dictionary import Average, Dictionary, PseudoLabels, Remembered
from revar.methods.mixup import Mixed, mix
from revar.methods.reweighting import Reweighting
from revar.randomness import RandomState, preserved
from revar.sharded import alone
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


@dataclass(frozen=True, kw_only=True)
class FSR(Reweighting):
    """Fields beside those of `Reweighting`, with the value of the authors' code in brackets.

    Attributes:
        capacity: examples in the dictionary [2000], rounded down to as many of every class.
        capacity_share: of the training set, which the dictionary must not exceed [they have 4 %
            and need no limit]: a dictionary of everything selects nothing.
        dictionary_batch: drawn from it in every step [200], rounded down likewise.
        start: share of the budget with uniform weights first [20 of about 200 epochs]; at least
            one epoch, after which the dictionary is first filled.
        start_epochs: the same in epochs, instead.
        partial: look ahead through the last layer only [yes]; else through all of them, at the
            cost of an ordinary bilevel step.
        lookahead_rate: step size of the look-ahead [0.1]. Theirs carries momentum and weight
            decay along, which move the point but not the derivatives.
        negatives: weights of examples that disagree with the dictionary: ``clip`` to zero [noisy
            labels]; ``shift`` all so that the least is 1/n [imbalanced classes].
        value: of an example for the dictionary: ``loss_after``, minus its loss after the
            look-ahead; ``drop``, the loss of the training pass less that [yes]. Their training
            pass is on mixed inputs, and must be: without mixup ``drop`` collects mislabelled
            examples, whose own gradients make most of the step (docs/methods/fsr.md).
        value_momentum: of the running values [0.9].
        mixup: train on mixed pairs of examples [yes, see `full`].
        weight_average: momentum of the averaged weights that are the trained model [0.999];
            0 leaves it out.
        pseudo_weight: of the cross-entropy with soft labels, from `start` on [2]; 0 leaves it out.
        pseudo_temperature: of the soft labels [1].
        pseudo_momentum: of the running logits behind them [0.1].
    """

    capacity: int = 2000
    capacity_share: float = 0.1
    dictionary_batch: int = 200
    start: float = 0.1
    start_epochs: int | None = None
    partial: bool = True
    lookahead_rate: float = 0.1
    negatives: Literal["clip", "shift"] = "clip"
    value: Literal["loss_after", "drop"] = "loss_after"
    value_momentum: float = 0.9
    mixup: bool = False
    weight_average: float = 0.0
    pseudo_weight: float = 0.0
    pseudo_temperature: float = 1.0
    pseudo_momentum: float = 0.1

    @classmethod
    def full(cls) -> Self:
        """With what the authors' code has on by default; it alone brings large gains."""
        return cls(value="drop", mixup=True, weight_average=0.999, pseudo_weight=2.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        epochs = self.start_epochs
        for name in ("capacity", "dictionary_batch"):
            fields.require(getattr(self, name) >= 1, self, name, "be at least 1")
        for name in ("start", "value_momentum", "weight_average", "pseudo_momentum"):
            fields.require(0 <= getattr(self, name) < 1, self, name, "be in [0, 1)")
        for name in ("lookahead_rate", "pseudo_temperature"):
            fields.require(getattr(self, name) > 0, self, name, "be positive")
        fields.require(0 < self.capacity_share <= 1, self, "capacity_share", "be in (0, 1]")
        fields.require(self.pseudo_weight >= 0, self, "pseudo_weight", "not be negative")
        fields.require(epochs is None or epochs >= 0, self, "start_epochs", "not be negative")

    def check(self, plan: Plan) -> None:
        """Refuse a run that would end before the dictionary is used."""
        start = self._weighted_from(plan.total, plan.steps_per_epoch)
        if start >= plan.total:
            msg = (
                f"FSR would never weight an example: {plan.total} steps, uniform weights until "
                f"step {start} (one epoch at least); train longer or lower start"
            )
            raise InputError(msg)

    def build_memory(self, sizes: Sizes) -> nn.Module:
        """Values and dictionary, and what the extras need."""
        room = min(self.capacity, int(self.capacity_share * sizes.train))
        per_class = max(1, room // sizes.n_classes)
        return Remembered(
            Dictionary(sizes.train, sizes.n_classes, per_class),
            PseudoLabels(sizes.train, sizes.n_classes) if self.pseudo_weight else None,
            Average(sizes.weights) if self.weight_average else None,
        )

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``sum_i w_i l_i``, plus the soft-label loss; ``(1/n) sum_i l_i`` before the start.

        Class and sample weights multiply l_i. They have no part in w_i, where they would count
        twice, nor in the values, where what hardly counts would seem easy.
        """
        memory, classifier = networks.memory, networks.classifier
        assert isinstance(memory, Remembered)
        if memory.average is not None:
            memory.average.follow(classifier, clock.step, self.weight_average)
        started = clock.step >= self._weighted_from(clock.total, clock.steps_per_epoch)
        dictionary = self._draw(memory.dictionary, task, feeds) if started else None
        plain = Mixed.plain(batch)
        mixed = mix(batch) if self.mixup else plain
        before = RandomState.capture(batch.x.device)
        features = classifier.forward_features(mixed.x)
        head = reached_by_head(networks, features.detach()) if self.partial else {}
        with preserved(batch.x.device):
            if not head:
                # A look-ahead through all layers sees the masks of the trunk, too.
                before.restore()
            inputs = features.detach() if head else None
            even_task = replace(task, class_weights=None)
            even = batch_losses(networks, even_task, mixed.unweighted(), inputs)
            step = OneStep(
                losses=batch_losses(networks, task, mixed, inputs),
                weights=torch.ones(len(batch.y), device=batch.x.device),
                lr=self.lookahead_rate,
                meta_loss=self._meta_loss(networks, task, dictionary),
                candidates=even,
            )
            if self.mixup:
                after = batch_losses(networks, even_task, plain.unweighted(), None)
            else:
                after = even
            moving = head or parameters(classifier)
            value = self._value(step, after, moving)
            memory.dictionary.observe(batch.index, value, self.value_momentum)
            if started:
                aligned = alignments(step, moving, self.engine)
                gain, counts = self.lookahead_rate * aligned.values, mixed.counts(task)
                weights = batch_weights(gain, counts, self.negatives)
            else:
                weights = torch.full_like(value, 1 / len(value))
        logits = classifier.forward_head(features)
        loss = (weights * mixed.losses(task, logits)).sum()
        if memory.pseudo_labels is not None:
            z = at_least_single(logits)
            kept = memory.pseudo_labels.visit(batch.index, z.detach(), self.pseudo_momentum)
            soft = (kept / self.pseudo_temperature).softmax(dim=1)
            if started:
                distances = F.cross_entropy(z, soft, reduction="none")
                loss = loss + self.pseudo_weight * task.weighted(distances, batch).mean()
        return StepResult(loss, logits, weights)

    def finish_epoch(self, networks: Networks, task: Task, feeds: Feeds, clock: Clock) -> None:
        """Fill the dictionary anew."""
        assert isinstance(networks.memory, Remembered)
        networks.memory.dictionary.refill(feeds.train_labels)

    def finish(self, networks: Networks) -> None:
        """Make the averaged weights the trained model."""
        assert isinstance(networks.memory, Remembered)
        if networks.memory.average is not None:
            load_flat_state(networks.classifier, networks.memory.average.flat)

    def _weighted_from(self, total: int, steps_per_epoch: int) -> int:
        start = phase_start(self.start, self.start_epochs, total, steps_per_epoch)
        return max(start, steps_per_epoch)

    def _draw(self, dictionary: Dictionary, task: Task, feeds: Feeds) -> Batch:
        per_class = max(1, self.dictionary_batch // task.n_classes)
        return feeds.train_at(dictionary.draw(per_class))

    def _meta_loss(self, networks: Networks, task: Task, dictionary: Batch | None) -> Objective:
        everything = parameters(networks.classifier)

        def meta_loss(moved: Params) -> Tensor:
            assert dictionary is not None
            objective = self.meta_objective.labelled(networks, task, dictionary, None)
            # What does not move is handed over detached, or its graph would be kept.
            return objective({**everything, **moved})

        return meta_loss

    def _value(self, step: OneStep, after: Losses, moving: Params) -> Tensor:
        """[n] what each example of the batch is worth to the dictionary.

        Args:
            step: of the training batch; its candidates are the losses before.
            after: losses of the same examples, not mixed.
            moving: the parameters that the look-ahead moves.
        """
        value = -losses_after(replace(step, candidates=after), moving)
        if self.value == "drop":
            value = value + losses_after(replace(step, weights=None), moving)
        return value


def batch_losses(networks: Networks, task: Task, mixed: Mixed, features: Tensor | None) -> Losses:
    """The losses of a batch in training mode, from features where only the head is to move."""
    classifier = networks.classifier
    part = "forward" if features is None else "forward_head"
    inputs = mixed.x if features is None else at_least_single(features)

    def losses(params: Params) -> Tensor:
        with mode(classifier, dropout=True, statistics=False):
            return mixed.losses(task, call(classifier, params, inputs, part=part))

    return losses


def batch_weights(gain: Tensor, counts: Tensor, negatives: Literal["clip", "shift"]) -> Tensor:
    """What the meta-loss would gain by each example, as weights of sum one, [n].

    Args:
        gain: [n] minus the derivative of the meta-loss by the example's weight.
        counts: [n] as how many examples each one counts, in the sum.
        negatives: ``clip`` at zero; or ``shift``, so that the least is 1/n before the division.
    """
    raw = gain.clamp_min(0) if negatives == "clip" else gain - gain.min() + 1 / len(gain)
    return raw / ((counts * raw).sum() + 1e-5)


def reached_by_head(networks: Networks, features: Tensor) -> Params:
    """The parameters that the head depends on; none for a network that cannot be taken apart.

    Args:
        networks: with the classifier.
        features: [n, ...] of the trunk, detached.
    """
    params = parameters(networks.classifier)
    at = {name: p.requires_grad_() for name, p in params.items()}
    everything = mode(networks.classifier, dropout=False, statistics=True)
    with torch.enable_grad(), alone(), everything:
        logits = call(networks.classifier, at, features[:1], part="forward_head")
        if not logits.requires_grad:
            return {}
        gradients = torch.autograd.grad(logits.sum(), list(at.values()), allow_unused=True)
    # In the stubs of torch gradients are tensors; one that is not used has none.
    unused: list[Tensor | None] = list(gradients)
    named = zip(at.items(), unused, strict=True)
    return {name: p.detach() for (name, p), gradient in named if gradient is not None}

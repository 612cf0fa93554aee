"""The records that travel between the rooms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.functional import Rate, at_least_single
from revar.nets.base import Classifier
from revar.nets.normalise import Normalise
from revar.nets.scorer import Scored
from revar.stochastic import DropoutPasses, Space, variance


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples of one step.

    Attributes:
        x: [n, ...] normalised inputs; where several processes share a batch, those of this one.
        y: [n] class numbers, or numbers to predict.
        index: [n] positions in the split they come from.
        weight: [n] how much each example counts, or all alike.
    """

    x: Tensor
    y: Tensor
    index: Tensor
    weight: Tensor | None = None

    def part(self, rows: slice) -> Batch:
        """Some of the examples."""
        weight = None if self.weight is None else self.weight[rows]
        return Batch(self.x[rows], self.y[rows], self.index[rows], weight)


@lru_cache(maxsize=8)
def _factors(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """On the device once: a copy in every step would make the host wait for it."""
    return torch.tensor(values, dtype=dtype, device=device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be learned: classes, unless it is `Regression`.

    Attributes:
        n_classes: C.
        input_shape: of one example.
        class_weights: C factors on the loss of each class, or none.
    """

    n_classes: int
    input_shape: tuple[int, ...]
    class_weights: tuple[float, ...] | None = None

    def losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of each example times its weight and that of its class, [n]."""
        # Autocast on a CPU would take the logarithm in half precision.
        losses = F.cross_entropy(at_least_single(logits), batch.y, reduction="none")
        return self.weighted(losses, batch)

    def slopes(self, logits: Tensor, tangent: Tensor, batch: Batch) -> Tensor | None:
        """[n] how fast `losses` change where logits move along a tangent, to the bits of torch.

        ``None`` where the losses are not these.

        Args:
            logits: [n, C], in single precision or finer.
            tangent: [n, C] of them.
            batch: the examples.
        """
        if type(self).losses is not Task.losses:
            return None
        powers = (logits - logits.amax(-1, keepdim=True)).exp_()
        expected = (powers * tangent).sum(-1).div_(powers.sum(-1))
        return self.weighted(expected.sub_(tangent.gather(-1, batch.y[:, None])[:, 0]), batch)

    def weighted(self, losses: Tensor, batch: Batch) -> Tensor:
        """Any [n] losses times the weight of each example and that of its class."""
        if self.class_weights is not None:
            losses = losses * _factors(self.class_weights, losses.dtype, losses.device)[batch.y]
        return losses if batch.weight is None else losses * batch.weight

    def hits(self, logits: Tensor, batch: Batch) -> Tensor | None:
        """How many examples of a batch are right, where that can be said."""
        return (logits.detach().argmax(-1) == batch.y).sum()

    def variance(self, samples: Tensor, space: Space) -> Tensor:
        """[T, n, C] outputs of T dropout passes to their variance, [n] (equation 5)."""
        return variance(samples, space)

    def mean_output(self, samples: Tensor) -> Tensor:
        """[T, n, C] logits of T passes to the log of their mean probabilities, as logits."""
        return samples.log_softmax(-1).logsumexp(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(Task):
    """Numbers to predict: squared error, and the variance of the outputs as they are.

    A network has one output, ``n_classes`` is 1. Several runs may train side by side: outputs
    are then [n, runs, 1] and losses [n, runs] (`revar.studies.lanes`).
    """

    n_classes: int = 1

    def losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """``(f(x_i) - y_i)^2`` times the weight of each example, [n]."""
        errors = at_least_single(logits).squeeze(-1) - batch.y
        return self.weighted(errors.square(), batch)

    def hits(self, logits: Tensor, batch: Batch) -> Tensor | None:
        """A number is never simply right."""
        return None

    def variance(self, samples: Tensor, space: Space) -> Tensor:
        """Of the outputs, whatever space is asked for: a single one has no probabilities."""
        return variance(samples, "logits")

    def mean_output(self, samples: Tensor) -> Tensor:
        """The mean of the outputs."""
        return samples.mean(0)


class Networks(nn.Module):
    """Everything that is learned or remembered in one run.

    Attributes:
        normalise: stored values to network inputs.
        classifier: f.
        scorer: what the outer level learns, for bilevel methods: ReVaR's g, a weight net.
        heads: what a method learns beside the class logits, on the features of f.
        memory: what a method remembers of single training examples, as buffers. It is part of
            a checkpoint, and not of the trained model; several processes share its rows.
        sampler: how to take dropout passes of f; ``None`` for a net without dropout.
    """

    scorer: nn.Module | None
    heads: nn.Module | None
    memory: nn.Module | None

    def __init__(
        self,
        normalise: Normalise,
        classifier: Classifier,
        scorer: nn.Module | None = None,
        sampler: DropoutPasses | None = None,
        heads: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.normalise = normalise
        self.classifier = classifier
        self.scorer = scorer
        self.heads = heads
        self.memory = None
        self.sampler = sampler

    def trained_state(self) -> dict[str, Tensor]:
        """The weights and statistics of the trained model, without the memory."""
        state = self.state_dict()
        return {name: v for name, v in state.items() if not name.startswith("memory.")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Where in the run a step is.

    Attributes:
        step: steps done before this one.
        total: steps of the whole run.
        steps_per_epoch: of these, in one epoch.
        lr: the classifier's learning rate at this step.
    """

    step: int
    total: int
    steps_per_epoch: int
    lr: Rate

    @property
    def epoch(self) -> int:
        """Epochs done before this step."""
        return self.step // self.steps_per_epoch


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a method makes of one training batch.

    Attributes:
        loss: scalar to minimise over the classifier.
        logits: [n, C] class logits of the pass, for the running accuracy.
        weights: [n] weights of the examples, for methods that have them.
        teaching: scalar to minimise over the scorer, for methods that teach it in every step.
        scored: what those are made of and is not yet differentiated, where the outer level of the
            same step does that.
    """

    loss: Tensor
    logits: Tensor
    weights: Tensor | None = None
    scored: Scored | None = None
    teaching: Tensor | None = None


@dataclass(frozen=True, slots=True)
class OuterResult:
    """What a reweighting method makes of one meta step.

    Attributes:
        loss: scalar to minimise over the scorer; its gradient is the hypergradient (or a
            regularised form of it).
        meta_loss: the meta-loss after the look-ahead, to be logged.
    """

    loss: Tensor
    meta_loss: Tensor


class Feeds(Protocol):
    """Where a method takes batches from that are not training batches."""

    @property
    def train_size(self) -> int:
        """Examples in the training split."""

    @property
    def train_labels(self) -> Tensor:
        """[train_size] class numbers."""

    @property
    def meta_size(self) -> int:
        """Examples in the meta set."""

    @property
    def unlabelled_size(self) -> int:
        """Unlabelled inputs."""

    def train_at(self, index: Tensor) -> Batch:
        """Training examples by their positions, not augmented."""

    def meta(self, count: int) -> Batch:
        """The next examples of the meta set, all different if it has that many."""

    def meta_at(self, index: Tensor) -> Batch:
        """Examples of the meta set by their positions."""

    def unlabelled(self, count: int) -> Tensor:
        """The next unlabelled inputs, normalised; of this process, as in a `Batch`."""

    def unlabelled_at(self, index: Tensor) -> Tensor:
        """Unlabelled inputs by their positions, normalised."""

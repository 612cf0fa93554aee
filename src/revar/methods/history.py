"""Training history: what earlier weights said of an input (after Rabanser et al. 2022).

Plain training. An input on which the network kept changing its mind while it was trained is less
certain than one it settled early, whatever the last weights say of both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from revar import fields
from revar.errors import InputError
from revar.functional import at_least_single, mode
from revar.methods.base import Method, Plan, Sizes, phase_start
from revar.nets.base import Classifier
from revar.rows import Rows
from revar.sharded import sharing
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task

_CHUNK = 512
"""Examples of an evaluation pass at a time."""


class Sums(Rows):
    """Class probabilities of known examples, added up over epochs; rows sum to the epochs seen."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        for name in ("train", "meta", "unlabelled"):
            # Of, because every module has a method named train.
            self.add_rows(f"of_{name}", getattr(sizes, name), sizes.n_classes)

    def of(self, split: str) -> Tensor:
        """[n, C] of ``train``, ``meta`` or ``unlabelled``; this process's part of them."""
        sums: Tensor = getattr(self, f"of_{split}")
        return sums

    @torch.no_grad()
    def add(self, split: str, index: Tensor, logits: Tensor) -> None:
        """Count what one pass says.

        Args:
            split: the examples belong to.
            index: [n] positions in it, all different.
            logits: [n, C]
        """
        sums = self.of(split)
        there = index.to(sums.device)
        said = at_least_single(logits).softmax(dim=1).to(sums.dtype)
        self.change(f"of_{split}", there, lambda old: old + said)


class Snapshots(nn.Module):
    """Frozen copies of the classifier, statistics of batch norm included."""

    def __init__(self, classifier: nn.Module, count: int) -> None:
        super().__init__()
        self.copies = nn.ModuleList(deepcopy(classifier) for _ in range(count))
        # The optimiser takes what has a gradient.
        self.requires_grad_(False)

    def capture(self, number: int, classifier: nn.Module) -> None:
        """Make one copy the classifier as it is now."""
        self.copies[number].load_state_dict(classifier.state_dict())


@dataclass(frozen=True, kw_only=True)
class History(Method):
    """Fields; the defaults are ours.

    Attributes:
        start: share of the budget before the averages begin; the epoch it falls into counts.
        start_epochs: the same in epochs, instead.
        snapshots: weights kept for inputs not seen in training, evenly spaced over the averaged
            epochs. The last are the trained model itself; 1 is softmax response.
        source: where probabilities of training examples are taken from: their ``training`` passes,
            dropout and augmentation on, at no cost; or an ``evaluation`` pass over all of them
            at the end of every averaged epoch.
        register: average over the unlabelled inputs as well, which makes their score
            transductive: it is known for these inputs only.
    """

    start: float = 0.4
    start_epochs: int | None = None
    snapshots: int = 4
    source: Literal["training", "evaluation"] = "training"
    register: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        epochs = self.start_epochs
        fields.require(0 <= self.start < 1, self, "start", "be in [0, 1)")
        fields.require(epochs is None or epochs >= 0, self, "start_epochs", "not be negative")
        fields.require(self.snapshots >= 1, self, "snapshots", "be at least 1")

    @property
    def own_score(self) -> str:
        """Log-odds against the predicted class, by the averaged probabilities."""
        return "history"

    @property
    def uses_unlabelled(self) -> bool:
        """Where they are registered."""
        return self.register

    @property
    def transductive(self) -> bool:
        """Registered inputs have a score of their own."""
        return self.register

    def check(self, plan: Plan) -> None:
        """Refuse a run of which nothing would be averaged, or nothing registered."""
        epochs = plan.total // plan.steps_per_epoch
        first = self._first_epoch(plan.total, plan.steps_per_epoch)
        if first >= epochs:
            msg = (
                f"no epoch would be averaged: {epochs} epochs, averages from epoch {first} on; "
                "train longer or lower start_epochs"
            )
            raise InputError(msg)
        if self.register and plan.unlabelled_size == 0:
            raise InputError("register needs unlabelled inputs, and there are none")

    def build_heads(self, classifier: Classifier, n_classes: int) -> nn.Module:
        """The snapshots but for the last, which is the trained classifier."""
        return Snapshots(classifier, self.snapshots - 1)

    def build_memory(self, sizes: Sizes) -> nn.Module:
        """C numbers for every known example."""
        return Sums(sizes)

    def kind(self, clock: Clock) -> Hashable:
        """Whether the averages have begun."""
        return clock.epoch >= self._from(clock)

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i l(y_i, f(x_i))``, as ERM."""
        logits = networks.classifier(batch.x)
        if self.source == "training" and clock.epoch >= self._from(clock):
            _sums(networks).add("train", batch.index, logits)
        return StepResult(task.losses(logits, batch).mean(), logits)

    def finish_epoch(self, networks: Networks, task: Task, feeds: Feeds, clock: Clock) -> None:
        """Add what the weights say now, and keep them where a snapshot is due."""
        first, done = self._from(clock), clock.epoch
        if done <= first:
            return
        epochs = clock.total // clock.steps_per_epoch
        assert isinstance(networks.heads, Snapshots)
        for number, due in enumerate(snapshot_epochs(first, epochs, self.snapshots)[:-1]):
            if due == done:
                networks.heads.capture(number, networks.classifier)
        if self.source == "evaluation":
            _pass("train", networks, feeds.train_size, lambda index: feeds.train_at(index).x)
        _pass("meta", networks, feeds.meta_size, lambda index: feeds.meta_at(index).x)
        if self.register:
            _pass("unlabelled", networks, feeds.unlabelled_size, feeds.unlabelled_at)

    def scores(
        self, networks: Networks, x: Tensor, features: Tensor, logits: Tensor
    ) -> dict[str, Tensor]:
        """``history``: of any input, by the snapshots."""
        assert isinstance(networks.heads, Snapshots)
        members = torch.stack([logits, *(copy(x) for copy in networks.heads.copies)])
        return {"history": mean_log_odds(members, logits.argmax(dim=1))}

    def recall(self, networks: Networks, split: str, logits: Tensor) -> dict[str, Tensor]:
        """``history_streamed`` of train and meta, ``history_registered`` of unlabelled inputs."""
        names = {"train": "history_streamed", "meta": "history_streamed"}
        if self.register:
            names["unlabelled"] = "history_registered"
        if split not in names:
            return {}
        # Whoever trained with others has them on the host.
        sums = _sums(networks).of(split).to(logits.device)
        return {names[split]: summed_log_odds(sums, logits.argmax(dim=1))}

    def _first_epoch(self, total: int, steps_per_epoch: int) -> int:
        return phase_start(self.start, self.start_epochs, total, steps_per_epoch) // steps_per_epoch

    def _from(self, clock: Clock) -> int:
        return self._first_epoch(clock.total, clock.steps_per_epoch)


def _sums(networks: Networks) -> Sums:
    assert isinstance(networks.memory, Sums)
    return networks.memory


@torch.no_grad()
def _pass(split: str, networks: Networks, size: int, inputs: Callable[[Tensor], Tensor]) -> None:
    with mode(networks.classifier, dropout=False, statistics=True):
        for index in torch.arange(size).split(_CHUNK):
            if len(index):
                with sharing(len(index)):
                    logits = networks.classifier(inputs(index))
                _sums(networks).add(split, index, logits)


def snapshot_epochs(first: int, epochs: int, count: int) -> list[int]:
    """After how many epochs a snapshot is taken, the last one at the end.

    Where there are more snapshots than averaged epochs, some are the same.

    >>> snapshot_epochs(8, 20, 4)
    [11, 14, 17, 20]
    """
    length = epochs - first
    return [first - (-k * length // count) for k in range(1, count + 1)]


def mean_log_odds(members: Tensor, predicted: Tensor) -> Tensor:
    """``log(1 - p) - log p`` with p the mean probability of the predicted class, [n].

    In logarithms throughout, so that it does not tie where p rounds to one.

    Args:
        members: [S, n, C] logits of each set of weights.
        predicted: [n] class numbers.
    """
    log_p = at_least_single(members).log_softmax(dim=2)
    label = predicted.expand(len(members), -1)[:, :, None]
    own = log_p.gather(2, label).squeeze(2)
    others = log_p.scatter(2, label, -torch.inf).logsumexp(dim=2)
    return others.logsumexp(dim=0) - own.logsumexp(dim=0)


def summed_log_odds(sums: Tensor, predicted: Tensor) -> Tensor:
    """The same from probabilities added up over passes; how many there were cancels out.

    Args:
        sums: [n, C] of probabilities.
        predicted: [n] class numbers.
    """
    label = predicted[:, None]
    own = sums.gather(1, label).squeeze(1)
    # Not 1 - p: small probabilities have digits where their complement has none left.
    others = sums.scatter(1, label, 0.0).sum(dim=1)
    least = torch.finfo(sums.dtype).tiny
    return others.clamp_min(least).log() - own.clamp_min(least).log()

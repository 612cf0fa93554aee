"""The one loop: every method is trained here, and only here does an optimiser step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from revar.errors import InputError
from revar.feeds import ResidentFeeds
from revar.functional import mode
from revar.methods.base import Bilevel, Method, OuterOptimiser, Plan
from revar.recipe import Budget
from revar.types import Clock, Networks, Task


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One line of the log.

    Attributes:
        epoch: epochs done.
        step: steps done.
        lr: the learning rate of the last step.
        loss: mean training loss of the epoch.
        accuracy: of the training passes, dropout on.
        meta_loss: mean over the epoch's meta steps, if there were any.
        weight_mean: of the weights, if there were any.
        weight_spread: their standard deviation.
        seconds: the epoch took.
    """

    epoch: int
    step: int
    lr: float
    loss: float
    accuracy: float
    meta_loss: float | None
    weight_mean: float | None
    weight_spread: float | None
    seconds: float


class Observer(Protocol):
    """Whoever watches a run."""

    def started(self, *, step: int, total: int, epochs: int) -> None:
        """Before the first step."""

    def stepped(self, step: int, figures: Callable[[], dict[str, float]]) -> None:
        """After every step; calling ``figures`` waits for the device."""

    def finished_epoch(self, record: EpochRecord) -> None:
        """After every epoch."""


@dataclass
class TrainingState:
    """Everything a resumed run needs to end with the same bits."""

    networks: Networks
    optimiser: Optimizer
    outer: Optimizer | None
    feeds: ResidentFeeds
    device: torch.device
    epoch: int = 0


def learning_rate(budget: Budget, step: int, total: int) -> float:
    """The classifier's learning rate at a step.

    >>> budget = Budget(learning_rate=1.0, lr_warmup=0.0)
    >>> [round(learning_rate(budget, step, 4), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    highest = budget.learning_rate
    assert highest is not None
    rising = budget.lr_warmup * total
    if step < rising:
        return highest * (step + 1) / (rising + 1)
    progress = (step - rising) / max(total - rising, 1)
    if budget.schedule == "cosine":
        return highest * (1 + math.cos(math.pi * progress)) / 2
    if budget.schedule == "step":
        return highest * (0.1 ** ((progress >= 0.5) + (progress >= 0.75)))
    return highest


def make_optimiser(budget: Budget, parameters: list[nn.Parameter]) -> Optimizer:
    """The classifier's optimiser; biases and norms are not decayed."""
    rate = budget.learning_rate
    assert rate is not None
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": budget.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if budget.optimiser == "sgd":
        return SGD(groups, lr=rate, momentum=budget.momentum, nesterov=budget.momentum > 0)
    return AdamW(groups, lr=rate)


def make_outer(spec: OuterOptimiser, parameters: list[nn.Parameter]) -> Optimizer:
    """The scorer's optimiser."""
    decay = spec.weight_decay
    if spec.name == "adam":
        return Adam(parameters, lr=spec.learning_rate, weight_decay=decay)
    return SGD(parameters, lr=spec.learning_rate, momentum=spec.momentum, weight_decay=decay)


def new_state(
    method: Method, budget: Budget, networks: Networks, feeds: ResidentFeeds, device: torch.device
) -> TrainingState:
    """The state before the first step.

    Raises:
        InputError: some phase of the method would never start.
    """
    plan = Plan(
        total=budget.epochs * feeds.steps_per_epoch,
        steps_per_epoch=feeds.steps_per_epoch,
        meta_size=feeds.meta_size,
        unlabelled_size=feeds.unlabelled_size,
    )
    method.check(plan)
    parameters = [p for p in networks.classifier.parameters() if p.requires_grad]
    optimiser = make_optimiser(budget, parameters)
    outer = None
    if isinstance(method, Bilevel) and networks.scorer is not None:
        outer = make_outer(method.outer, list(networks.scorer.parameters()))
    return TrainingState(networks, optimiser, outer, feeds, device)


def autocast(budget: Budget, device: torch.device) -> AbstractContextManager[Any]:
    """The precision training runs in."""
    low = budget.precision == "bfloat16" or (budget.precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16, enabled=low)


class _Totals:
    """Running sums of an epoch, kept on the device so that no step waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(8, dtype=torch.float64, device=device)

    def add_step(self, loss: Tensor, hits: Tensor, n: int, weights: Tensor | None) -> None:
        new = [loss.detach().double() * n, hits.double(), torch.full_like(self.sums[0], n)]
        if weights is None:
            new += [torch.zeros_like(self.sums[0])] * 3
        else:
            w = weights.detach().double()
            new += [w.sum(), w.square().sum(), torch.full_like(self.sums[0], n)]
        self.sums[:6] += torch.stack(new)

    def add_outer(self, meta_loss: Tensor) -> None:
        self.sums[6] += meta_loss.double()
        self.sums[7] += 1

    def figures(self) -> dict[str, float]:
        """The means so far; this waits for the device."""
        loss, hits, n, w, w2, weighted, meta, outer = self.sums.tolist()
        figures = {"loss": loss / max(n, 1), "accuracy": hits / max(n, 1)}
        if outer:
            figures["meta_loss"] = meta / outer
        if weighted:
            mean = w / weighted
            figures["weight_mean"] = mean
            figures["weight_spread"] = math.sqrt(max(w2 / weighted - mean**2, 0.0))
        return figures


def train_epoch(
    state: TrainingState, method: Method, task: Task, budget: Budget, observer: Observer
) -> EpochRecord:
    """One epoch, from wherever the state is."""
    networks, feeds = state.networks, state.feeds
    total = budget.epochs * feeds.steps_per_epoch
    totals, began = _Totals(state.device), time.perf_counter()
    step = state.epoch * feeds.steps_per_epoch
    lr = 0.0
    parameters = [p for group in state.optimiser.param_groups for p in group["params"]]
    for batch in feeds.epoch(state.epoch):
        lr = learning_rate(budget, step, total)
        clock = Clock(step=step, total=total, steps_per_epoch=feeds.steps_per_epoch, lr=lr)
        if isinstance(method, Bilevel) and state.outer is not None and method.outer_due(clock):
            with autocast(budget, state.device):
                outer = method.outer_loss(networks, task, batch, feeds, clock)
            state.outer.zero_grad()
            outer.loss.backward()
            state.outer.step()
            totals.add_outer(outer.meta_loss)
        with (
            autocast(budget, state.device),
            mode(networks.classifier, dropout=True, statistics=False),
        ):
            result = method.loss(networks, task, batch, clock)
        for group in state.optimiser.param_groups:
            group["lr"] = lr
        state.optimiser.zero_grad()
        result.loss.backward()
        if budget.gradient_clip is not None:
            nn.utils.clip_grad_norm_(parameters, budget.gradient_clip)
        state.optimiser.step()
        hits = (result.logits.detach().argmax(-1) == batch.y).sum()
        totals.add_step(result.loss, hits, len(batch.y), result.weights)
        step += 1
        observer.stepped(step, totals.figures)
    figures = totals.figures()
    state.epoch += 1
    return EpochRecord(
        epoch=state.epoch,
        step=step,
        lr=lr,
        loss=figures["loss"],
        accuracy=figures["accuracy"],
        meta_loss=figures.get("meta_loss"),
        weight_mean=figures.get("weight_mean"),
        weight_spread=figures.get("weight_spread"),
        seconds=time.perf_counter() - began,
    )


def fit(
    state: TrainingState,
    method: Method,
    task: Task,
    budget: Budget,
    observer: Observer,
    checkpoint: Callable[[TrainingState], None] | None = None,
) -> list[EpochRecord]:
    """Train until the budget is spent.

    Args:
        state: new, or restored from a checkpoint.
        method: how.
        task: what.
        budget: how long; resolved.
        observer: is told of every step and epoch.
        checkpoint: is called after every epoch.

    Raises:
        InputError: the loss is no longer a number.
    """
    observer.started(
        step=state.epoch * state.feeds.steps_per_epoch,
        total=budget.epochs * state.feeds.steps_per_epoch,
        epochs=budget.epochs,
    )
    records = []
    while state.epoch < budget.epochs:
        record = train_epoch(state, method, task, budget, observer)
        if not math.isfinite(record.loss):
            msg = (
                f"training diverged in epoch {record.epoch}: the loss is {record.loss}; "
                f"lower learning_rate (now {budget.learning_rate:g})"
            )
            raise InputError(msg)
        records.append(record)
        if checkpoint is not None:
            checkpoint(state)
        observer.finished_epoch(record)
    return records

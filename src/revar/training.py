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
from torch.optim import Optimizer

from revar.errors import InputError
from revar.feeds import DataFeeds
from revar.functional import mode
from revar.methods.base import Bilevel, Method, Plan
from revar.methods.entropy import entropies
from revar.nets.finetuning import layer_rates
from revar.optimisers import learning_rate, make_optimiser, make_outer
from revar.parallel import world
from revar.recipe import Budget
from revar.sharded import sharing
from revar.types import Batch, Clock, Networks, Task

CHECKPOINT_SECONDS = 600.0
"""Longest time between two checkpoints, for epochs that take hours."""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One line of the log.

    Attributes:
        epoch: epochs done.
        step: steps done.
        lr: the learning rate of the last step.
        loss: mean training loss of the epoch.
        accuracy: of the training passes, dropout on, where there are classes.
        meta_loss: mean over the epoch's meta steps, if there were any.
        weight_mean: of the weights, if there were any.
        weight_spread: their standard deviation.
        seconds: the epoch took.
    """

    epoch: int
    step: int
    lr: float
    loss: float
    accuracy: float | None
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


class Totals:
    """Running sums of an epoch, kept on the device so that no step waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(8, dtype=torch.float64, device=device)

    def add_step(self, loss: Tensor, hits: Tensor | None, n: int, weights: Tensor | None) -> None:
        """Count a training step; hits of ``None`` leave the accuracy open."""
        right = self.sums[0] * torch.nan if hits is None else hits.double()
        new = [loss.detach().double() * n, right, torch.full_like(self.sums[0], n)]
        if weights is None:
            new += [torch.zeros_like(self.sums[0])] * 3
        else:
            w = weights.detach().double()
            new += [w.sum(), w.square().sum(), torch.full_like(self.sums[0], w.numel())]
        self.sums[:6] += torch.stack(new)

    def add_outer(self, meta_loss: Tensor) -> None:
        """Count a meta step."""
        self.sums[6] += meta_loss.double()
        self.sums[7] += 1

    def figures(self) -> dict[str, float]:
        """The means so far; this waits for the device."""
        loss, hits, n, w, w2, weighted, meta, outer = self.sums.tolist()
        figures = {"loss": loss / max(n, 1)}
        if not math.isnan(hits):
            figures["accuracy"] = hits / max(n, 1)
        if outer:
            figures["meta_loss"] = meta / outer
        if weighted:
            mean = w / weighted
            figures["weight_mean"] = mean
            figures["weight_spread"] = math.sqrt(max(w2 / weighted - mean**2, 0.0))
        return figures


@dataclass
class TrainingState:
    """Everything a resumed run needs to end with the same bits."""

    networks: Networks
    optimiser: Optimizer
    outer: Optimizer | None
    feeds: DataFeeds
    device: torch.device
    totals: Totals
    epoch: int = 0
    step_in_epoch: int = 0
    seconds: float = 0.0

    @property
    def step(self) -> int:
        """Steps done."""
        return self.epoch * self.feeds.steps_per_epoch + self.step_in_epoch


def new_state(
    method: Method,
    budget: Budget,
    networks: Networks,
    feeds: DataFeeds,
    device: torch.device,
    *,
    layer_decay: float = 1.0,
) -> TrainingState:
    """The state before the first step.

    Args:
        method: how to train.
        budget: resolved.
        networks: new, or started from trained weights; frozen parts are left alone.
        feeds: of batches.
        device: where they are.
        layer_decay: factor on the learning rate from each layer of the trunk to the one below.

    Raises:
        InputError: some phase of the method would never start, or several processes share a
            batch and the method differentiates what they cannot.
    """
    if world().size > 1 and getattr(method, "engine", "") == "double_backward":
        raise InputError("engine=double_backward runs in one process: use engine=forward_mode")
    if world().size > 1 and budget.micro_batch is not None:
        raise InputError("micro_batch is for one process: several share a batch already")
    plan = Plan(
        total=budget.epochs * feeds.steps_per_epoch,
        steps_per_epoch=feeds.steps_per_epoch,
        meta_size=feeds.meta_size,
        unlabelled_size=feeds.unlabelled_size,
    )
    method.check(plan)
    learners = [networks.classifier, *([networks.heads] if networks.heads is not None else [])]
    parameters = [p for net in learners for p in net.parameters() if p.requires_grad]
    scales = layer_rates(networks.classifier, layer_decay) if layer_decay < 1 else None
    optimiser = make_optimiser(budget, parameters, scales)
    outer = None
    if isinstance(method, Bilevel) and networks.scorer is not None:
        outer = make_outer(method.outer, list(networks.scorer.parameters()))
    return TrainingState(networks, optimiser, outer, feeds, device, Totals(device))


def autocast(budget: Budget, device: torch.device) -> AbstractContextManager[Any]:
    """The precision training runs in."""
    low = budget.precision == "bfloat16" or (budget.precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16, enabled=low)


class InterruptedRun(Exception):  # noqa: N818  (nothing went wrong: somebody asked for it)
    """The run was asked to stop, and its state is kept."""


def _clock(state: TrainingState, budget: Budget) -> Clock:
    steps = state.feeds.steps_per_epoch
    lr = learning_rate(budget, state.step, budget.epochs * steps)
    return Clock(step=state.step, total=budget.epochs * steps, steps_per_epoch=steps, lr=lr)


def _average_gradients(optimiser: Optimizer) -> None:
    """Make them those of the whole batch, where several processes share it."""
    if world().size == 1:
        return
    moved = [p for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
    for p, mean in zip(moved, world().average([p.grad for p in moved]), strict=True):
        p.grad = mean


def train_step(
    state: TrainingState, method: Method, task: Task, budget: Budget, batch: Batch
) -> None:
    """One step, the outer one first where it is due."""
    with sharing(len(batch.y)):
        _train_step(state, method, task, budget, batch)


def _train_step(
    state: TrainingState, method: Method, task: Task, budget: Budget, batch: Batch
) -> None:
    networks, feeds, totals = state.networks, state.feeds, state.totals
    clock = _clock(state, budget)
    lr = clock.lr
    if isinstance(method, Bilevel) and state.outer is not None and method.outer_due(clock):
        with autocast(budget, state.device):
            outer = method.outer_loss(networks, task, batch, feeds, clock)
        state.outer.zero_grad()
        outer.loss.backward()
        _average_gradients(state.outer)
        state.outer.step()
        totals.add_outer(outer.meta_loss)
    with (
        autocast(budget, state.device),
        mode(networks.classifier, dropout=True, statistics=False),
        mode(networks.heads or nn.Identity(), dropout=True, statistics=False),
    ):
        result = method.loss(networks, task, batch, feeds, clock)
        loss = result.loss
        if method.entropy > 0:
            penalties = entropies(result.logits, method.entropy_form)
            loss = loss + method.entropy * task.weighted(penalties, batch).mean()
    for group in state.optimiser.param_groups:
        group["lr"] = lr * group["scale"]
    state.optimiser.zero_grad()
    loss.backward()
    _average_gradients(state.optimiser)
    if budget.gradient_clip is not None:
        parameters = [p for group in state.optimiser.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(parameters, budget.gradient_clip)
    state.optimiser.step()
    totals.add_step(loss, task.hits(result.logits, batch), len(batch.y), result.weights)
    state.step_in_epoch += 1


def _end_epoch(state: TrainingState, budget: Budget) -> EpochRecord:
    """Close the books of an epoch and open those of the next."""
    figures = state.totals.figures()
    step = state.step
    lr = learning_rate(budget, step - 1, budget.epochs * state.feeds.steps_per_epoch)
    state.epoch, state.step_in_epoch = state.epoch + 1, 0
    record = EpochRecord(
        epoch=state.epoch,
        step=step,
        lr=lr,
        loss=figures["loss"],
        accuracy=figures.get("accuracy"),
        meta_loss=figures.get("meta_loss"),
        weight_mean=figures.get("weight_mean"),
        weight_spread=figures.get("weight_spread"),
        seconds=state.seconds,
    )
    state.totals.sums.zero_()
    state.seconds = 0.0
    return record


def fit(
    state: TrainingState,
    method: Method,
    task: Task,
    budget: Budget,
    observer: Observer,
    *,
    checkpoint: Callable[[TrainingState], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Train until the budget is spent.

    Args:
        state: new, or restored from a checkpoint, in the middle of an epoch too.
        method: how.
        task: what.
        budget: how long; resolved.
        observer: is told of every step and epoch.
        checkpoint: is called after every epoch, every ten minutes, and when asked to stop.
        stop: is asked after every step.

    Where several processes share every batch, all come here with equal states and do the same;
    one that is asked to stop stops all.

    Raises:
        InterruptedRun: it was asked to stop.
        LostProcess: another process died.
        InputError: the method cannot learn this task, or the loss is no longer a number.
    """
    method.check_task(task)
    total = budget.epochs * state.feeds.steps_per_epoch
    observer.started(step=state.step, total=total, epochs=budget.epochs)
    keep = checkpoint or (lambda _: None)
    kept_at = time.monotonic()
    while state.epoch < budget.epochs:
        began = time.perf_counter() - state.seconds
        for batch in state.feeds.epoch(state.epoch, start=state.step_in_epoch):
            train_step(state, method, task, budget, batch)
            state.seconds = time.perf_counter() - began
            observer.stepped(state.step, state.totals.figures)
            if stop is not None and world().any(stop()):
                keep(state)
                raise InterruptedRun
            if time.monotonic() - kept_at > CHECKPOINT_SECONDS:
                keep(state)
                kept_at = time.monotonic()
        with autocast(budget, state.device):
            method.finish_epoch(state.networks, task, state.feeds, _clock(state, budget))
        record = _end_epoch(state, budget)
        if not math.isfinite(record.loss):
            msg = (
                f"training diverged in epoch {record.epoch}: the loss is {record.loss}; "
                f"lower learning_rate (now {budget.learning_rate:g})"
            )
            raise InputError(msg)
        # The log first: an epoch that is trained again replaces its line, a lost one is lost.
        observer.finished_epoch(record)
        keep(state)
        kept_at = time.monotonic()
    # After the last checkpoint, so that a run resumed from it comes here too, and once.
    method.finish(state.networks)

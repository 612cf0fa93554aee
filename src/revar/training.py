"""The one loop: every method is trained here, and only here does an optimiser step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from revar.bilevel import Taken
from revar.devices import keep_memory
from revar.errors import InputError
from revar.feeds import DataFeeds
from revar.functional import mode, trainable
from revar.methods.base import Bilevel, Method, Plan, Scoring
from revar.methods.entropy import entropies
from revar.nets.finetuning import layer_rates
from revar.optimisers import (
    average_gradients,
    differentiate,
    learning_rate,
    make_optimiser,
    make_outer,
    rate_of,
)
from revar.parallel import world
from revar.randomness import RandomState, give_way
from revar.recipe import Budget
from revar.sharded import sharing
from revar.taken import derivatives_along, gradients
from revar.totals import EpochRecord, Totals
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task

CHECKPOINT_SECONDS = 600.0
"""Longest time between two checkpoints, for epochs that take hours."""


class Observer(Protocol):
    """Whoever watches a run."""

    def started(self, *, step: int, total: int, epochs: int) -> None:
        """Before the first step."""

    def stepped(self, step: int, figures: Callable[[], dict[str, float]]) -> None:
        """After every step; ``figures`` are those of some step before, or none yet."""

    def finished_epoch(self, record: EpochRecord) -> None:
        """After every epoch."""


@dataclass
class TrainingState:
    """Everything a resumed run needs to end with the same bits.

    Attributes:
        tables: what processes remember of examples together (`revar.rows`), whole on the host of
            the first one while a checkpoint is read or written; empty otherwise, and alone.
    """

    networks: Networks
    optimiser: Optimizer
    outer: Optimizer | None
    feeds: DataFeeds
    device: torch.device
    totals: Totals
    epoch: int = 0
    step_in_epoch: int = 0
    seconds: float = 0.0
    tables: dict[str, Tensor] = field(default_factory=dict)

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
        raise InputError(
            f"micro_batch={budget.micro_batch} is for one process, and there are {world().size}, "
            "which share a batch already: leave it out, or use recompute=true"
        )
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
    if isinstance(method, Scoring) and networks.scorer is not None:
        outer = make_outer(method.outer, list(networks.scorer.parameters()))
    keep_memory(device)
    return TrainingState(networks, optimiser, outer, feeds, device, Totals(device))


def autocast(budget: Budget, device: torch.device) -> AbstractContextManager[Any]:
    """The precision training runs in."""
    low = budget.precision == "bfloat16" or (budget.precision == "auto" and device.type == "cuda")
    if not low and not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, enabled=low)


class InterruptedRun(Exception):  # noqa: N818  (nothing went wrong: somebody asked for it)
    """The run was asked to stop, and its state is kept."""


def clock_of(state: TrainingState, budget: Budget) -> Clock:
    """Where the next step is."""
    steps = state.feeds.steps_per_epoch
    lr = learning_rate(budget, state.step, budget.epochs * steps)
    return Clock(step=state.step, total=budget.epochs * steps, steps_per_epoch=steps, lr=lr)


def _trained(heads: nn.Module | None) -> AbstractContextManager[None]:
    """Let them run as a step has it, where a method has some."""
    return nullcontext() if heads is None else mode(heads, dropout=True, statistics=False)


class Step(Protocol):
    """One step, counted."""

    def __call__(
        self, state: TrainingState, method: Method, task: Task, budget: Budget, batch: Batch
    ) -> None:
        """Take it."""


def train_step(
    state: TrainingState, method: Method, task: Task, budget: Budget, batch: Batch
) -> None:
    """One step, the outer one too where it is due."""
    take_step(state, method, task, budget, batch, state.feeds, clock_of(state, budget))
    state.step_in_epoch += 1


def outer_due(state: TrainingState, method: Method, clock: Clock) -> bool:
    """Whether the scorer is updated in this step."""
    return isinstance(method, Bilevel) and state.outer is not None and method.outer_due(clock)


def take_step(
    state: TrainingState,
    method: Method,
    task: Task,
    budget: Budget,
    batch: Batch,
    feeds: Feeds,
    clock: Clock,
) -> None:
    """What the device does in one step; counting it is left to the caller.

    Args:
        state: to move.
        method: how.
        task: what.
        budget: resolved.
        batch: of the step.
        feeds: where the method takes further batches from.
        clock: of the step; its learning rate may be a number on the device.
    """
    with sharing(len(batch.y)):
        _take_step(state, method, task, budget, batch, feeds, clock)


def _take_step(
    state: TrainingState,
    method: Method,
    task: Task,
    budget: Budget,
    batch: Batch,
    feeds: Feeds,
    clock: Clock,
) -> None:
    networks, totals = state.networks, state.totals
    due = outer_due(state, method, clock)
    shared = due and isinstance(method, Bilevel) and method.shares_gradient
    start = RandomState.capture(state.device) if shared else None
    if due and not shared:
        _take_outer_step(state, method, task, budget, batch, feeds, clock, None)
    with (
        autocast(budget, state.device),
        mode(networks.classifier, dropout=True, statistics=False),
        _trained(networks.heads),
    ):
        result = method.loss(networks, task, batch, feeds, clock)
        loss = result.loss
        if method.entropy > 0:
            penalties = entropies(result.logits, method.entropy_form)
            loss = loss + method.entropy * task.weighted(penalties, batch).mean()
    for group in state.optimiser.param_groups:
        group["lr"] = rate_of(clock.lr, group)
    trained = {} if start is None else trainable(networks.classifier)
    followed = start is not None and getattr(method, "engine", "") == "forward_mode"
    along = derivatives_along(result, trained, task, batch) if followed else None
    state.optimiser.zero_grad()
    loss.backward()
    average_gradients(state.optimiser)
    if start is not None:
        taken = Taken(gradients(trained), start, along)
        _take_outer_step(state, method, task, budget, batch, feeds, clock, (result, taken))
    if result.teaching is not None:
        _teach(state, method, budget, result.teaching, clock)
    if budget.gradient_clip is not None:
        parameters = [p for group in state.optimiser.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(parameters, budget.gradient_clip)
    state.optimiser.step()
    totals.add_step(loss, task.hits(result.logits, batch), len(batch.y), result.weights)


def _teach(
    state: TrainingState, method: Method, budget: Budget, teaching: Tensor, clock: Clock
) -> None:
    """Move the scorer by a loss of the same step."""
    assert isinstance(method, Scoring)
    assert state.outer is not None
    assert budget.learning_rate is not None
    scale = method.outer.learning_rate / budget.learning_rate
    for group in state.outer.param_groups:
        group["lr"] = rate_of(clock.lr, {**group, "scale": scale})
    differentiate(teaching, state.outer)
    average_gradients(state.outer)
    state.outer.step()


def _take_outer_step(
    state: TrainingState,
    method: Method,
    task: Task,
    budget: Budget,
    batch: Batch,
    feeds: Feeds,
    clock: Clock,
    taken: tuple[StepResult, Taken] | None,
) -> None:
    """Move the scorer."""
    assert isinstance(method, Bilevel)
    assert state.outer is not None
    with autocast(budget, state.device):
        outer = method.outer_loss(state.networks, task, batch, feeds, clock, taken)
    differentiate(outer.loss, state.outer)
    average_gradients(state.outer)
    state.outer.step()
    state.totals.add_outer(outer.meta_loss)


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
    state.totals.begin()
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
    step: Step | None = None,
) -> None:
    """Train until the budget is spent.

    Args:
        state: new, or restored from a checkpoint, in the middle of an epoch too.
        method: how.
        task: what.
        budget: how long; resolved.
        observer: is told of every step and epoch.
        checkpoint: is called after every epoch, every ten minutes, and when asked to stop; by
            all processes at the same step.
        stop: is asked after every step.
        step: how one is taken, if not by `train_step`.

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
    take = step or train_step
    kept_at = time.monotonic()
    while state.epoch < budget.epochs:
        began = time.perf_counter() - state.seconds
        for batch in state.feeds.epoch(state.epoch, start=state.step_in_epoch):
            take(state, method, task, budget, batch)
            state.seconds = time.perf_counter() - began
            observer.stepped(state.step, state.totals.recent)
            give_way(state.device)
            if stop is None and checkpoint is None:
                continue
            late = time.monotonic() - kept_at > CHECKPOINT_SECONDS
            # All keep a state or none: they have clocks of their own, and parts of it.
            asked, due = world().any_of(stop is not None and stop(), late)
            if asked:
                keep(state)
                raise InterruptedRun
            if due:
                keep(state)
                kept_at = time.monotonic()
        with autocast(budget, state.device):
            method.finish_epoch(state.networks, task, state.feeds, clock_of(state, budget))
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

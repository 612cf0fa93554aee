"""A training step as the look-ahead of a meta step: its gradient, and what its graph tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from revar.bilevel import directional_derivative
from revar.functional import Params, at_least_single
from revar.parallel import world
from revar.retraced import traced
from revar.types import Batch, StepResult, Task


def derivatives_along(
    result: StepResult, trained: Mapping[str, nn.Parameter], task: Task, batch: Batch
) -> Callable[[Params], Tensor] | None:
    """See `Taken`, of a step whose losses are aligned; before its graph is gone."""
    trace = None
    if result.scored is not None and world().size == 1:
        trace = traced(result.logits, trained)
    if trace is None:
        return None
    logits, moved_by = at_least_single(result.logits.detach()), trace.tangent

    @torch.no_grad()
    def along(direction: Params) -> Tensor:
        tangent = moved_by(direction)
        if tangent is None:
            return torch.zeros_like(task.losses(logits, batch))
        tangent = at_least_single(tangent)
        slopes = task.slopes(logits, tangent, batch)
        if slopes is not None:
            return slopes
        return directional_derivative(
            lambda at: task.losses(at["logits"], batch), {"logits": logits}, {"logits": tangent}
        )

    return along


def gradients(trained: Mapping[str, nn.Parameter]) -> Params:
    """By the name of the parameter; zero where the loss does not reach."""
    return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in trained.items()}

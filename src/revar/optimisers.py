"""Optimisers and the learning rate, as the recipe says, and the gradients they take.

Where they can, parameters move in one call for each group of them. On a CPU that rounds as torch's
loops do, but for the last few numbers of a parameter, which do not fill a vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from revar.errors import InputError
from revar.functional import Rate
from revar.methods.base import OuterOptimiser
from revar.parallel import world
from revar.recipe import Budget


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


def make_optimiser(
    budget: Budget,
    parameters: list[nn.Parameter],
    scales: Mapping[nn.Parameter, float] | None = None,
) -> Optimizer:
    """The classifier's optimiser; biases and norms are not decayed.

    Args:
        budget: resolved.
        parameters: to be trained.
        scales: factors on the learning rate; 1 for what is not in it. Each group of parameters
            keeps its own as ``scale``.

    Raises:
        InputError: there are none.
    """
    if not parameters:
        msg = "all parameters of the network are frozen: unfreeze some, net.requires_grad_(True)"
        raise InputError(msg)
    rate = budget.learning_rate
    assert rate is not None
    fused = _fused(parameters)
    scale_of = {p: (scales or {}).get(p, 1.0) for p in parameters}
    groups = []
    for scale in sorted(set(scale_of.values())):
        alike = [p for p in parameters if scale_of[p] == scale]
        shared = {"lr": rate * scale, "scale": scale}
        matrices, vectors = [p for p in alike if p.ndim > 1], [p for p in alike if p.ndim <= 1]
        groups += [
            {"params": matrices, "weight_decay": budget.weight_decay, **shared},
            {"params": vectors, "weight_decay": 0.0, **shared},
        ]
    groups = [group for group in groups if group["params"]]
    if budget.optimiser == "sgd":
        momentum = budget.momentum
        fused = fused or _fit_one_call(parameters) or None
        return at_rest(SGD(groups, lr=rate, momentum=momentum, nesterov=momentum > 0, fused=fused))
    return AdamW(groups, lr=rate, fused=fused, capturable=bool(fused))


def make_outer(spec: OuterOptimiser, parameters: list[nn.Parameter]) -> Optimizer:
    """The scorer's optimiser."""
    rate, decay, fused = spec.learning_rate, spec.weight_decay, _fused(parameters)
    if spec.name == "adam":
        recorded = bool(fused)
        return Adam(parameters, lr=rate, weight_decay=decay, fused=fused, capturable=recorded)
    momentum = spec.momentum
    # Gradients come here by `differentiate`, in whatever order: layers of which none has its own.
    plain = all(p.ndim <= 2 for p in parameters) and _fit_one_call(parameters)
    fused = fused or plain or None
    return at_rest(SGD(parameters, lr=rate, momentum=momentum, weight_decay=decay, fused=fused))


def _fused(parameters: list[nn.Parameter]) -> bool | None:
    """On a GPU all parameters move in one kernel, which a recorded step can hold."""
    return True if all(p.is_cuda for p in parameters) else None


def _fit_one_call(parameters: list[nn.Parameter]) -> bool:
    """Whether the CPU's kernel moves them: it takes the memory of each as one row of real numbers.

    Gradients lie there as parameters do, if those leave no gaps: a backward pass sees to it. Sparse
    ones it does not take.
    """
    return all(
        p.device.type == "cpu"
        and p.dtype in (torch.float32, torch.float64)
        and p.stride() == torch.empty_like(p, device="meta").stride()
        for p in parameters
    )


def at_rest(optimiser: Optimizer) -> Optimizer:
    """Velocities of zero where there are none, for the fused kernel; it steps to the same bits.

    Left to itself it makes them in the first step, of the parameters that have a gradient then,
    and fails at the first that has one later, as a head does that does not train at once.
    """
    for group in optimiser.param_groups:
        if group["fused"] and group.get("momentum"):
            for parameter in group["params"]:
                optimiser.state[parameter].setdefault(
                    "momentum_buffer", torch.zeros_like(parameter)
                )
    return optimiser


def rate_of(lr: Rate, group: dict[str, Any]) -> Rate:
    """Of a group of parameters, rounded as in a recorded step, where it is of their type."""
    scale: float = group["scale"]
    if isinstance(lr, Tensor) or group["params"][0].dtype != torch.float32:
        return lr * scale
    return float(np.float32(lr) * np.float32(scale))


def differentiate(loss: Tensor, optimiser: Optimizer) -> None:
    """The gradient of a loss, where an optimiser looks for it; none where it does not reach.

    As ``zero_grad`` and ``backward`` leave it, which take longer for a scorer of a few layers. On a
    GPU they do it: they see to it that gradients lie as parameters do, which the optimiser needs.
    """
    if loss.device.type != "cpu":
        optimiser.zero_grad()
        loss.backward()
        return
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def average_gradients(optimiser: Optimizer) -> None:
    """Make them those of the whole batch, where several processes share it."""
    if world().size == 1:
        return
    groups = optimiser.param_groups
    found = [p.grad for group in groups for p in group["params"] if p.grad is not None]
    # Into their places: on a GPU an optimiser needs gradients in the layout of the parameters.
    if found:
        torch._foreach_copy_(found, list(world().average(found)))

"""A training state as named tensors and plain numbers, and back, bit for bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from revar.optimisers import at_rest
from revar.randomness import RandomState
from revar.rows import shared_rows
from revar.training import TrainingState

Tensors = dict[str, Tensor]


def _optimiser_tensors(optimiser: Optimizer, prefix: str) -> Tensors:
    """The state of every parameter; all optimisers of ours keep tensors only."""
    state: dict[int, dict[str, Any]] = optimiser.state_dict()["state"]
    return {
        f"{prefix}.{number}.{key}": value.detach().cpu()
        for number, values in state.items()
        for key, value in values.items()
        if isinstance(value, Tensor)
    }


def _load_optimiser(optimiser: Optimizer, tensors: Tensors, prefix: str) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        owner, _, rest = name.partition(".")
        if owner == prefix:
            number, _, key = rest.partition(".")
            state.setdefault(int(number), {})[key] = value
    optimiser.load_state_dict(
        {"state": state, "param_groups": optimiser.state_dict()["param_groups"]}
    )
    # Files keep no layout, and kernels for all parameters at once need that of the parameter.
    for parameter, values in optimiser.state.items():
        for key, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                values[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    at_rest(optimiser)


def weights_of(state: TrainingState) -> Tensors:
    """What is learned and remembered; of tables that processes share, those put together."""
    parts, found = shared_rows(state.networks), state.networks.state_dict()
    whole = {name: value.detach().cpu() for name, value in found.items() if name not in parts}
    return {**whole, **state.tables}


def progress_of(state: TrainingState) -> tuple[Tensors, dict[str, Any]]:
    """Optimisers and generators as tensors, the rest as JSON."""
    tensors = _optimiser_tensors(state.optimiser, "inner")
    if state.outer is not None:
        tensors.update(_optimiser_tensors(state.outer, "outer"))
    random = RandomState.capture(state.device)
    tensors["random.cpu"] = random.cpu
    if isinstance(random.cuda, Tensor):
        tensors["random.cuda"] = random.cuda
    tensors["epoch.sums"] = state.totals.sums.cpu()
    plain = {
        "epoch": state.epoch,
        "step_in_epoch": state.step_in_epoch,
        "seconds": state.seconds,
        "feeds": state.feeds.state(),
    }
    return tensors, plain


def restore(
    state: TrainingState, weights: Tensors, tensors: Tensors, plain: dict[str, Any]
) -> None:
    """Bring a new state to where another one was.

    Tables that processes share are left in ``state.tables``, for all of them to take their rows.
    """
    parts = shared_rows(state.networks)
    state.tables = {name: weights[name] for name in parts if name in weights}
    state.networks.load_state_dict({**weights, **parts})
    _load_optimiser(state.optimiser, tensors, "inner")
    if state.outer is not None:
        _load_optimiser(state.outer, tensors, "outer")
    state.feeds.load(plain["feeds"])
    state.epoch, state.step_in_epoch = plain["epoch"], plain["step_in_epoch"]
    state.seconds = plain["seconds"]
    state.totals.sums.copy_(tensors["epoch.sums"])
    cuda = tensors.get("random.cuda") if state.device.type == "cuda" else None
    RandomState(tensors["random.cpu"], cuda, state.device).restore()


def to_device(networks: torch.nn.Module, device: torch.device) -> None:
    """Move networks; image networks on GPUs keep channels last, which convolutions prefer."""
    networks.to(device)
    if device.type == "cuda":
        networks.to(memory_format=torch.channels_last)

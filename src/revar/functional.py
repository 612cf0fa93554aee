"""A network as a function of its parameters, its buffers left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _NormBase

Params = dict[str, Tensor]
"""Parameters by their dotted name."""
Rate = float | Tensor
"""A learning rate: a number, or one on the device, where a recorded step reads it."""
_KEPT = "_statistics_kept"
"""Marks batch norm whose running statistics are final."""


class _Part(nn.Module):
    """Gives `functional_call` a way to any method of a network, not only its `forward`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, part: str, *inputs: Tensor) -> Tensor:
        output: Tensor = getattr(self.net, part)(*inputs)
        return output


def parameters(net: nn.Module) -> Params:
    """The trainable parameters of a network, detached: a point to differentiate at."""
    return {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}


def call(net: nn.Module, params: Params | None, *inputs: Tensor, part: str = "forward") -> Tensor:
    """``net.part(*inputs)`` with ``params`` in place of its own.

    Buffers are handed over as copies, so batch-norm statistics that the pass would update are
    the copies'; the network keeps its own. With ``params=None`` the network runs as it is.
    """
    if params is None:
        output: Tensor = getattr(net, part)(*inputs)
        return output
    state = {f"net.{name}": value for name, value in params.items()}
    state.update({f"net.{name}": copy for name, copy in _copies(dict(net.named_buffers())).items()})
    result: Tensor = functional_call(_Part(net), state, (part, *inputs))
    return result


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of all of them, those of a kind at once: a net has hundreds of small ones."""
    copies = {name: torch.empty_like(value) for name, value in tensors.items()}
    kinds: dict[tuple[torch.dtype, torch.device], list[str]] = {}
    for name, value in tensors.items():
        kinds.setdefault((value.dtype, value.device), []).append(name)
    for names in kinds.values():
        torch._foreach_copy_([copies[n] for n in names], [tensors[n].detach() for n in names])
    return copies


def flat_state(net: nn.Module) -> Tensor:
    """[P] every real number of a network's state, parameters and statistics, end to end."""
    real = [value for value in net.state_dict().values() if value.is_floating_point()]
    return torch.cat([value.flatten() for value in real])


def load_flat_state(net: nn.Module, flat: Tensor) -> None:
    """Put the numbers of `flat_state` back."""
    real = [value for value in net.state_dict().values() if value.is_floating_point()]
    for value, part in zip(real, flat.split([v.numel() for v in real]), strict=True):
        value.copy_(part.view(value.shape))


def at_least_single(x: Tensor) -> Tensor:
    """Half precision, as autocast leaves it, to float32; anything finer as it is."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def average(values: Tensor) -> Tensor:
    """The mean over examples, the first axis, as a scalar; runs side by side are summed.

    Runs that train side by side lie along the axes after the first. They share no parameter, so
    the gradient of the sum is that of each run's own mean.
    """
    return values.mean(0).sum()


def keep_statistics(net: nn.Module) -> None:
    """Let batch norm keep to its running statistics for good, whatever `mode` asks for."""
    for module in net.modules():
        if isinstance(module, _NormBase):
            setattr(module, _KEPT, True)


@contextmanager
def mode(net: nn.Module, *, dropout: bool, statistics: bool) -> Iterator[None]:
    """Run a network with dropout on or off, normalising by the batch or by its statistics.

    ``dropout=True, statistics=True`` is Monte-Carlo dropout: every random layer is on while
    batch norm uses its running statistics. ``statistics=False`` makes batch norm use the batch
    (and update its running statistics, unless `call` hands it copies); after
    `keep_statistics` it uses those all the same. All flags come back.
    """
    # Straight into their attributes: a module's own way to set one costs more than a small layer.
    flags = [(vars(module), module.training, module) for module in net.modules()]
    try:
        for attributes, _, module in flags:
            if isinstance(module, _NormBase):
                wanted = not statistics and not getattr(module, _KEPT, False)
            else:
                wanted = dropout
            attributes["training"] = wanted
        yield
    finally:
        for attributes, training, _ in flags:
            attributes["training"] = training

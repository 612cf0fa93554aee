"""A part of a network as it is now, to be run once more when the network is in another state.

What a backward pass computes again (`torch.utils.checkpoint`) runs later than what it repeats, and
outside of every block around that. By then parameters put in place for one call are gone
(`revar.functional.placed`), flags are switched back (`revar.functional.mode`), and so are joint
layers of several processes and batch norm of the meta step. Buffers have moved on: they are put
back as they were, in copies, so that batch norm counts the same rows once. Generators go back to
where they were: not by `torch.utils.checkpoint`, whose way cannot be recorded (`revar.spares`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from revar.dual_norm import current_norm, usual_norm
from revar.functional import copied
from revar.randomness import RandomState
from revar.sharded import current, using

_Place = tuple[dict[str, Any], str, Tensor]
"""What holds a tensor, by which key, and the tensor."""


def computed_again(net: nn.Module, function: Callable[..., Any], *inputs: Any) -> Any:
    """``function(*inputs)``, of which nothing is kept: the backward pass computes it again.

    Args:
        net: everything whose state the function reads or writes.
        function: of tensors.
        inputs: its arguments.
    """
    again = Again(net, function)
    return checkpoint(again, *inputs, use_reentrant=False, preserve_rng_state=False)


class Again:
    """Runs a function of a network: once as it is, from then on as it was the first time.

    Args:
        net: everything whose state the function reads or writes.
        function: of tensors.
    """

    def __init__(self, net: nn.Module, function: Callable[..., Any]) -> None:
        self._function = function
        modules = list(net.modules())
        self._flags = [(module, module.training) for module in modules]
        self._parameters = _places([module._parameters for module in modules])
        buffers = _places([module._buffers for module in modules])
        copies = copied([buffer for _, _, buffer in buffers])
        self._buffers = [(*place[:2], copy) for place, copy in zip(buffers, copies, strict=True)]
        self._share, self._norm = current(), current_norm()
        self._device = next(net.parameters()).device
        self._start: RandomState | None = None

    def __call__(self, *inputs: Any) -> Any:
        """What the function says."""
        if self._start is None:
            self._start = RandomState.capture(self._device)
            return self._function(*inputs)
        with self._start.again(), self.as_it_was():
            return self._function(*inputs)

    @contextmanager
    def as_it_was(self) -> Iterator[None]:
        """A block in which the network is as it was; it may be entered again and again."""
        flags = [(module, module.training) for module, _ in self._flags]
        copies = copied([buffer for _, _, buffer in self._buffers])
        buffers = [(*p[:2], copy) for p, copy in zip(self._buffers, copies, strict=True)]
        places = [*self._parameters, *buffers]
        before = [(tensors, key, tensors[key]) for tensors, key, _ in places]
        try:
            _set(self._flags)
            _put(places)
            with using(self._share), usual_norm() if self._norm is None else self._norm():
                yield
        finally:
            _put(before)
            _set(flags)


def _places(holders: Iterable[dict[str, Any]]) -> list[_Place]:
    return [
        (tensors, key, value)
        for tensors in holders
        for key, value in tensors.items()
        if value is not None
    ]


def _put(places: list[_Place]) -> None:
    for tensors, key, value in places:
        tensors[key] = value


def _set(flags: list[tuple[nn.Module, bool]]) -> None:
    for module, training in flags:
        vars(module)["training"] = training

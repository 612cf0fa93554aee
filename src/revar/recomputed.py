"""Deep networks in little memory: what lies inside a block is computed again in the backward pass.

The inputs of blocks are kept, and the inside of one at a time comes back (Chen et al. 2016,
"Training deep nets with sublinear memory cost"). There n layers make sqrt(n) blocks; here blocks
are parts that the network has already, often more and smaller ones. Each sees the whole batch both
times, with the same masks: batch norm and dropout are what they are without it, and so are gradient
and hypergradient, to the bit. Random numbers from elsewhere than torch, and what a block writes
down in Python, are not put back.

A block is what has at least two layers, a layer being whatever has parameters of its own: a
residual block, a layer of a transformer, a convolution with its norm. What has more than sqrt(n) is
taken apart, where that leaves blocks of most of it; up to twice as many stay whole if only pairs
would be left. Layers that follow each other in an ``nn.Sequential`` are put together to blocks. A
network without any runs as usual: one of a few layers, or a module that calls all its layers
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isqrt
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_unflatten

from revar.again import Again, computed_again
from revar.randomness import preserved

Forward = Callable[..., Any]


@contextmanager
def recomputed(net: nn.Module, *, wanted: bool = True) -> Iterator[None]:
    """Let the backward pass compute again what lies inside the blocks of a network."""
    blocks = recomputing(net) if wanted else []
    before = [(vars(module), vars(module).get("forward")) for module, _ in blocks]
    try:
        for module, forward in blocks:
            module.forward = forward
        yield
    finally:
        for attributes, own in before:
            attributes.pop("forward", None)
            if own is not None:
                attributes["forward"] = own


def recomputing(net: nn.Module) -> list[tuple[nn.Module, Forward]]:
    """The modules of a network that are run otherwise, and how.

    They are its blocks, and each ``nn.Sequential`` some layers of which are put together.
    """
    total = _layers(net)
    most = max(2, isqrt(total))
    seen: set[nn.Module] = set()

    def inside(module: nn.Module) -> tuple[list[tuple[nn.Module, Forward]], int]:
        """Of a module, and the number of layers that lie in blocks."""
        found: list[tuple[nn.Module, Forward]] = []
        covered = 0
        if isinstance(module, nn.Sequential) and _is_plain(module):
            pieces = _pieces(list(module), most)
            covered = sum(_layers(p.module) for p in pieces if isinstance(p, _Block))
            if covered:
                found.append((module, _OneByOne(module, pieces)))
        for child in module.children():
            if child in seen or isinstance(child, torch.jit.ScriptModule):
                continue
            seen.add(child)
            count = _layers(child)
            # What is no more than a list, an `nn.ModuleList`, is never called.
            is_called = type(child).forward is not nn.Module.forward
            within, of_them = inside(child) if count > most or not is_called else ([], 0)
            # Pairs, such as a convolution and its norm, keep half of what there is.
            pairs = count <= 2 * most and of_them <= 2 * len(within)
            # What holds most of the network is no block: all of it would come back at once.
            if is_called and 1 < count <= total / 2 and (pairs or 2 * of_them < count):
                within, of_them = [(child, _Block(child))], count
            found += within
            covered += of_them
        return found, covered

    return inside(net)[0]


def _is_plain(module: nn.Sequential) -> bool:
    """Whether it calls its modules one after the other and does nothing else."""
    # Copies made within `recomputed` have the usual method among their attributes.
    return bool(module.forward == MethodType(nn.Sequential.forward, module))


def _layers(net: nn.Module) -> int:
    """Modules with parameters of their own."""
    return sum(any(True for _ in m.parameters(recurse=False)) for m in net.modules())


def _pieces(modules: list[nn.Module], most: int) -> list[Forward]:
    """What follows each other, single layers put together to blocks."""
    pieces: list[Forward] = []
    run: list[nn.Module] = []

    def close() -> None:
        together = nn.Sequential(*run)
        # One layer alone keeps no more than its input.
        pieces.extend([_Block(together)] if _layers(together) > 1 else run)
        run.clear()

    for module in modules:
        count = _layers(module)
        if count > 1 or sum(map(_layers, run)) + count > most:
            close()
        if count > 1:
            pieces.append(module)
        else:
            run.append(module)
    close()
    return pieces


class _Instead:
    """What stands in place of a module's ``forward`` for a while; copies get their own back."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self._forward = module, module.forward

    def around(self, forward: Forward) -> Forward:
        """Another pass in place of the module's own."""
        return forward

    def __reduce__(self) -> tuple[Callable[[Forward], Forward], tuple[Forward]]:
        # A copy outlives the block, and has layers of its own, which its own method finds.
        return _itself, (self._forward,)


def _itself(forward: Forward) -> Forward:
    return forward


class _OneByOne(_Instead):
    """An ``nn.Sequential`` some layers of which are put together."""

    def __init__(self, module: nn.Module, pieces: list[Forward]) -> None:
        super().__init__(module)
        self.pieces = pieces

    def __call__(self, input: Any) -> Any:  # noqa: A002  (as in torch, it may come by keyword)
        """One piece after the other."""
        for piece in self.pieces:
            input = piece(input)  # noqa: A001
        return input


class _Block(_Instead):
    """A part of a network whose inside is not kept."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self._overwrites: dict[tuple[bool, ...], bool] = {}

    def around(self, forward: Forward) -> Forward:
        """Another pass, of whose inside nothing is kept either; it overwrites no more."""
        other = _Block(self.module)
        other._forward, other._overwrites = forward, self._overwrites
        return other

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """As the module itself says."""
        # Forward mode, too, keeps nothing and runs without gradients.
        if not torch.is_grad_enabled():
            return self._forward(*inputs, **named)
        # Lists are taken apart: a caller may lengthen them, as dense networks do.
        leaves, form = tree_flatten((inputs, named))

        def run(*leaves: Any) -> Any:
            inputs, named = tree_unflatten(leaves, form)
            return self._forward(*inputs, **named)

        # Tried in each mode: dropout in place overwrites only while it is on.
        flags = tuple(module.training for module in self.module.modules())
        if flags not in self._overwrites:
            self._overwrites[flags] = _overwrites(self.module, run, leaves)
        if self._overwrites[flags]:
            return run(*leaves)
        return computed_again(self.module, run, *leaves)


def _overwrites(module: nn.Module, run: Forward, leaves: list[Any]) -> bool:
    """Whether a block writes into its inputs, which then cannot be used again; tried as it is."""
    copies = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    tensors = [copy for copy in copies if isinstance(copy, Tensor)]
    before = [tensor._version for tensor in tensors]
    device = next(module.parameters()).device
    # Kept nowhere: whoever counts what is kept, to compute it again, would miss it the next time.
    # Not without gradients, or autocast would remember rounded weights that have none.
    nothing = saved_tensors_hooks(lambda _: None, lambda _: torch.empty(0))
    with preserved(device), Again(module, run).as_it_was(), nothing:
        run(*copies)
    return before != [tensor._version for tensor in tensors]

"""Dropout, wherever a network calls it: a layer of torch, or a function as in timm's ResNets."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)
"""Dropout inside fused attention is none of these: no mask of it is visible."""


class InsteadOfDropout(TorchFunctionMode):
    """A block in which dropout is something else, and everything else is itself."""

    @abstractmethod
    def drop(self, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """What is done instead of ``func(*args, **kwargs)``, one of `DROPOUTS`."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace dropout, pass everything else through."""
        kwargs = kwargs or {}
        if func in DROPOUTS:
            return self.drop(func, *args, **kwargs)
        return func(*args, **kwargs)


def _drawn_alike() -> bool:
    """Whether torch draws a mask on this machine as `mask` does: from one double each number.

    On some processors it has a kernel that draws otherwise.
    """
    mine, theirs = (torch.Generator("cpu").manual_seed(0) for _ in range(2))
    doubles = torch.empty(1000, dtype=torch.float64, device="cpu").uniform_(generator=mine)
    kept = torch.empty(1000, device="cpu").bernoulli_(0.7, generator=theirs)
    same = torch.equal(kept, (doubles < 0.7).to(kept.dtype))
    return same and torch.equal(mine.get_state(), theirs.get_state())


_AT_ONCE = 1 << 14
"""Numbers that stay in a core's cache, and are not shared out among threads."""
# Once, and not in a step: to compare tensors there is to wait for them.
_ALIKE = _drawn_alike()


class _Drawn(threading.local):
    """Room for numbers while a mask is made of them, one for each thread.

    Kept: what was not used for some steps has left the cache, and comes back slowly.
    """

    def __init__(self) -> None:
        self.numbers = torch.empty(_AT_ONCE, dtype=torch.float64, device="cpu")
        self.longs = torch.empty(_AT_ONCE // 4, dtype=torch.int64, device="cpu")


_drawn = _Drawn()


def mask(func: Callable[..., Tensor], like: Tensor, p: float) -> Tensor:
    """What ``func``, one of `DROPOUTS`, multiplies by, drawn from the default generator as it does.

    Torch's kernel for the CPU takes a branch for every number that it draws: to draw many first and
    compare them then takes half the time.
    """
    made = torch.empty_like(like)
    if not (_ALIKE and func is F.dropout and _plain(made) and 0 < p < 1):
        return func(torch.ones_like(like), p, True)
    doubles = _drawn.numbers
    for part in made.view(-1).split(_AT_ONCE):
        torch.lt(doubles[: len(part)].uniform_(), 1 - p, out=part).div_(1 - p)
    return made


def _plain(x: Tensor) -> bool:
    """Whether its numbers lie in their order on the CPU."""
    return x.device.type == "cpu" and x.is_contiguous() and x.numel() > 0


_WORD = 1 << 16
_COARSEST = 1e-3
"""A rate, or a share kept, below this is too coarse in so few bits."""


def few_bits_do(device: torch.device, p: float) -> bool:
    """Whether `kept` draws masks of such a rate there: on a GPU torch's own are as quick."""
    return device.type == "cpu" and _COARSEST <= p <= 1 - _COARSEST


def kept(shape: Sequence[int], p: float) -> tuple[Tensor, float]:
    """Which numbers dropout leaves, and what it multiplies these by; of 16 random bits each.

    T dropout passes of a small net take longer to draw masks than for all the rest, and torch draws
    64 bits for every number of one. The rate is ``p`` to half of 2^-16, and the factor that of the
    rate which it is, so that the mean is kept. From the default generator, but other numbers than
    dropout of torch draws.

    Args:
        shape: of the mask.
        p: rate, one that `few_bits_do`.

    Returns:
        0 and 1, as bytes: torch is slow to multiply by what is true or false. And the factor.
    """
    below = round((1 - p) * _WORD)
    left = torch.empty(*shape, dtype=torch.uint8, device="cpu")
    # By NumPy: torch has few functions of numbers without a sign.
    places = left.view(-1).numpy().view(np.bool_)
    words = _drawn.longs.numpy().view(np.uint16)
    for start in range(0, len(places), len(words)):
        part = places[start : start + len(words)]
        _drawn.longs.random_(-(2**63), None)
        np.less(words[: len(part)], np.uint16(below), out=part)
    return left, _WORD / below


class FewBits(InsteadOfDropout):
    """A block in which dropout draws its masks by `kept`."""

    def drop(
        self,
        func: Callable[..., Tensor],
        input: Tensor,  # noqa: A002  (named as in torch.nn.functional, it may come by keyword)
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        """Where it drops single numbers on the CPU; else as it is."""
        if not training or inplace or func is not F.dropout or not few_bits_do(input.device, p):
            return func(input, p, training, inplace)
        left, factor = kept(input.shape, p)
        return input * left * factor

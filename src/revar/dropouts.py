"""Dropout, wherever a network calls it: a layer of torch, or a function as in timm's ResNets."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from typing import Any

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
    kept, expected = (torch.empty(1000, device="cpu") for _ in range(2))
    _draw(kept, 0.7, mine)
    expected.bernoulli_(0.7, generator=theirs)
    return torch.equal(kept, expected) and torch.equal(mine.get_state(), theirs.get_state())


_AT_ONCE = 1 << 14
"""Numbers that stay in a core's cache, and are not shared out among threads."""
_BITS = 53
"""Of a double in [0, 1)."""


class _Drawn(threading.local):
    """Room for numbers while a mask is made of them, one for each thread.

    Kept: what was not used for some steps has left the cache, and comes back slowly.
    """

    def __init__(self) -> None:
        # Numbers made while others only infer could never be written again.
        with torch.inference_mode(mode=False):
            self.numbers = torch.empty(_AT_ONCE, dtype=torch.int64, device="cpu")


_drawn = _Drawn()


def _draw(made: Tensor, share: float, generator: torch.Generator | None = None) -> None:
    """1 where a double, drawn for each number, lies below a share, and 0 elsewhere.

    The bits that a double would be made of are compared as whole numbers: not to make doubles
    saves a seventh of the time.

    Args:
        made: [n] of any type, to be written.
        share: in (0, 1).
        generator: ``None`` takes the default one.
    """
    below = ceil(share * 2**_BITS)
    for part in made.split(_AT_ONCE):
        whole = _drawn.numbers[: len(part)].random_(generator=generator)
        torch.lt(whole.bitwise_and_(2**_BITS - 1), below, out=part)


# Once, and not in a step: to compare tensors there is to wait for them.
_ALIKE = _drawn_alike()


def mask(func: Callable[..., Tensor], like: Tensor, p: float) -> Tensor:
    """What ``func``, one of `DROPOUTS`, multiplies by, drawn from the default generator as it does.

    Torch's kernel for the CPU takes a branch for every number that it draws: to draw many first and
    compare them then takes half the time.
    """
    made = torch.empty_like(like)
    if not (_ALIKE and func is F.dropout and _plain(made) and 0 < p < 1):
        return func(torch.ones_like(like), p, True)
    _draw(made.view(-1), 1 - p)
    return made.div_(1 - p)


def kept(shape: Sequence[int], p: float, dtype: torch.dtype) -> Tensor:
    """Which numbers dropout leaves on the CPU, 0 and 1: the default generator's, as it draws them.

    Bytes where they are drawn here, by which torch multiplies quickly; of ``dtype`` elsewhere.
    """
    if not _ALIKE:
        return torch.empty(*shape, dtype=dtype, device="cpu").bernoulli_(1 - p)
    left = torch.empty(*shape, dtype=torch.uint8, device="cpu")
    _draw(left.view(-1).view(torch.bool), 1 - p)
    return left


def _plain(x: Tensor) -> bool:
    """Whether its numbers lie in their order on the CPU."""
    return x.device.type == "cpu" and x.is_contiguous() and x.numel() > 0


class _QuickDropout(InsteadOfDropout):
    """A block in which dropout takes half the time, to the same bits."""

    def drop(
        self,
        func: Callable[..., Tensor],
        input: Tensor,  # noqa: A002  (named as in torch.nn.functional, it may come by keyword)
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        """The same, by `mask`."""
        if not training or inplace or func is not F.dropout or not 0 < p < 1:
            return func(input, p, training, inplace)
        return input * mask(func, input, p)


def quick_dropout(device: torch.device) -> AbstractContextManager[Any]:
    """A block in which many masks are drawn: quickly, where that gives the same ones."""
    return _QuickDropout() if _ALIKE and device.type == "cpu" else nullcontext()

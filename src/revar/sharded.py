"""The rows of a batch, split between processes, and what a network needs to not notice.

Inputs and features are a process's own rows; class logits and everything computed from them are
those of the whole batch, equal on every process. So losses, weights and figures need no care: they
are computed everywhere from the same numbers, and what is remembered of examples has its rows split
(`revar.rows`). Between the two stand three operations
that see more than one row, or draw random numbers for them:

* the end of a network: `whole` puts together the outputs of all processes;
* batch norm in training mode: its moments are those of the whole batch;
* dropout: every process draws the masks of the whole batch, as one process would, and takes its
  rows, so that the generators of all of them stay in step.

With the outputs equal everywhere, the gradient of the mean over processes of their (equal) losses
is the mean of the processes' gradients, for networks before `whole` and after it alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from revar.dropouts import DROPOUTS
from revar.errors import InputError
from revar.joint_norm import JointNorm
from revar.parallel import World, world


@dataclass(frozen=True)
class Share:
    """How a whole is split: the rows of each of its parts, as evenly as can be.

    Attributes:
        sizes: rows of each part; a batch has one part.
        world: of processes.
        repeats: how many times the whole is stacked, as T dropout passes are.
    """

    sizes: tuple[int, ...]
    world: World
    repeats: int = 1

    @property
    def total(self) -> int:
        """Rows of the whole."""
        return sum(self.sizes)

    def count(self, rank: int | None = None) -> int:
        """Rows of a process."""
        return sum(len(self.world.span(size, rank)) for size in self.sizes)

    def positions(self, rank: int | None = None) -> list[int]:
        """Where a process's rows are in the whole."""
        starts = accumulate((0, *self.sizes[:-1]))
        spans = (self.world.span(size, rank) for size in self.sizes)
        return [start + row for start, span in zip(starts, spans, strict=True) for row in span]

    def own(self, x: Tensor) -> Tensor:
        """[total, ...] to this process's rows of it."""
        rows = self.world.span(self.total)
        if len(self.sizes) == 1:
            return x[rows.start : rows.stop]
        return x[_positions(self, x.device)]


# Made once: a copy from the host makes it wait for the device.
@lru_cache(maxsize=64)
def _positions(share: Share, device: torch.device) -> Tensor:
    """[n] of this process's rows in the whole."""
    return torch.tensor(share.positions(), dtype=torch.int64, device=device)


@lru_cache(maxsize=64)
def _sources(share: Share, device: torch.device) -> Tensor:
    """[total] which row of the padded and stacked shares each row of the whole is."""
    everyone = range(share.world.size)
    longest = max(share.count(rank) for rank in everyone)
    sources = torch.empty(share.total, dtype=torch.int64)
    for rank in everyone:
        for row, position in enumerate(share.positions(rank)):
            sources[position] = rank * longest + row
    return sources.to(device)


class _Current(threading.local):
    """What is split now; a thread has its own, because torch runs backward passes in one."""

    share: Share | None = None
    watching = False


_CURRENT = _Current()


def current() -> Share | None:
    """What is split now."""
    return _CURRENT.share


@contextmanager
def using(share: Share | None) -> Iterator[None]:
    """Run a block with this split, or without one; for what a backward pass runs again."""
    before = _CURRENT.share
    _CURRENT.share = share
    try:
        with nullcontext() if share is None or _CURRENT.watching else SharedRows():
            yield
    finally:
        _CURRENT.share = before


def sharing(*sizes: int) -> AbstractContextManager[None]:
    """Run a block whose network inputs are this process's rows of parts of these sizes."""
    everyone = world()
    return using(Share(sizes, everyone)) if everyone.size > 1 else nullcontext()


def alone() -> AbstractContextManager[None]:
    """Run a block in which a process's rows are all there is: its outputs stay its own."""
    return nullcontext() if _CURRENT.share is None else using(None)


def repeated(times: int) -> AbstractContextManager[None]:
    """Run a block whose network inputs are the split rows, stacked several times."""
    share = _CURRENT.share
    return nullcontext() if share is None else using(replace(share, repeats=times))


def own(x: Tensor) -> Tensor:
    """[n, ...] to this process's rows of it."""
    return x if _CURRENT.share is None else _CURRENT.share.own(x)


def whole(x: Tensor) -> Tensor:
    """A process's rows to those of all, differentiable in both directions.

    Whatever follows must be computed by every process alike: the gradient of its own rows is
    then known without asking the others.
    """
    share = _CURRENT.share
    if share is None:
        return x
    _check_rows(x, share)
    if share.repeats == 1:
        gathered: Tensor = _Whole.apply(x, share)
        return gathered
    rows = x.unflatten(0, (share.repeats, -1)).transpose(0, 1)
    gathered = _Whole.apply(rows, share)
    return gathered.transpose(0, 1).flatten(0, 1)


def _gather_rows(x: Tensor, share: Share) -> Tensor:
    longest = max(share.count(rank) for rank in range(share.world.size))
    padded = x
    if len(x) < longest:
        padded = torch.cat([x, x.new_zeros(longest - len(x), *x.shape[1:])])
    return share.world.gather(padded).flatten(0, 1)[_sources(share, x.device)]


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, share: Share) -> Tensor:
        ctx.share = share
        return _gather_rows(x, share)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.share.own(gradient) * ctx.share.world.size, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return _gather_rows(tangent, ctx.share)


def _check_rows(x: Tensor, share: Share) -> None:
    wanted = share.repeats * share.count()
    if len(x) != wanted:
        msg = (
            f"a layer has {len(x)} rows where this process has {wanted}: the network mixes "
            "examples, which cannot be split between processes; train it with one"
        )
        raise InputError(msg)


@contextmanager
def joint_outputs(net: nn.Module) -> Iterator[None]:
    """Let the head of a classifier give the logits of all processes, where rows are split."""
    if world().size == 1:
        yield
        return
    head: Callable[[Tensor], Tensor] = net.forward_head  # type: ignore[assignment]
    net.forward_head = lambda features: whole(head(features))  # type: ignore[assignment]
    try:
        yield
    finally:
        del net.forward_head


class SharedRows(TorchFunctionMode):
    """Batch norm and dropout over the whole batch, for whichever network calls them."""

    def __enter__(self) -> Any:
        _CURRENT.watching = True
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        _CURRENT.watching = False
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace what sees more than one row, pass everything else through."""
        kwargs = kwargs or {}
        share = _CURRENT.share
        # Nothing is watched while this runs, which may be a backward pass that runs more.
        _CURRENT.watching = False
        try:
            if share is not None and func is F.batch_norm:
                return _batch_norm(share, *args, **kwargs)
            if share is not None and func in DROPOUTS:
                return _drop(share, func, *args, **kwargs)
            return func(*args, **kwargs)
        finally:
            _CURRENT.watching = True


def _drop(
    share: Share,
    func: Callable[..., Tensor],
    input: Tensor,  # noqa: A002  (named as in torch.nn.functional, it may come by keyword)
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    if not training or p == 0.0:
        return input
    _check_rows(input, share)
    shape = [share.repeats * share.total, *input.shape[1:]]
    if func is not F.dropout:
        shape[2:] = [1] * (len(shape) - 2)
    # Masks are drawn in the order of memory, which follows that of the input.
    strides = input.stride()
    order = sorted(range(input.ndim), key=lambda axis: (-strides[axis], axis))
    ones = torch.empty_permuted(shape, order, dtype=input.dtype, device=input.device).fill_(1)
    # In place where it is asked for: on a GPU that draws other numbers.
    masks = func(ones, p, True, inplace).unflatten(0, (share.repeats, share.total))
    mask = share.own(masks.transpose(0, 1)).transpose(0, 1).flatten(0, 1)
    return input.mul_(mask) if inplace else input * mask


def _batch_norm(
    share: Share,
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    _check_rows(input, share)
    per_row = prod(input.shape[2:])
    counts = [share.repeats * share.count(rank) * per_row for rank in range(share.world.size)]
    if sum(counts) < 2:
        raise ValueError(f"batch norm needs more than one value per channel: {input.shape}")
    normed, mean, variance = JointNorm.apply(input, weight, bias, counts, eps, share.world)
    if running_mean is not None and running_var is not None:
        unbiased = sum(counts) / (sum(counts) - 1)
        with torch.no_grad():
            running_mean.lerp_(_primal(mean).to(running_mean.dtype), momentum)
            running_var.lerp_(_primal(variance).to(running_var.dtype) * unbiased, momentum)
    output: Tensor = normed
    return output


def _primal(x: Tensor) -> Tensor:
    value: Tensor = forward_ad.unpack_dual(x)[0]
    return value

"""Batch norm whose moments are those of the rows of all processes.

``nn.SyncBatchNorm`` refuses tensors on the CPU and has no forward mode; this has both, and needs
one message forward and one in each direction of differentiation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from revar.parallel import World


class JointNorm(torch.autograd.Function):
    """``weight * (x - mean) / sqrt(variance + eps) + bias``, moments over all processes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        counts: Sequence[int],
        eps: float,
        world: World,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Normalised rows of this process, mean and variance of all.

        Args:
            ctx: of autograd.
            x: [n, C, ...] rows of this process.
            weight: [C] or none.
            bias: [C] or none.
            counts: values per channel that each process has.
            eps: added to the variance.
            world: the processes.
        """
        fine = _fine(x)
        axes = [0, *range(2, x.ndim)]
        # Each process's own mean and squares, so that no large numbers cancel.
        own_count = max(counts[world.rank], 1)
        own_mean = fine.sum(axes) / own_count
        squares = (fine - _channels(own_mean, x)).square().sum(axes)
        means, all_squares = world.gather(torch.stack([own_mean, squares])).unbind(1)
        n = _beside(tuple(counts), fine.dtype, fine.device)
        mean = (n * means).sum(0) / sum(counts)
        variance = (all_squares + n * (means - mean).square()).sum(0) / sum(counts)
        scale = (variance + eps).rsqrt()
        ctx.save_for_backward(x, mean, scale, weight)
        ctx.save_for_forward(x, mean, scale, weight)
        ctx.total, ctx.axes, ctx.world = sum(counts), axes, world
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(mean, variance)
        y = (fine - _channels(mean, x)) * _channels(scale, x)
        if weight is not None:
            y = y * _channels(_fine(weight), x)
        if bias is not None:
            y = y + _channels(_fine(bias), x)
        return y.to(x.dtype), mean, variance

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """Of this process's rows; by weight and bias, what its own rows add to their gradients."""
        x, mean, scale, weight = ctx.saved_tensors
        fine = _fine(gradient)
        standard = (_fine(x) - _channels(mean, x)) * _channels(scale, x)
        by_bias, by_weight = fine.sum(ctx.axes), (fine * standard).sum(ctx.axes)
        sums = ctx.world.sum_(torch.stack([by_bias, by_weight])) / ctx.total
        inner = fine - _channels(sums[0], x) - standard * _channels(sums[1], x)
        factor = scale if weight is None else scale * _fine(weight)
        return (
            (inner * _channels(factor, x)).to(x.dtype),
            None if weight is None else by_weight.to(weight.dtype),
            by_bias.to(mean.dtype if weight is None else weight.dtype) if ctx.has_bias else None,
            None,
            None,
            None,
        )

    @staticmethod
    def jvp(
        ctx: Any, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None, *_: Any
    ) -> tuple[Tensor, None, None]:
        """The tangent of this process's rows."""
        x, mean, scale, weight = ctx.saved_tensors
        standard = (_fine(x) - _channels(mean, x)) * _channels(scale, x)
        tangent = torch.zeros_like(standard) if dx is None else _fine(dx)
        parts = torch.stack([tangent.sum(ctx.axes), (tangent * standard).sum(ctx.axes)])
        sums = ctx.world.sum_(parts) / ctx.total
        moved = tangent - _channels(sums[0], x) - standard * _channels(sums[1], x)
        moved = moved * _channels(scale if weight is None else scale * _fine(weight), x)
        if dweight is not None:
            moved = moved + standard * _channels(_fine(dweight), x)
        if dbias is not None:
            moved = moved + _channels(_fine(dbias), x)
        return moved.to(x.dtype), None, None


@lru_cache(maxsize=256)
def _beside(counts: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """[P, 1] on the device, made once: a copy from the host makes it wait."""
    return torch.tensor(counts, dtype=dtype, device=device)[:, None]


def _fine(x: Tensor) -> Tensor:
    """Half precision to float32; anything finer as it is."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _channels(values: Tensor, like: Tensor) -> Tensor:
    """[C] beside [n, C, ...]."""
    return values.view(1, -1, *[1] * (like.ndim - 2))

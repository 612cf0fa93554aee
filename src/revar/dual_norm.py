"""Batch norm for the meta step: few passes over the data, in any precision, in forward mode too.

With ``h = (x - mean) / deviation`` over the batch, a tangent t of x moves h by

    (t - mean(t) - h mean(h t)) / deviation,

which is what the backward pass of batch norm does to a gradient: its Jacobian is symmetric. So the
fused kernels of the backward pass serve here too, where torch's own rule takes a dozen passes and
cannot mix the types that autocast does. On a GPU the kernels are those of synchronised batch norm:
the usual ones for fixed statistics leave the memory format of images, and are slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

_SMALLEST = 1e-6
"""In place of a weight of zero, which new residual blocks have: it is divided by."""


def _channels(values: Tensor, like: Tensor) -> Tensor:
    """[channels] to a shape that multiplies [n, channels, ...], in its type."""
    return values.view(1, -1, *[1] * (like.ndim - 2)).to(like.dtype)


def _affine(x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    """``scale * (x - mean) * inverse + shift`` by channel."""
    if x.is_cuda:
        return torch.batch_norm_elemt(x, scale, shift, mean, inverse, 0.0)
    by = scale * inverse
    return torch.addcmul(_channels(shift - mean * by, x), x, _channels(by, x))


class _ByBatch(torch.autograd.Function):
    """``weight * h + bias`` with mean and deviation of the batch; forward mode only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
        ctx.save_for_forward(x, weight, mean, inverse)
        ctx.eps = eps
        return y

    @staticmethod
    def jvp(
        ctx: Any, x_tangent: Tensor | None, weight_tangent: Tensor | None,
        bias_tangent: Tensor | None, _: None,
    ) -> Tensor:  # fmt: skip
        x, weight, mean, inverse = ctx.saved_tensors
        return tangent_by_batch(
            x, weight, mean, inverse, ctx.eps, x_tangent, weight_tangent, bias_tangent
        )


def tangent_by_batch(
    x: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor, eps: float,
    x_tangent: Tensor | None, weight_tangent: Tensor | None, bias_tangent: Tensor | None,
) -> Tensor:  # fmt: skip
    """Of ``weight * h + bias``; ``None`` is a tangent of zero."""
    scale = torch.zeros_like(mean) if weight_tangent is None else weight_tangent
    shift = torch.zeros_like(mean) if bias_tangent is None else bias_tangent
    if x_tangent is None:
        return _affine(x, scale, shift, mean, inverse)
    if x.is_cuda:
        return _in_one(x_tangent, x, weight, mean, inverse, scale, shift)
    moved, _, _ = torch.ops.aten.native_batch_norm_backward(
        x_tangent, x, weight, None, None, mean, inverse, True, eps, [True, False, False]
    )
    return _affine(x, scale, shift, mean, inverse).add_(moved)


def _in_one(
    x_tangent: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor,
    shift: Tensor,
) -> Tensor:  # fmt: skip
    """Tangents of x, weight and bias in the one kernel that applies the first.

    It computes ``(t - a / n - (x - mean) inverse^2 b / n) inverse weight``, a and b sums over the
    batch: what weight and bias add is of the same form, so it goes into the sums.
    """
    n = x.numel() // x.shape[1]
    a, b, _, _ = torch.batch_norm_backward_reduce(
        x_tangent, x, mean, inverse, weight, True, False, False
    )
    safe, a, b = moved_sums(a, b, weight, inverse, scale, shift, n)
    return torch.batch_norm_backward_elemt(x_tangent, x, mean, inverse, safe, a, b, _count(n, x))


def moved_sums(
    a: Tensor, b: Tensor, weight: Tensor, inverse: Tensor, scale: Tensor, shift: Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The weight to apply and the sums, with what tangents of weight and bias add to these.

    In few kernels: [channels] numbers take as long as they take to begin.
    """
    safe = torch.where(weight == 0, _SMALLEST, weight)
    by = safe * inverse
    a = torch.addcdiv(a, shift, by, value=-n)
    b = torch.addcdiv(b, scale, by * inverse, value=-n)
    return safe, a, b


_counts: dict[tuple[int, torch.device], Tensor] = {}


def _count(n: int, like: Tensor) -> Tensor:
    """[1] n, made once: it would be a kernel for each layer."""
    key = (n, like.device)
    if key in _counts:
        return _counts[key]
    made = torch.full((1,), n, dtype=torch.int32, device=like.device)
    if not torch.cuda.is_current_stream_capturing():
        # What is made while a graph is recorded belongs to it.
        _counts[key] = made
    return made


class _ByStatistics(torch.autograd.Function):
    """``weight * (x - mean) * inverse + bias`` with fixed statistics; both modes, once."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.save_for_forward(x, weight, mean, inverse)
        return _affine(x, weight, bias, mean, inverse)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, weight, mean, inverse = ctx.saved_tensors
        zero = torch.zeros_like(mean)
        if x.is_cuda:
            _, _, of_weight, of_bias = torch.batch_norm_backward_reduce(
                gradient, x, mean, inverse, weight, True, True, True
            )
        else:
            over = [axis for axis in range(x.ndim) if axis != 1]
            standard = _affine(x, torch.ones_like(mean), zero, mean, inverse)
            of_weight, of_bias = (gradient * standard).sum(over), gradient.sum(over)
        return _affine(gradient, weight, zero, zero, inverse), of_weight, of_bias, None, None

    @staticmethod
    def jvp(
        ctx: Any, x_tangent: Tensor | None, weight_tangent: Tensor | None,
        bias_tangent: Tensor | None, *_: None,
    ) -> Tensor:  # fmt: skip
        x, weight, mean, inverse = ctx.saved_tensors
        tangents = (x_tangent, weight_tangent, bias_tangent)
        return tangent_by_statistics(x, weight, mean, inverse, *tangents)


def tangent_by_statistics(
    x: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor,
    x_tangent: Tensor | None, weight_tangent: Tensor | None, bias_tangent: Tensor | None,
) -> Tensor:  # fmt: skip
    """Of ``weight * (x - mean) * inverse + bias``; ``None`` is a tangent of zero."""
    zero = torch.zeros_like(mean)
    scale = zero if weight_tangent is None else weight_tangent
    shift = zero if bias_tangent is None else bias_tangent
    tangent = _affine(x, scale, shift, mean, inverse)
    if x_tangent is None:
        return tangent
    return tangent.add_(_affine(x_tangent, weight, zero, zero, inverse))


def batch_norm(
    input: Tensor,  # noqa: A002  (named as in torch.nn.functional, it may come by keyword)
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.1,  # noqa: ARG001  (as in torch.nn.functional)
    eps: float = 1e-5,
) -> Tensor:
    """As torch's, for a pass that leaves running statistics as they are."""
    precise = torch.promote_types(input.dtype, torch.float32)
    channels = input.shape[1]
    weight = input.new_ones(channels, dtype=precise) if weight is None else weight
    bias = input.new_zeros(channels, dtype=precise) if bias is None else bias
    if training or running_mean is None or running_var is None:
        normed: Tensor = _ByBatch.apply(input, weight, bias, eps)
    else:
        inverse = (running_var + eps).rsqrt()
        normed = _ByStatistics.apply(input, weight, bias, running_mean, inverse)
    return normed


_paused: ContextVar[bool] = ContextVar("paused", default=False)


@contextmanager
def usual_norm() -> Iterator[None]:
    """Batch norm of torch's, for a pass that the backward pass runs again, outside of any mode."""
    token = _paused.set(True)
    try:
        yield
    finally:
        _paused.reset(token)


class MetaBatchNorm(TorchFunctionMode):
    """A block in which batch norm is `batch_norm`, and everything else is itself.

    Args:
        by_batch: also where it takes its statistics from the batch: forward mode only.
    """

    def __init__(self, *, by_batch: bool) -> None:
        super().__init__()
        self._by_batch = by_batch

    def anew(self) -> MetaBatchNorm:
        """Another such block: one that is open cannot be entered in a second thread."""
        return MetaBatchNorm(by_batch=self._by_batch)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace batch norm, pass everything else through."""
        kwargs = kwargs or {}
        if func is not F.batch_norm or _paused.get():
            return func(*args, **kwargs)
        wanted = self._by_batch or not _training(args, kwargs)
        return batch_norm(*args, **kwargs) if wanted else func(*args, **kwargs)


def _training(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of batch norm takes its statistics from the batch."""
    given = args[5] if len(args) > 5 else kwargs.get("training", False)
    return bool(given) or args[1] is None


def current_norm() -> Callable[[], MetaBatchNorm] | None:
    """Makes the block that is in force now anew, for a pass that is run again outside of it."""
    found = [m for m in _get_current_function_mode_stack() if isinstance(m, MetaBatchNorm)]
    if not found or _paused.get():
        return None
    return found[-1].anew

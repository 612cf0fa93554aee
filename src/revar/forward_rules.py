"""Rules of forward mode that are cheap: for convolutions, batch norm, dropout, and products.

Where an operation has a tangent of one input only, torch's rules give the others a tangent of
zeros. Nothing is computed with it, but to find that out takes longer than a small net takes for a
pass, and it changes no bit to leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor

from revar.dropouts import DROPOUTS, mask
from revar.dual_norm import MetaBatchNorm
from revar.tangent_rules import moved_convolution

_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_PRODUCTS = (torch.mul, Tensor.mul)
"""What becomes of ``a * b``, too."""


class ForwardRules(MetaBatchNorm):
    """A block in which these rules hold, and everything else is itself."""

    def __init__(self) -> None:
        super().__init__(by_batch=True)

    def anew(self) -> ForwardRules:
        """Another such block, with all of the rules."""
        return ForwardRules()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace what has a rule here, pass everything else through."""
        kwargs = kwargs or {}
        if func in DROPOUTS:
            return _dropout(func, *args, **kwargs)
        if func in _CONVOLUTIONS:
            return _convolved(func, *args, **kwargs)
        if func in _PRODUCTS and not kwargs:
            return _product(*args)
        return super().__torch_function__(func, types, args, kwargs)


def _convolved(
    func: Callable[..., Tensor], input: Tensor,  # noqa: A002
    weight: Tensor, bias: Tensor | None = None, *others: Any, **named: Any,
) -> Tensor:  # fmt: skip
    """A convolution and its tangent."""
    (x, dx), (w, dw), (b, db) = _parts(input), _parts(weight), _parts(bias)

    def convolve(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return func(x, weight, bias, *others, **named)

    value = convolve(x, w, b)
    tangent = moved_convolution(convolve, value.shape, x, w, dx, dw, db)
    if tangent is None:
        return value
    convolved: Tensor = forward_ad.make_dual(value, tangent.to(value.dtype))
    return convolved


def _dropout(
    func: Callable[..., Tensor],
    input: Tensor,  # noqa: A002  (named as in torch.nn.functional, it may come by keyword)
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    """Dropout of a value and its tangent by one mask, the one torch would draw."""
    value, tangent = forward_ad.unpack_dual(input)
    if tangent is None or value.is_cuda or not training or p == 0:
        return func(input, p, training, inplace)
    by = mask(func, value, p)
    dropped: Tensor = forward_ad.make_dual(value * by, tangent * by)
    return dropped


def _product(a: Tensor, b: Tensor | float) -> Tensor:
    """``a * b``, of which one may have no tangent."""
    (x, dx), (y, dy) = _parts(a), _parts(b)
    if x.is_cuda or (dx is None) is (dy is None):
        return torch.mul(a, b)
    tangent = dx * y if dx is not None else dy * x
    product: Tensor = forward_ad.make_dual(x * y, tangent)
    return product


def _parts(x: Any) -> tuple[Any, Tensor | None]:
    """A value and its tangent, if it has one."""
    return forward_ad.unpack_dual(x) if isinstance(x, Tensor) else (x, None)

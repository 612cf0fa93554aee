"""From stored values to what networks read."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

_FURTHEST = 10.0
"""Standardised table values are clipped here: one outlier must not decide a linear layer."""


class Normalise(nn.Module):
    """Subtract the training mean, divide by the training deviation, per channel or column.

    Images may be stored as ``uint8``; a constant channel or column is only centred.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        shape = (input_shape[0],) + (1,) * (len(input_shape) - 1)
        self.is_table = len(input_shape) == 1
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("deviation", torch.ones(shape))

    @classmethod
    def fitted(cls, x: Tensor) -> Self:
        """Statistics of [n, ...] training inputs, summed in float64, a block at a time."""
        layer = cls(tuple(x.shape[1:])).to(x.device)
        axes = [0, *range(2, x.ndim)]
        count = x.numel() / x.shape[1]
        total = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
        for block in x.split(4096):
            total += block.double().sum(axes)
        mean = total / count
        square = torch.zeros_like(total)
        centre = mean.reshape(layer.mean.shape)
        for block in x.split(4096):
            square += (block.double() - centre).square().sum(axes)
        deviation = (square / count).sqrt()
        # A column of one repeated value has a deviation of rounding error, not of zero.
        constant = deviation <= 1e-7 * mean.abs().clamp_min(1e-12)
        deviation = torch.where(constant, torch.ones_like(deviation), deviation)
        layer.mean.copy_(centre)
        layer.deviation.copy_(deviation.reshape(layer.deviation.shape))
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """[n, ...] stored values to float32 of mean zero and deviation one."""
        scaled = (x.to(self.mean.dtype) - self.mean) / self.deviation
        return scaled.clamp(-_FURTHEST, _FURTHEST) if self.is_table else scaled

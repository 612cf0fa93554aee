"""From stored values to what networks read."""

from __future__ import annotations

from math import prod
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
        """Statistics of [n, ...] training inputs, in float64."""
        if x.ndim == 4:
            means, squares = image_moments(x)
            return cls.of_images(means, squares, tuple(x.shape[1:]))
        mean = sum((block.double().sum(0) for block in x.split(4096)), x.new_zeros(())) / len(x)
        square = sum(
            ((block.double() - mean).square().sum(0) for block in x.split(4096)), x.new_zeros(())
        )
        return cls._of(mean, square / len(x), tuple(x.shape[1:]))

    @classmethod
    def of_images(cls, means: Tensor, squares: Tensor, shape: tuple[int, ...]) -> Self:
        """The same from the moments of every image, see `image_moments`."""
        pixels = prod(shape[1:])
        mean = means.mean(0)
        square = squares.sum(0) + pixels * (means - mean).square().sum(0)
        return cls._of(mean, square / (pixels * len(means)), shape)

    @classmethod
    def _of(cls, mean: Tensor, variance: Tensor, shape: tuple[int, ...]) -> Self:
        layer = cls(shape)
        deviation = variance.sqrt()
        # A column of one repeated value has a deviation of rounding error, not of zero.
        constant = deviation <= 1e-7 * mean.abs().clamp_min(1e-12)
        deviation = torch.where(constant, torch.ones_like(deviation), deviation)
        layer.mean.copy_(mean.reshape(layer.mean.shape))
        layer.deviation.copy_(deviation.reshape(layer.deviation.shape))
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """[n, ...] stored values to float32 of mean zero and deviation one."""
        scaled = (x.to(self.mean.dtype) - self.mean) / self.deviation
        return scaled.clamp(-_FURTHEST, _FURTHEST) if self.is_table else scaled


def image_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """[n, channels] mean and sum of squared deviations of each channel of each image, float64.

    Image by image, so that data read in blocks of any size gives the same bits.
    """
    moments = []
    for block in x.split(256):
        pixels = block.double()
        # Row by row: a single long sum would be shared out among threads, and round otherwise.
        mean = pixels.mean(-1).mean(-1)
        moments.append((mean, (pixels - mean[..., None, None]).square().sum(-1).sum(-1)))
    means, squares = zip(*moments, strict=True)
    return torch.cat(means), torch.cat(squares)

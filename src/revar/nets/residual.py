"""Residual networks with a 3x3 stem, for images of up to about 96 px (He et al. 2016).

timm has the larger ones, whose stem divides the size by four before the first block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch.nn.functional as F
from torch import Tensor, nn

from revar.nets.base import Dropout, SplitClassifier
from revar.nets.convolutional import normed


class Block(ABC, nn.Module):
    """A residual and a shortcut, added before the ReLU.

    Where the shape changes the shortcut is either a 1x1 convolution (option B of the paper) or,
    as in its CIFAR networks, a strided copy padded with zero channels, which has no parameters
    (option A).

    Attributes:
        growth: channels out for one of its width.
    """

    growth = 1

    def __init__(self, n_in: int, n_out: int, stride: int, *, project: bool, rate: float) -> None:
        super().__init__()
        self._add_convolutions(n_in, n_out, stride)
        self.drop = nn.Dropout2d(rate)
        self.stride, self.new_channels = stride, n_out - n_in
        self.projection: nn.Module | None = None
        if project and (stride > 1 or n_in != n_out):
            self.projection = normed(n_in, n_out, stride, kernel=1)

    @abstractmethod
    def _add_convolutions(self, n_in: int, n_out: int, stride: int) -> None:
        """Make the layers of the residual."""

    @abstractmethod
    def _residual(self, x: Tensor) -> Tensor:
        """[n, n_in, h, w] to [n, n_out, h / stride, w / stride]."""

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.projection is not None:
            projected: Tensor = self.projection(x)
            return projected
        if self.stride == 1 and self.new_channels == 0:
            return x
        before = self.new_channels // 2
        padding = (0, 0, 0, 0, before, self.new_channels - before)
        return F.pad(x[:, :, :: self.stride, :: self.stride], padding)

    def forward(self, x: Tensor) -> Tensor:
        """[n, n_in, h, w] to [n, n_out, h / stride, w / stride]."""
        residual: Tensor = self.drop(self._residual(x))
        return F.relu(residual + self._shortcut(x))


class ResidualBlock(Block):
    """Two 3x3 convolutions."""

    def _add_convolutions(self, n_in: int, n_out: int, stride: int) -> None:
        self.first = normed(n_in, n_out, stride)
        self.second = normed(n_out, n_out)

    def _residual(self, x: Tensor) -> Tensor:
        residual: Tensor = self.second(F.relu(self.first(x)))
        return residual


class Bottleneck(Block):
    """A 3x3 convolution between two of 1x1 that narrow the channels by four and widen them again.

    The 3x3 one has the stride.
    """

    growth = 4

    def _add_convolutions(self, n_in: int, n_out: int, stride: int) -> None:
        width = n_out // self.growth
        self.first = normed(n_in, width, kernel=1)
        self.second = normed(width, width, stride)
        self.third = normed(width, n_out, kernel=1)

    def _residual(self, x: Tensor) -> Tensor:
        residual: Tensor = self.third(F.relu(self.second(F.relu(self.first(x)))))
        return residual


def resnet(
    input_shape: tuple[int, ...],
    n_outputs: int,
    dropout: Dropout,
    *,
    widths: tuple[int, ...],
    depths: tuple[int, ...],
    block: type[Block] = ResidualBlock,
    project: bool = True,
) -> SplitClassifier:
    """Stages of blocks, the first block of each but the first stage with stride two.

    Args:
        input_shape: (channels, height, width).
        n_outputs: C.
        dropout: ``everywhere`` drops channels of every residual.
        widths: of the stages.
        depths: blocks of each stage.
        block: of what kind.
        project: shortcuts by option B rather than A.
    """
    layers: list[nn.Module] = [normed(input_shape[0], widths[0]), nn.ReLU()]
    n_in = widths[0]
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for position in range(depth):
            stride = 2 if stage > 0 and position == 0 else 1
            n_out = width * block.growth
            layers.append(block(n_in, n_out, stride, project=project, rate=dropout.trunk_rate))
            n_in = n_out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return SplitClassifier(nn.Sequential(*layers), n_in, n_outputs, dropout.rate)


def _thin(
    input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout, depth: int
) -> SplitClassifier:
    """The CIFAR network of ``depth = 6 k + 2`` layers: three stages of k blocks, option A."""
    blocks = (depth - 2) // 6
    return resnet(
        input_shape, n_outputs, dropout, widths=(16, 32, 64), depths=(blocks,) * 3, project=False
    )


def resnet20(input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout) -> SplitClassifier:
    """The 20-layer CIFAR network: 0.27 M parameters."""
    return _thin(input_shape, n_outputs, dropout, 20)


def resnet32(input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout) -> SplitClassifier:
    """The 32-layer CIFAR network: 0.46 M parameters."""
    return _thin(input_shape, n_outputs, dropout, 32)


def resnet56(input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout) -> SplitClassifier:
    """The 56-layer CIFAR network: 0.85 M parameters."""
    return _thin(input_shape, n_outputs, dropout, 56)


_WIDE = (64, 128, 256, 512)


def resnet18_cifar(
    input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout
) -> SplitClassifier:
    """ResNet-18 with a 3x3 stem and no pooling before the first stage: 11.2 M parameters."""
    return resnet(input_shape, n_outputs, dropout, widths=_WIDE, depths=(2, 2, 2, 2))


def resnet34_cifar(
    input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout
) -> SplitClassifier:
    """ResNet-34 with the same stem: 21.3 M parameters."""
    return resnet(input_shape, n_outputs, dropout, widths=_WIDE, depths=(3, 4, 6, 3))


def resnet50_cifar(
    input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout
) -> SplitClassifier:
    """ResNet-50 with the same stem: 23.5 M parameters."""
    return resnet(
        input_shape, n_outputs, dropout, widths=_WIDE, depths=(3, 4, 6, 3), block=Bottleneck
    )

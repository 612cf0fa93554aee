"""Networks for images of up to about 96 px; larger ones come from timm."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from revar.nets.base import Dropout, SplitClassifier


def _normed(n_in: int, n_out: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(n_out))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016).

    Where the shape changes the shortcut is either a 1x1 convolution or, as in the original
    CIFAR networks, a strided copy padded with zero channels, which has no parameters.
    """

    def __init__(self, n_in: int, n_out: int, stride: int, *, project: bool, rate: float) -> None:
        super().__init__()
        self.first = _normed(n_in, n_out, stride)
        self.second = _normed(n_out, n_out)
        self.drop = nn.Dropout2d(rate)
        self.stride, self.new_channels = stride, n_out - n_in
        self.projection: nn.Module | None = None
        if project and (stride > 1 or n_in != n_out):
            self.projection = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False), nn.BatchNorm2d(n_out)
            )

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
        residual: Tensor = self.drop(self.second(F.relu(self.first(x))))
        return F.relu(residual + self._shortcut(x))


def _resnet(
    input_shape: tuple[int, ...],
    n_outputs: int,
    dropout: Dropout,
    widths: tuple[int, ...],
    blocks: int,
    *,
    project: bool,
) -> SplitClassifier:
    layers: list[nn.Module] = [_normed(input_shape[0], widths[0]), nn.ReLU()]
    n_in = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(
                ResidualBlock(n_in, width, stride, project=project, rate=dropout.trunk_rate)
            )
            n_in = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return SplitClassifier(nn.Sequential(*layers), n_in, n_outputs, dropout.rate)


def resnet20(input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout) -> SplitClassifier:
    """The 20-layer CIFAR network of He et al. (2016): 0.27 M parameters."""
    return _resnet(input_shape, n_outputs, dropout, (16, 32, 64), 3, project=False)


def resnet18_cifar(
    input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout
) -> SplitClassifier:
    """ResNet-18 with a 3x3 stem and no pooling before the first stage: 11.2 M parameters."""
    return _resnet(input_shape, n_outputs, dropout, (64, 128, 256, 512), 2, project=True)


def convnet(input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout) -> SplitClassifier:
    """Four 3x3 convolutions for thumbnails such as 8x8 digits: 0.1 M parameters."""
    layers: list[nn.Module] = []
    n_in = input_shape[0]
    for stride, width in ((1, 32), (1, 32), (2, 64), (1, 128)):
        layers += [_normed(n_in, width, stride), nn.ReLU()]
        if dropout.trunk_rate:
            layers.append(nn.Dropout2d(dropout.trunk_rate))
        n_in = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return SplitClassifier(nn.Sequential(*layers), n_in, n_outputs, dropout.rate)

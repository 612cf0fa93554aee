"""A small network for thumbnails, and the layer the convolutional networks are made of."""

from __future__ import annotations

from torch import nn

from revar.nets.base import Dropout, SplitClassifier


def normed(n_in: int, n_out: int, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    """A convolution that keeps the size of the map (divided by the stride), then batch norm."""
    convolution = nn.Conv2d(n_in, n_out, kernel, stride=stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(n_out))


def convnet(input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout) -> SplitClassifier:
    """Four 3x3 convolutions for thumbnails such as 8x8 digits: 0.1 M parameters."""
    layers: list[nn.Module] = []
    n_in = input_shape[0]
    for stride, width in ((1, 32), (1, 32), (2, 64), (1, 128)):
        layers += [normed(n_in, width, stride), nn.ReLU()]
        if dropout.trunk_rate:
            layers.append(nn.Dropout2d(dropout.trunk_rate))
        n_in = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return SplitClassifier(nn.Sequential(*layers), n_in, n_outputs, dropout.rate)

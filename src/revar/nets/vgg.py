"""VGG-16 with batch norm for 32 px, the network of SelectiveNet and of Deep Gamblers."""

from __future__ import annotations

from torch import nn

from revar.nets.base import Dropout, SplitClassifier

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and convolutions between two poolings: configuration D of Simonyan and Zisserman."""


def vgg16_bn(
    input_shape: tuple[int, ...],
    n_outputs: int,
    dropout: Dropout,
    *,
    stages: tuple[tuple[int, int], ...] = _STAGES,
    width: int = 512,
) -> SplitClassifier:
    """Thirteen convolutions, one hidden layer of 512, and the head: 15.0 M parameters.

    This is the form that Liu and Deng (2015) gave it for CIFAR: one hidden layer where the
    ImageNet network has two of 4,096, and batch norm after the ReLU. That layer belongs to the
    trunk. ``everywhere`` drops channels where they do: after each convolution that no pooling
    follows, and at the end of the convolutions.

    Poolings round up, and an average follows the last one, so that images of any size are read;
    32 px leave one value per channel.
    """
    layers: list[nn.Module] = []
    n_in = input_shape[0]
    for channels, convolutions in stages:
        for position in range(convolutions):
            if position and dropout.trunk_rate:
                layers.append(nn.Dropout2d(dropout.trunk_rate))
            layers += [
                nn.Conv2d(n_in, channels, 3, padding=1),
                nn.ReLU(),
                nn.BatchNorm2d(channels),
            ]
            n_in = channels
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if dropout.trunk_rate:
        layers.append(nn.Dropout(dropout.trunk_rate))
    layers += [nn.Linear(n_in, width), nn.ReLU(), nn.BatchNorm1d(width)]
    return SplitClassifier(nn.Sequential(*layers), width, n_outputs, dropout.rate)

"""Networks for tables: a linear model and a multi-layer perceptron."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from math import prod

from torch import nn

from revar.errors import InputError
from revar.nets.base import Dropout, SplitClassifier


def linear(input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout) -> SplitClassifier:
    """Logistic regression; its dropout falls on the inputs."""
    return SplitClassifier(nn.Flatten(), prod(input_shape), n_outputs, dropout.rate)


def mlp(
    input_shape: tuple[int, ...],
    n_outputs: int,
    dropout: Dropout,
    *,
    width: int = 128,
    depth: int = 2,
) -> SplitClassifier:
    """Hidden layers of linear, batch norm and ReLU."""
    layers: list[nn.Module] = [nn.Flatten()]
    n_inputs = prod(input_shape)
    for _ in range(depth):
        layers += [nn.Linear(n_inputs, width), nn.BatchNorm1d(width), nn.ReLU()]
        if dropout.trunk_rate:
            layers.append(nn.Dropout(dropout.trunk_rate))
        n_inputs = width
    return SplitClassifier(nn.Sequential(*layers), width, n_outputs, dropout.rate)


_SIZED = re.compile(r"mlp-(\d+)x(\d+)")


def sized_mlp(name: str) -> Callable[[tuple[int, ...], int, Dropout], SplitClassifier] | None:
    """What ``mlp-WIDTHxDEPTH`` stands for; ``None`` for other names.

    Raises:
        InputError: it would have no layer, or layers of no width.
    """
    found = _SIZED.fullmatch(name)
    if found is None:
        return None
    width, depth = map(int, found.groups())
    if width < 1 or depth < 1:
        msg = f'backbone "{name}" has no hidden layer: give mlp-WIDTHxDEPTH, such as mlp-512x4'
        raise InputError(msg)
    return partial(mlp, width=width, depth=depth)


def perceptron(input_shape: tuple[int, ...], n_outputs: int, dropout: Dropout) -> SplitClassifier:
    """Two hidden layers of 32 and ReLU, nothing else: no example changes the output of another."""
    layers: list[nn.Module] = [nn.Flatten()]
    n_inputs = prod(input_shape)
    for _ in range(2):
        layers += [nn.Linear(n_inputs, 32), nn.ReLU()]
        if dropout.trunk_rate:
            layers.append(nn.Dropout(dropout.trunk_rate))
        n_inputs = 32
    return SplitClassifier(nn.Sequential(*layers), n_inputs, n_outputs, dropout.rate)

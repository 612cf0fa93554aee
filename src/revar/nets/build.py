"""From a name, or a module, to a classifier for these inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from revar.errors import InputError
from revar.nets.base import Classifier, Dropout
from revar.nets.dense import sized_mlp
from revar.nets.external import from_module, from_timm
from revar.registry import BACKBONES, load

Builder = Callable[[tuple[int, ...], int, Dropout], Classifier]


def resolve(name: str, input_shape: tuple[int, ...]) -> str:
    """What ``auto`` means for inputs of this shape; other names pass through."""
    if name != "auto":
        return name
    if len(input_shape) != 3:
        return "mlp"
    side = min(input_shape[1:])
    if side < 24:
        return "convnet"
    return "resnet20" if side <= 96 else "resnet18"


@dataclass(frozen=True)
class Backbone:
    """How to build the classifier: a registered name, a timm name, or the user's own module.

    Attributes:
        name: see `resolve`; ``mlp-512x4`` is an mlp of four hidden layers of 512, in any size;
            ``custom`` goes with ``module``.
        dropout: where the net has a choice.
        module: the user's own network; a copy of it is trained.
        pretrained: with the weights that timm has for it.
    """

    name: str = "auto"
    dropout: Dropout = Dropout()
    module: nn.Module | None = None
    pretrained: bool = False

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> Classifier:
        """A new classifier with fresh weights (or a copy of the user's module).

        Raises:
            InputError: no such backbone, it cannot read these inputs, or timm has no weights.
        """
        name = "custom" if self.module is not None else resolve(self.name, input_shape)
        mlp = sized_mlp(name)
        own = mlp is not None or any(entry.name == name and entry.target for entry in BACKBONES)
        if self.pretrained and (own or self.module is not None):
            msg = f'pretrained=timm needs a timm backbone, and "{name}" is none: give a file'
            raise InputError(msg)
        if self.module is not None:
            if not any(True for _ in self.module.parameters()):
                kind = type(self.module).__name__
                raise InputError(f"backbone {kind} has no parameters: there is nothing to train")
            # Not zeros: two different networks may agree on those.
            example = torch.randn(2, *input_shape, generator=torch.Generator().manual_seed(0))
            return from_module(self.module, example, n_outputs, self.dropout)
        if mlp is not None:
            return mlp(input_shape, n_outputs, self.dropout)
        for entry in BACKBONES:
            if entry.name == name and entry.target:
                if entry.reads == "image" and len(input_shape) != 3:
                    msg = f'backbone "{name}" reads images, the data are rows: use "mlp"'
                    raise InputError(msg)
                builder: Builder = load(entry.target)
                return builder(input_shape, n_outputs, self.dropout)
        return from_timm(name, input_shape, n_outputs, self.dropout, pretrained=self.pretrained)

"""A small vision transformer for 32 px; timm has the large ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.nets.base import Dropout, SplitClassifier


def _norm(width: int) -> nn.LayerNorm:
    # New tokens have a variance of 4e-4, which torch's default epsilon would be felt in.
    return nn.LayerNorm(width, eps=1e-6)


class Attention(nn.Module):
    """Multi-head self-attention.

    No dropout falls on the attention itself: in the fused kernel its mask could not be fixed
    from pass to pass.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.read = nn.Linear(width, 3 * width)
        self.write = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """[n, t, width] to the same."""
        # [3, n, heads, t, width / heads]
        parts = self.read(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value)
        written: Tensor = self.write(mixed.transpose(1, 2).flatten(2))
        return written


class Layer(nn.Module):
    """Attention, then a perceptron of four times the width, each behind a layer norm."""

    def __init__(self, width: int, heads: int, rate: float) -> None:
        super().__init__()
        self.first_norm = _norm(width)
        self.attention = Attention(width, heads)
        self.second_norm = _norm(width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(rate)

    def forward(self, tokens: Tensor) -> Tensor:
        """[n, t, width] to the same."""
        tokens = tokens + self.drop(self.attention(self.first_norm(tokens)))
        after: Tensor = tokens + self.drop(self.perceptron(self.second_norm(tokens)))
        return after


class VisionTrunk(nn.Module):
    """Patches to tokens, a class token and learned positions, layers, the normed class token.

    Images are filled up with zeros, the mean of normalised inputs, to whole patches.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        *,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        rate: float,
    ) -> None:
        super().__init__()
        channels, height, breadth = input_shape
        self.padding = (0, -breadth % patch, 0, -height % patch)
        tokens = -(-height // patch) * -(-breadth // patch)
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.first = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 1 + tokens, width))
        self.layers = nn.Sequential(*(Layer(width, heads, rate) for _ in range(depth)))
        self.norm = _norm(width)
        for parameter in (self.first, self.positions):
            nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, h, w] to [n, width]."""
        tokens = self.patches(F.pad(x, self.padding)).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], 1) + self.positions
        features: Tensor = self.norm(self.layers(tokens)[:, 0])
        return features


def vit_cifar(
    input_shape: tuple[int, ...],
    n_outputs: int,
    dropout: Dropout,
    *,
    patch: int = 4,
    width: int = 192,
    depth: int = 6,
    heads: int = 3,
) -> SplitClassifier:
    """Pre-norm vision transformer (Dosovitskiy et al. 2021), 2.7 M parameters.

    ``everywhere`` drops of what attention and perceptron add to the tokens. It wants
    ``optimiser=adamw``.
    """
    trunk = VisionTrunk(
        input_shape, patch=patch, width=width, depth=depth, heads=heads, rate=dropout.trunk_rate
    )
    return SplitClassifier(trunk, width, n_outputs, dropout.rate)

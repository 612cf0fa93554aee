"""Small networks of every kind the engine must handle, in float64."""

from __future__ import annotations

from collections.abc import Callable

import timm
import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Tokens, self-attention with dropout inside, mean over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x)
        mixed, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        logits: Tensor = self.head(self.norm(tokens + mixed).mean(1))
        return logits


def linear() -> tuple[nn.Module, Tensor]:
    return nn.Linear(5, 3), torch.randn(8, 5)


def mlp() -> tuple[nn.Module, Tensor]:
    net = nn.Sequential(
        nn.Linear(5, 16), nn.Tanh(), nn.Dropout(0.4), nn.Linear(16, 8), nn.GELU(), nn.Linear(8, 3)
    )
    return net, torch.randn(8, 5)


def convolution() -> tuple[nn.Module, Tensor]:
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout2d(0.2),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(8, 3),
    )
    return net, torch.randn(8, 3, 8, 8)


def attention() -> tuple[nn.Module, Tensor]:
    return Attention(), torch.randn(8, 4, 6)


def timm_resnet() -> tuple[nn.Module, Tensor]:
    net = timm.create_model("resnet10t", num_classes=3, drop_rate=0.3)
    return net, torch.randn(6, 3, 32, 32)


def timm_vit() -> tuple[nn.Module, Tensor]:
    net = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=2, num_classes=3, drop_rate=0.1,
        proj_drop_rate=0.1, attn_drop_rate=0.1,
    )  # fmt: skip
    return net, torch.randn(4, 3, 32, 32)


NETWORKS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    f.__name__: f for f in (linear, mlp, convolution, attention, timm_resnet, timm_vit)
}


def make(name: str) -> tuple[nn.Module, Tensor]:
    """The network and an input, in float64, from a fixed seed."""
    torch.manual_seed(7)
    net, x = NETWORKS[name]()
    return net.double(), x.double()

"""Wide residual networks (Zagoruyko and Komodakis 2016)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from revar.nets.base import Dropout, SplitClassifier


class WideBlock(nn.Module):
    """Batch norm and ReLU before each of two 3x3 convolutions, dropout between these.

    Where the shape changes the shortcut is a 1x1 convolution of the activated input.
    """

    def __init__(self, n_in: int, n_out: int, stride: int, rate: float) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(n_in)
        self.first = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(n_out)
        self.drop = nn.Dropout2d(rate)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.projection: nn.Module | None = None
        if stride > 1 or n_in != n_out:
            self.projection = nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[n, n_in, h, w] to [n, n_out, h / stride, w / stride]."""
        active = F.relu(self.first_norm(x))
        inner = self.drop(F.relu(self.second_norm(self.first(active))))
        residual: Tensor = self.second(inner)
        return residual + (x if self.projection is None else self.projection(active))


def wide_resnet(
    input_shape: tuple[int, ...],
    n_outputs: int,
    dropout: Dropout,
    *,
    depth: int = 28,
    widen: int = 10,
) -> SplitClassifier:
    """Three stages of ``(depth - 4) / 6`` blocks and ``16, 32, 64`` times ``widen`` channels.

    WRN-28-10 has 36.5 M parameters. ``everywhere`` is the paper's own place for dropout, inside
    every block; there whole channels are dropped, as in the other networks here.
    """
    blocks = (depth - 4) // 6
    layers: list[nn.Module] = [nn.Conv2d(input_shape[0], 16, 3, padding=1, bias=False)]
    n_in = 16
    for stage in range(3):
        width = 16 * 2**stage * widen
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(WideBlock(n_in, width, stride, dropout.trunk_rate))
            n_in = width
    layers += [nn.BatchNorm2d(n_in), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return SplitClassifier(nn.Sequential(*layers), n_in, n_outputs, dropout.rate)

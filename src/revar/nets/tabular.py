"""A network for tables that embeds every input number before it mixes them.

A table arrives as standardised numbers, with the categories of a column as one-hot inputs. An
embedding of a category is a vector that is added where its input is one, which is what an
embedding of each input gives: it takes two values there, one for the category and one for its
absence. So numbers and categories go through the same layer, and which inputs belong to one
column need not be known.
"""

from __future__ import annotations

from math import prod, tau

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.nets.base import Dropout, SplitClassifier


class NumberEmbedding(nn.Module):
    """Each input number v to a vector of its own (Gorishniy et al. 2022, periodic features).

    ``relu(A_j [v, sin(2 pi s c_j v), cos(2 pi s c_j v)] + b_j)`` for input j, with learned
    frequencies ``s c_j`` that start as normal numbers of deviation ``s = spread``, and v itself
    kept beside its waves. The parameter is ``c_j``, of unit size: a learning rate that suits the
    weights would throw the frequencies themselves about, and no wave would be learned.
    """

    def __init__(self, n_inputs: int, width: int, waves: int = 8, spread: float = 0.3) -> None:
        super().__init__()
        self.spread = spread
        features = 1 + 2 * waves
        bound = features**-0.5
        self.frequencies = nn.Parameter(torch.empty(n_inputs, waves))
        self.weight = nn.Parameter(torch.empty(n_inputs, features, width))
        self.bias = nn.Parameter(torch.empty(n_inputs, width))
        nn.init.normal_(self.frequencies)
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """[n, n_inputs] to [n, n_inputs * width]."""
        value = x.unsqueeze(-1)
        angle = tau * self.spread * self.frequencies * value
        features = torch.cat([value, angle.sin(), angle.cos()], -1)
        embedded = torch.einsum("njf,jfw->njw", features, self.weight) + self.bias
        return F.relu(embedded).flatten(1)


class DenseBlock(nn.Module):
    """``x + drop(linear(drop(relu(linear(norm(x))))))`` (Gorishniy et al. 2021)."""

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.BatchNorm1d(width),
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            nn.Dropout(rate),
            nn.Linear(2 * width, width),
            nn.Dropout(rate),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[n, width] to the same."""
        added: Tensor = x + self.residual(x)
        return added


def tabular(
    input_shape: tuple[int, ...],
    n_outputs: int,
    dropout: Dropout,
    *,
    embedding: int = 8,
    width: int = 128,
    depth: int = 3,
) -> SplitClassifier:
    """Embeddings of every input, a linear layer, residual blocks, batch norm and ReLU."""
    n_inputs = prod(input_shape)
    layers: list[nn.Module] = [
        nn.Flatten(),
        NumberEmbedding(n_inputs, embedding),
        nn.Linear(n_inputs * embedding, width),
    ]
    layers += [DenseBlock(width, dropout.trunk_rate) for _ in range(depth)]
    layers += [nn.BatchNorm1d(width), nn.ReLU()]
    return SplitClassifier(nn.Sequential(*layers), width, n_outputs, dropout.rate)

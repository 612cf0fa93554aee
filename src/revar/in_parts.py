"""Large batches in little memory: the trunk runs on a part of the rows at a time.

The features of all rows are kept, what lies between is not: it is computed again in the backward
pass, part by part (Chen et al. 2016, "Training deep nets with sublinear memory cost"). Losses,
weights and alignments see the whole batch, so gradient and hypergradient are those of the whole
batch, whatever the loss does with its rows. Only layers of the trunk that mix rows or draw for them
see the parts: batch norm in training mode takes its statistics from each one, as it would from
smaller batches, and dropout draws other masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from revar.again import computed_again

Features = Callable[[Tensor], Tensor]


@contextmanager
def in_parts(net: nn.Module, rows: int | None) -> Iterator[None]:
    """Let the trunk of a classifier run on at most so many rows at a time.

    Args:
        net: a classifier.
        rows: of a part; ``None`` runs all at once and keeps everything.
    """
    if rows is None:
        yield
        return
    trunk: Features = net.forward_features  # type: ignore[assignment]

    def forward_features(x: Tensor) -> Tensor:
        # Of nearly equal size: batch norm cannot take its statistics from a last single row.
        parts = x.tensor_split(-(-len(x) // rows))
        if not torch.is_grad_enabled():
            return torch.cat([trunk(part) for part in parts])
        return torch.cat([computed_again(net, trunk, part) for part in parts])

    net.forward_features = forward_features  # type: ignore[assignment]
    try:
        yield
    finally:
        del net.forward_features

"""What an epoch came to: sums kept on the device, and the line of the log they become."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One line of the log.

    Attributes:
        epoch: epochs done.
        step: steps done.
        lr: the learning rate of the last step.
        loss: mean training loss of the epoch.
        accuracy: of the training passes, dropout on, where there are classes.
        meta_loss: mean over the epoch's meta steps, if there were any.
        weight_mean: of the weights, if there were any.
        weight_spread: their standard deviation.
        seconds: the epoch took.
    """

    epoch: int
    step: int
    lr: float
    loss: float
    accuracy: float | None
    meta_loss: float | None
    weight_mean: float | None
    weight_spread: float | None
    seconds: float


class Totals:
    """Running sums of an epoch, kept on the device so that no step waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(8, dtype=torch.float64, device=device)

    def add_step(self, loss: Tensor, hits: Tensor | None, n: int, weights: Tensor | None) -> None:
        """Count a training step; hits of ``None`` leave the accuracy open."""
        if self.sums.is_cpu:
            self._add_here(loss, hits, n, weights)
            return
        right = self.sums[0] * torch.nan if hits is None else hits.double()
        new = [loss.detach().double() * n, right, torch.full_like(self.sums[0], n)]
        if weights is None:
            new += [torch.zeros_like(self.sums[0])] * 3
        else:
            w = weights.detach().double()
            new += [w.sum(), w.square().sum(), torch.full_like(self.sums[0], w.numel())]
        self.sums[:6] += torch.stack(new)

    def _add_here(self, loss: Tensor, hits: Tensor | None, n: int, weights: Tensor | None) -> None:
        """The same in numbers of the host, where nothing waits: tensors of one cost more."""
        new = [loss.item() * n, math.nan if hits is None else hits.item(), n, 0, 0, 0, 0, 0]
        if weights is not None:
            w = weights.detach().double()
            new[3:6] = w.sum().item(), w.square().sum().item(), w.numel()
        self.sums += torch.tensor(new, dtype=torch.float64)

    def add_outer(self, meta_loss: Tensor) -> None:
        """Count a meta step."""
        self.sums[6] += meta_loss.double()
        self.sums[7] += 1

    def figures(self) -> dict[str, float]:
        """The means so far; this waits for the device."""
        loss, hits, n, w, w2, weighted, meta, outer = self.sums.tolist()
        figures = {"loss": loss / max(n, 1)}
        if not math.isnan(hits):
            figures["accuracy"] = hits / max(n, 1)
        if outer:
            figures["meta_loss"] = meta / outer
        if weighted:
            mean = w / weighted
            figures["weight_mean"] = mean
            figures["weight_spread"] = math.sqrt(max(w2 / weighted - mean**2, 0.0))
        return figures

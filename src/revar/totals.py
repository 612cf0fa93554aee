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
        self._numbers: dict[float, Tensor] = {}
        self._reading: tuple[Tensor, torch.cuda.Event] | None = None
        self._read: dict[str, float] = {}

    def begin(self) -> None:
        """Open the books of an epoch; a reading of the last one may still be under way."""
        self.sums.zero_()
        self._reading, self._read = None, {}

    def add_step(self, loss: Tensor, hits: Tensor | None, n: int, weights: Tensor | None) -> None:
        """Count a training step; hits of ``None`` leave the accuracy open."""
        right = self._number(math.nan) if hits is None else hits.double()
        new = [loss.detach().double() * n, right, self._number(n)]
        if weights is None:
            new += [self._number(0)] * 3
        else:
            w = weights.detach().double()
            new += [w.sum(), (w * w).sum(), self._number(w.numel())]
        self.sums[:6] += torch.stack(new)

    def _number(self, value: float) -> Tensor:
        """On the device, made once: batches come in few sizes."""
        if value not in self._numbers:
            self._numbers[value] = torch.full_like(self.sums[0], value)
        return self._numbers[value]

    def add_outer(self, meta_loss: Tensor) -> None:
        """Count a meta step."""
        self.sums[6].add_(meta_loss)
        self.sums[7].add_(1)

    def figures(self) -> dict[str, float]:
        """The means so far; this waits for the device."""
        return _means(self.sums)

    def recent(self) -> dict[str, float]:
        """The means at some earlier call, or nothing yet; no GPU is waited for.

        A call asks for the sums as they are when the device has come so far, and later ones bring
        what has arrived. On the CPU these are the means so far.
        """
        if self.sums.device.type != "cuda":
            return self.figures()
        if self._reading is None:
            sums = torch.empty(self.sums.shape, dtype=self.sums.dtype, pin_memory=True)
            self._reading = sums, torch.cuda.Event()
        elif not self._reading[1].query():
            return self._read
        else:
            self._read = _means(self._reading[0])
        sums, arrived = self._reading
        sums.copy_(self.sums, non_blocking=True)
        arrived.record(torch.cuda.current_stream(self.sums.device))
        return self._read


def _means(sums: Tensor) -> dict[str, float]:
    """What sums of an epoch come to."""
    loss, hits, n, w, w2, weighted, meta, outer = sums.tolist()
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

"""AdaFocal: focal loss whose gamma follows the calibration of held-out data (Ghosh et al. 2022).

After every epoch the meta set says for each range of confidence whether the classifier is over-
or underconfident there; the gamma of that range then rises or falls, below zero too.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from revar import fields
from revar.errors import InputError
from revar.functional import at_least_single, mode
from revar.methods.base import Method, Plan, Sizes
from revar.methods.focal_loss import focal_factor, label_log_probability
from revar.sharded import sharing
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task

CHUNK = 512
"""Examples of the meta set in one evaluation pass."""


class Bins(nn.Module):
    """Ranges of probability with a gamma each.

    A probability belongs to bin b if ``edges[b - 1] <= p < edges[b]``; the first bin has no lower
    edge and the last no upper one.

    Attributes:
        edges: [B - 1] inner edges, never falling.
        gamma: [B]
    """

    edges: Tensor
    gamma: Tensor

    def __init__(self, count: int, gamma: float) -> None:
        super().__init__()
        self.register_buffer("edges", torch.linspace(0, 1, count + 1)[1:-1].clone())
        self.register_buffer("gamma", torch.full((count,), gamma))

    def find(self, p: Tensor) -> Tensor:
        """[n] numbers of the bins of [n] probabilities."""
        return torch.searchsorted(self.edges, p.detach().to(self.edges.dtype), right=True)


def equal_mass_edges(confidence: Tensor, count: int) -> Tensor:
    """The inner edges of bins that hold the same number of examples, ties apart, [count - 1]."""
    n = len(confidence)
    first = torch.arange(1, count, device=confidence.device) * n // count
    return confidence.sort().values[first]


def calibration_gaps(confidence: Tensor, correct: Tensor, weight: Tensor, bins: Tensor) -> Tensor:
    """Mean confidence minus accuracy of each bin, and 0 for one that is empty.

    Args:
        confidence: [n]
        correct: [n] whether the prediction is right.
        weight: [n] how much each example counts.
        bins: [B, n] whether an example is in a bin.

    Returns:
        [B]
    """
    # A product and a sum rather than a scatter, which adds in any order on a GPU.
    share = bins * weight
    mass = share.sum(dim=1)
    gap = (share * (confidence - correct.to(confidence.dtype))).sum(dim=1)
    return torch.where(mass > 0, gap / mass.clamp_min(torch.finfo(gap.dtype).tiny), 0.0)


@dataclass(frozen=True, kw_only=True)
class AdaFocal(Method):
    """Fields, with the authors' value in brackets; the ReVaR paper gives none.

    Attributes:
        bins: B, of equal mass over the meta set's confidences [15].
        rate: lambda, how fast gamma follows the gap [1].
        gamma_initial: in every bin before the first epoch ends [1]; not within ``switch`` of 0.
        gamma_max: [20]
        gamma_min: [-2]
        switch: a gamma nearer to 0 than this changes sides [0.2].
    """

    bins: int = 15
    rate: float = 1.0
    gamma_initial: float = 1.0
    gamma_max: float = 20.0
    gamma_min: float = -2.0
    switch: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.require(self.bins >= 1, self, "bins", "be at least 1")
        fields.require(self.rate >= 0, self, "rate", "not be negative")
        fields.require(self.switch > 0, self, "switch", "be positive")
        fields.require(self.gamma_max >= self.switch, self, "gamma_max", "be at least switch")
        fields.require(self.gamma_min <= -self.switch, self, "gamma_min", "be at most -switch")
        inside = self.gamma_min <= self.gamma_initial <= self.gamma_max
        fields.require(inside, self, "gamma_initial", "be from gamma_min to gamma_max")
        # From nearer to 0 every bin would change sides after the first epoch, whatever its gap.
        far = abs(self.gamma_initial) >= self.switch
        fields.require(far, self, "gamma_initial", "not be nearer to 0 than switch")

    @property
    def uses_meta(self) -> bool:
        """To measure calibration on."""
        return True

    def check(self, plan: Plan) -> None:
        """Refuse a run without a meta set: gamma would never change."""
        if plan.meta_size == 0:
            msg = "the meta set is empty, AdaFocal measures calibration on it; set meta_fraction"
            raise InputError(msg)

    def build_memory(self, sizes: Sizes) -> Bins:
        """Bins of equal width with the initial gamma, until the first epoch ends."""
        return Bins(self.bins, self.gamma_initial)

    def kind(self, clock: Clock) -> Hashable:
        """All steps are alike."""
        return "every"

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i factor_i l(y_i, f(x_i))``, gamma from the bin of the label's probability.

        The factor is ``(1 - p_y)^gamma``, and ``(1 + p_y)^|gamma|`` for a negative gamma.
        """
        assert isinstance(networks.memory, Bins)
        logits = networks.classifier(batch.x)
        log_p_y = label_log_probability(logits, batch.y)
        gamma = networks.memory.gamma[networks.memory.find(log_p_y.exp())]
        losses = focal_factor(log_p_y, gamma) * task.losses(at_least_single(logits), batch)
        return StepResult(losses.mean(), logits)

    @torch.no_grad()
    def finish_epoch(self, networks: Networks, task: Task, feeds: Feeds, clock: Clock) -> None:
        """Measure the gaps on the meta set, and move edges and gammas."""
        bins = networks.memory
        assert isinstance(bins, Bins)
        confidence, correct, weight = self._meta_confidence(networks, feeds)
        bins.edges.copy_(equal_mass_edges(confidence, self.bins))
        members = bins.find(confidence) == torch.arange(self.bins, device=weight.device)[:, None]
        bins.gamma.copy_(
            self.updated(bins.gamma, calibration_gaps(confidence, correct, weight, members))
        )

    def updated(self, gamma: Tensor, gap: Tensor) -> Tensor:
        """``gamma * exp(rate * gap)``, the sign of the exponent turned for negative gamma.

        What falls short of ``switch`` jumps to the other side of zero; then all is clipped.
        A positive gap, overconfidence, thus always raises gamma.

        Args:
            gamma: [B] none of them 0.
            gap: [B] confidence minus accuracy.
        """
        moved = gamma * (self.rate * torch.where(gamma > 0, gap, -gap)).exp()
        jumped = torch.where(moved.abs() < self.switch, -self.switch * moved.sign(), moved)
        return jumped.clamp(self.gamma_min, self.gamma_max)

    def _meta_confidence(self, networks: Networks, feeds: Feeds) -> tuple[Tensor, Tensor, Tensor]:
        """Confidence, correctness and weight of the whole meta set, by deterministic passes."""
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        with mode(networks.classifier, dropout=False, statistics=True):
            for index in torch.arange(feeds.meta_size).split(CHUNK):
                batch = feeds.meta_at(index)
                with sharing(len(index)):
                    logits = at_least_single(networks.classifier(batch.x))
                confidence, predicted = logits.softmax(dim=1).max(dim=1)
                weight = torch.ones_like(confidence) if batch.weight is None else batch.weight
                parts.append((confidence, predicted == batch.y, weight))
        confidence, correct, weight = (torch.cat(column) for column in zip(*parts, strict=True))
        return confidence, correct, weight

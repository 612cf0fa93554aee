"""Maximum mean calibration error as a penalty (Kumar, Sarawagi and Jain 2018).

Cross-entropy plus a kernel distance between how far right predictions are from confidence 1 and
how far wrong ones are from confidence 0, at similar confidences.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from revar import fields
from revar.functional import at_least_single
from revar.methods.base import Method
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task

FLOOR = 1e-10
"""Below this the squared error counts as zero, and its root has no slope."""


def weighted_mmce(
    confidence: Tensor,
    correct: Tensor,
    weight: Tensor,
    *,
    kernel_width: float = 0.4,
    double_normalised: bool = False,
) -> Tensor:
    """The weighted form, MMCE_w, in which the right and the wrong predictions count alike.

    With ``d_i = (1 - r_i) / a`` for the a right predictions and ``d_i = -r_i / b`` for the b
    wrong ones, ``MMCE_w^2 = sum_ij d_i d_j exp(-|r_i - r_j| / width)``: written out, the three
    sums of the paper. Zero where there are only right or only wrong predictions.

    Args:
        confidence: [n] r, the largest probability; the gradient flows through it alone.
        correct: [n] whether the prediction is right.
        weight: [n] how much each example counts; a and b are sums of it.
        kernel_width: of the Laplacian kernel.
        double_normalised: divide the three sums by a^2, b^2 and ab once more, as the published
            code does.

    Returns:
        a scalar
    """
    right = weight * correct
    wrong = weight - right
    a, b = right.sum(), wrong.sum()
    both = (a > 0) & (b > 0)
    a, b = torch.where(both, a, 1.0), torch.where(both, b, 1.0)
    if double_normalised:
        a, b = a.square(), b.square()
    d = right * (1 - confidence) / a - wrong * confidence / b
    kernel = (-(confidence[:, None] - confidence).abs() / kernel_width).exp()
    # A sum, not a matrix product: autocast would round that to half precision.
    squared = (d[:, None] * d * kernel).sum()
    return torch.where(both, squared.clamp_min(FLOOR).sqrt(), 0.0)


@dataclass(frozen=True, kw_only=True)
class MMCE(Method):
    """Fields, with the authors' value in brackets; the ReVaR paper gives none.

    Attributes:
        penalty: lambda of the calibration error [4, and 2 in the code of Mukhoti et al., both of
            which normalise twice]. ``None`` is 4 with ``double_normalised`` and 1 without: 4
            times the equation drives every confidence to 1/2, see docs/methods/mmce.md.
        kernel_width: [0.4]
        double_normalised: weaken the penalty as the published code does, to reproduce its
            numbers [yes in the code, no in the equations].
    """

    penalty: float | None = None
    kernel_width: float = 0.4
    double_normalised: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = self.penalty is None or self.penalty >= 0
        fields.require(allowed, self, "penalty", "not be negative")
        fields.require(self.kernel_width > 0, self, "kernel_width", "be positive")

    @property
    def factor(self) -> float:
        """Lambda."""
        if self.penalty is not None:
            return self.penalty
        return 4.0 if self.double_normalised else 1.0

    def kind(self, clock: Clock) -> Hashable:
        """All steps are alike."""
        return "every"

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i l(y_i, f(x_i)) + penalty * MMCE_w`` of the batch."""
        logits = at_least_single(networks.classifier(batch.x))
        confidence, predicted = logits.softmax(dim=1).max(dim=1)
        error = weighted_mmce(
            confidence,
            predicted == batch.y,
            task.weighted(torch.ones_like(confidence), batch),
            kernel_width=self.kernel_width,
            double_normalised=self.double_normalised,
        )
        loss = task.losses(logits, batch).mean() + self.factor * error
        return StepResult(loss, logits)

"""Focal arithmetic: cross-entropy times a power of how unlikely the label is.

Lin et al. (2017) scale the loss of an example down once its label is likely, so that training
stops pushing confidence up; the inverse form of Ghosh et al. (2022) scales it up instead.
"""

from __future__ import annotations

import torch
from torch import Tensor

from revar.functional import at_least_single


def label_log_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """``log p_y`` of each example, [n], from [n, C] logits and [n] class numbers."""
    log_p = at_least_single(logits).log_softmax(dim=1)
    return log_p.gather(1, labels[:, None]).squeeze(1)


def focal_factor(log_p_y: Tensor, gamma: Tensor) -> Tensor:
    """What multiplies the cross-entropy: ``(1 - p_y)^gamma``, or ``(1 + p_y)^|gamma|`` if negative.

    Gamma 0 gives 1, which leaves cross-entropy. The factor is differentiable in ``log_p_y``; its
    gradient is part of the focal loss.

    Args:
        log_p_y: [n] log-probability of the label.
        gamma: [n] or a scalar, taken as a constant.

    Returns:
        [n]
    """
    # A base of exactly 0 has an infinite slope for gamma below 1, and infinity times a
    # cross-entropy of 0 is not a number.
    unlikely = (-torch.expm1(log_p_y)).clamp_min(torch.finfo(log_p_y.dtype).tiny)
    power = gamma.detach().to(log_p_y.dtype)
    return torch.where(power < 0, 1 + log_p_y.exp(), unlikely).pow(power.abs())

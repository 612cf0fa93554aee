"""The scores of `revar.scores` on tensors, in float64, by operations that every runtime has."""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-300
"""Where the logarithm of a probability of zero is taken; times zero it is zero again."""


def softmax(logits: Tensor) -> Tensor:
    """[n, C] logits to the negative log-odds of the top class, [n]."""
    z = logits.double()
    top = z.argmax(-1, keepdim=True)
    classes = torch.arange(z.shape[-1], device=z.device)
    others = torch.where(classes == top, -torch.inf, z)
    largest = others.amax(-1, keepdim=True)
    rest = largest.squeeze(-1) + (others - largest).exp().sum(-1).log()
    return rest - z.amax(-1)


def softmax_entropy(logits: Tensor) -> Tensor:
    """[n, C] logits to the entropy of their softmax, [n]."""
    log_p = logits.double().log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def dropout_scores(samples: Tensor) -> dict[str, Tensor]:
    """[T, n, C] logits of the passes to every score that reads them, [n] each."""
    log_p = samples.double().log_softmax(-1)
    p = log_p.exp()
    mean = p.mean(0)
    entropy = -(mean * mean.clamp_min(_TINY).log()).sum(-1)
    expected = -(p * log_p).sum(-1).mean(0)
    return {
        "dropout_entropy": entropy,
        "dropout_variance": (p - mean).square().sum(-1).mean(0),
        "mutual_information": (entropy - expected).clamp_min(0.0),
        "mcd": entropy,
    }

"""A small meta step on any classifier, for those that change how its passes are taken."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from revar.bilevel import OneStep, Strategy, alignments
from revar.functional import Params, parameters
from revar.stochastic import DropoutPasses


def aligned(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    losses: Callable[[Params], Tensor],
    strategy: Strategy,
    passes: int = 3,
) -> Tensor:
    """[n] alignments of n examples with themselves, in reverse order, as the meta set.

    Args:
        net: a classifier with dropout, in float64.
        x: [n, ...] inputs.
        y: [n] class numbers.
        losses: of the training step.
        strategy: of the hypergradient.
        passes: T of the variance term.
    """
    sampler = DropoutPasses.of(net, x)

    def meta_loss(params: Params) -> Tensor:
        logits, samples = sampler.run(x.flip(0), passes, params)
        spread = samples.softmax(-1).var(0, unbiased=False).sum(-1).mean()
        return nn.functional.cross_entropy(logits, y.flip(0)) + spread

    torch.manual_seed(1)
    weights = torch.linspace(0.5, 1.5, len(x)).double()
    problem = OneStep(losses=losses, weights=weights, lr=0.1, meta_loss=meta_loss)
    return alignments(problem, parameters(net), strategy).values

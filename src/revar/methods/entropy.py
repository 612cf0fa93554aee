"""Entropy regularisation of any method (Feng et al. 2023).

Confident predictions are rewarded during training; the authors then select by softmax response
over the class logits, whatever the method's own score.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from revar.functional import at_least_single


def entropies(logits: Tensor, form: Literal["entropy", "logits"]) -> Tensor:
    """[n] ``H(p_i)`` over the class probabilities.

    Args:
        logits: [n, C] class logits.
        form: ``entropy``; or ``logits`` for ``-sum_c p_c z_c``, which the authors' code
            has in its place. That equals H minus logsumexp, so it also rewards large logits.
    """
    z = at_least_single(logits)
    log_p = z.log_softmax(dim=1)
    return -(log_p.exp() * (log_p if form == "entropy" else z)).sum(dim=1)

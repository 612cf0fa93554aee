"""An output for "none of these" beside the class logits, as Deep Gamblers and SAT have it.

A last layer of C+1 outputs is one of C outputs beside one of a single output: the class logits
stay [n, C] for everybody else, and the softmax over C+1 is put together here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from revar.functional import at_least_single
from revar.types import Networks


def with_abstention(networks: Networks, x: Tensor) -> tuple[Tensor, Tensor]:
    """Class logits [n, C] and the logit of abstaining [n], of one pass of the trunk."""
    classifier = networks.classifier
    features = classifier.forward_features(x)
    return classifier.forward_head(features), abstention_logit(networks, features)


def abstention_logit(networks: Networks, features: Tensor) -> Tensor:
    """[n] the logit of abstaining on the trunk's features."""
    assert isinstance(networks.heads, nn.Linear)
    logit: Tensor = networks.heads(networks.classifier.embed(features)).squeeze(-1)
    return logit


def joint_log_probabilities(logits: Tensor, abstention: Tensor) -> Tensor:
    """[n, C+1] log-softmax over the C class logits [n, C] and the logit of abstaining [n]."""
    joint = torch.cat([logits, abstention[:, None]], dim=1)
    return at_least_single(joint).log_softmax(dim=1)


def abstention_log_odds(logits: Tensor, abstention: Tensor) -> Tensor:
    """[n] ``log p_{C+1} / (1 - p_{C+1})``: ranks as p_{C+1} does and never saturates.

    The sum over the other classes drops out of the ratio: ``a - logsumexp_c z_c``.
    """
    return at_least_single(abstention) - at_least_single(logits).logsumexp(dim=1)

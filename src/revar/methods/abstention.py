"""An output for "none of these" beside the class logits, as Deep Gamblers and SAT have it.

A last layer of C+1 outputs is one of C outputs beside one of a single output: the class logits
stay [n, C] for everybody else, and the softmax over C+1 is put together here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from revar import fields
from revar.errors import InputError
from revar.functional import at_least_single
from revar.methods.base import Method, Plan, phase_start
from revar.nets.base import Classifier
from revar.sharded import whole
from revar.types import Networks


@dataclass(frozen=True, kw_only=True)
class Abstaining(Method):
    """A method with such an output, which is trained after a phase of plain cross-entropy.

    Attributes:
        pretrain: share of the budget of that phase.
        pretrain_epochs: the same in epochs, instead.
    """

    pretrain: float
    pretrain_epochs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        epochs = self.pretrain_epochs
        fields.require(0 <= self.pretrain < 1, self, "pretrain", "be in [0, 1)")
        fields.require(epochs is None or epochs >= 0, self, "pretrain_epochs", "not be negative")

    @property
    def own_score(self) -> str:
        """Log-odds of abstaining."""
        return "abstention"

    def check(self, plan: Plan) -> None:
        """Refuse a run that would end before it learns to abstain."""
        start = self.abstains_from(plan.total, plan.steps_per_epoch)
        if start >= plan.total:
            msg = (
                f"{type(self).__name__} would never learn to abstain: {plan.total} steps, "
                f"pretraining until step {start}; train longer or lower pretrain"
            )
            raise InputError(msg)

    def build_heads(self, classifier: Classifier, n_classes: int) -> nn.Module:
        """The logit of p_{C+1}."""
        return nn.Linear(classifier.n_features, 1)

    def scores(
        self, networks: Networks, x: Tensor, features: Tensor, logits: Tensor
    ) -> dict[str, Tensor]:
        """``abstention``: log-odds of p_{C+1}."""
        return {"abstention": abstention_log_odds(logits, abstention_logit(networks, features))}

    def abstains_from(self, total: int, steps_per_epoch: int) -> int:
        """The step at which pretraining ends."""
        return phase_start(self.pretrain, self.pretrain_epochs, total, steps_per_epoch)


def with_abstention(networks: Networks, x: Tensor) -> tuple[Tensor, Tensor]:
    """Class logits [n, C] and the logit of abstaining [n], of one pass of the trunk."""
    classifier = networks.classifier
    features = classifier.forward_features(x)
    return classifier.forward_head(features), whole(abstention_logit(networks, features))


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

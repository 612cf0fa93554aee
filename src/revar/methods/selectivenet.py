"""SelectiveNet (Geifman and El-Yaniv 2019): a classifier trained together with what to reject.

Three heads on one trunk: f predicts, g selects, and h, trained on everything, keeps the trunk
from fitting the selected part alone.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from revar import fields
from revar.functional import at_least_single, mode
from revar.methods.base import Method
from revar.nets.base import Classifier
from revar.sharded import whole
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


class SelectiveHeads(nn.Module):
    """g and h on the features of f.

    Args:
        n_features: width of the features.
        n_classes: C.
        width: of g's hidden layer.
        start: the mean of g before anything is learned.
    """

    def __init__(self, n_features: int, n_classes: int, width: int, start: float) -> None:
        super().__init__()
        norm = nn.BatchNorm1d(width)
        # The authors' code divides by ten after the norm, in place of this.
        nn.init.constant_(norm.weight, 0.1)
        self.selection = nn.Sequential(
            nn.Linear(n_features, width), nn.ReLU(), norm, _last_layer(width, start)
        )
        self.auxiliary = nn.Linear(n_features, n_classes)

    def select(self, embedding: Tensor) -> Tensor:
        """[n, n_features] to the logit of g, [n]."""
        logit: Tensor = self.selection(embedding).squeeze(-1)
        return logit


def _last_layer(width: int, start: float) -> nn.Linear:
    layer = nn.Linear(width, 1)
    nn.init.constant_(layer.bias, math.log(start / (1 - start)))
    return layer


@dataclass(frozen=True, kw_only=True)
class SelectiveNet(Method):
    """Fields, with the authors' value in brackets.

    Attributes:
        coverage: c, the share that g is to keep [one model for each of 0.7 to 0.95; the ReVaR
            paper names none]. Rejection at other coverages ranks by the same g.
        penalty: lambda of the missing coverage [32].
        mixing: alpha, share of the selective loss; the rest is h's [0.5].
        normalise_by_coverage: divide the selective risk by the mean of g [the paper does, the
            code does not: there g can lower the loss by rejecting, down to the coverage].
        selection_start: mean of g at the first step: ``coverage``, at most 0.99; or ``half``
            [what the code's zero bias gives: at its learning rate the penalty then throws g far
            past the coverage, to where it is 1 everywhere and has no gradient].
        width: of g's hidden layer [512].
    """

    coverage: float = 0.8
    penalty: float = 32.0
    mixing: float = 0.5
    normalise_by_coverage: bool = True
    selection_start: Literal["coverage", "half"] = "coverage"
    width: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.require(0 < self.coverage <= 1, self, "coverage", "be in (0, 1]")
        fields.require(self.penalty >= 0, self, "penalty", "not be negative")
        # Without the selective loss neither f nor g would learn.
        fields.require(0 < self.mixing <= 1, self, "mixing", "be in (0, 1]")
        fields.require(self.width >= 1, self, "width", "be at least 1")

    @property
    def own_score(self) -> str:
        """Negative logit of g."""
        return "selection"

    def build_heads(self, classifier: Classifier, n_classes: int) -> nn.Module:
        """G and h."""
        start = min(self.coverage, 0.99) if self.selection_start == "coverage" else 0.5
        return SelectiveHeads(classifier.n_features, n_classes, self.width, start)

    def kind(self, clock: Clock) -> Hashable:
        """All steps are alike."""
        return "every"

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``alpha L(f, g) + (1 - alpha) mean_i l(y_i, h(x_i))``, see `selective_loss`."""
        assert isinstance(networks.heads, SelectiveHeads)
        features = networks.classifier.forward_features(batch.x)
        logits = networks.classifier.forward_head(features)
        embedding = networks.classifier.embed(features)
        # Batch norm cannot take its statistics from a single example.
        with mode(networks.heads, dropout=True, statistics=len(batch.y) < 2):
            selection = whole(networks.heads.select(embedding))
        selective = selective_loss(
            task.losses(logits, batch),
            selection,
            coverage=self.coverage,
            penalty=self.penalty,
            normalise=self.normalise_by_coverage,
        )
        auxiliary = task.losses(whole(networks.heads.auxiliary(embedding)), batch).mean()
        return StepResult(self.mixing * selective + (1 - self.mixing) * auxiliary, logits)

    def scores(
        self, networks: Networks, x: Tensor, features: Tensor, logits: Tensor
    ) -> dict[str, Tensor]:
        """``selection``: the negative logit of g."""
        assert isinstance(networks.heads, SelectiveHeads)
        return {"selection": -networks.heads.select(networks.classifier.embed(features))}


def selective_loss(
    losses: Tensor, selection: Tensor, *, coverage: float, penalty: float, normalise: bool
) -> Tensor:
    """``mean_i(g_i l_i) / phi + lambda max(0, c - phi)^2`` with ``phi = mean_i g_i``.

    Args:
        losses: [n] of f, weighted or not.
        selection: [n] logits of g.
        coverage: c.
        penalty: lambda.
        normalise: divide by phi; the authors' code does not.

    Returns:
        A scalar.
    """
    logit = at_least_single(selection)
    g = logit.sigmoid()
    if normalise:
        # g_i / sum_j g_j from logarithms: phi may underflow, the quotient does not.
        risk = (nn.functional.logsigmoid(logit).softmax(dim=0) * losses).sum()
    else:
        risk = (g * losses).mean()
    return risk + penalty * (coverage - g.mean()).relu().square()

"""The U-Score network g, by what it reads.

All return the *logit* of g(x); the weight is its sigmoid (``g: X -> [0, 1]``, section 3.1). Ranking
by the logit never ties where the sigmoid would saturate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.nets.base import Classifier, is_watched
from revar.sharded import current, whole


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a scorer may look at.

    Attributes:
        x: [n, ...] normalised inputs.
        embedding: [n, d] the classifier's features, detached.
        log_odds: [n] log-odds of the classifier's top class, detached.
    """

    x: Tensor
    embedding: Tensor
    log_odds: Tensor


@dataclass(frozen=True, slots=True)
class Scored:
    """The logit of g in two parts.

    Attributes:
        base: [n] what g says before it has learned anything; ``None`` where that is nothing.
        correction: [n] what it has learned.
    """

    base: Tensor | None
    correction: Tensor

    @property
    def logit(self) -> Tensor:
        """[n] the logit of g."""
        return self.correction if self.base is None else self.base + self.correction

    def of_all(self) -> Scored:
        """That of the whole batch, where several processes share one."""
        if current() is None:
            return self
        return Scored(None if self.base is None else whole(self.base), whole(self.correction))


class Scorer(ABC, nn.Module):
    """Evidence to the logit of g."""

    @abstractmethod
    def forward(self, evidence: Evidence) -> Scored:
        """[n] each."""


class NetworkScorer(Scorer):
    """A network of its own on the inputs: the paper's U-Score.

    Args:
        net: g.
        reduction: squares of so many pixels a side are averaged before; 1 leaves images alone.
    """

    def __init__(self, net: Classifier, reduction: int = 1) -> None:
        super().__init__()
        self.net, self.reduction = net, reduction

    def forward(self, evidence: Evidence) -> Scored:
        """No base."""
        return Scored(None, self.net(self.reduced(evidence.x)).squeeze(-1))

    def reduced(self, x: Tensor) -> Tensor:
        """What the network reads of inputs."""
        return x if self.reduction == 1 else F.avg_pool2d(x, self.reduction)


class _Perceptron(nn.Sequential):
    """Two layers, in single precision: so small a net takes longer to round than to compute."""

    def __init__(self, n_inputs: int, width: int) -> None:
        super().__init__(
            nn.LayerNorm(n_inputs), nn.Linear(n_inputs, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """[n, d] to [n, 1]."""
        device = inputs.device.type
        if not torch.is_autocast_enabled(device):
            return self._run(inputs)
        with torch.autocast(device, enabled=False):
            return self._run(inputs)

    def _run(self, inputs: Tensor) -> Tensor:
        """Each layer without what a module does around it, if they are those it was built with."""
        layers: list[Any] = list(self._modules.values())
        if [*map(type, layers)] != _LAYERS or any(map(is_watched, layers)):
            result: Tensor = super().forward(inputs)  # type: ignore[no-untyped-call]
            return result
        norm, first, _, last = layers
        of_norm, of_first, of_last = norm._parameters, first._parameters, last._parameters
        normed = torch.layer_norm(
            inputs, norm.normalized_shape, of_norm["weight"], of_norm["bias"], norm.eps
        )
        hidden = F.linear(normed, of_first["weight"], of_first["bias"]).relu_()
        return F.linear(hidden, of_last["weight"], of_last["bias"])


_LAYERS = [nn.LayerNorm, nn.Linear, nn.ReLU, nn.Linear]


class FeatureScorer(Scorer):
    """A small network on the classifier's features."""

    def __init__(self, n_features: int, width: int = 128) -> None:
        super().__init__()
        self.net = _Perceptron(n_features, width)

    def forward(self, evidence: Evidence) -> Scored:
        """No base."""
        return Scored(None, self.net.forward(evidence.embedding).squeeze(-1))


class EvidenceScorer(Scorer):
    """Features and top-class log-odds: a correction, at first zero, to what softmax says.

    The base is the negative log-odds, standardised by a running mean and deviation so that its
    size does not depend on how confident the classifier has become.
    """

    mean: Tensor
    deviation: Tensor
    seen: Tensor

    def __init__(self, n_features: int, width: int = 128, momentum: float = 0.1) -> None:
        super().__init__()
        self.net = _Perceptron(n_features + 1, width)
        last = self.net[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("deviation", torch.ones(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def _observe(self, log_odds: Tensor) -> None:
        mean, deviation = log_odds.mean(), log_odds.std(unbiased=False).clamp_min(1e-6)
        # The first batch sets the statistics, later ones move them.
        rate = torch.where(self.seen, self.momentum, 1.0)
        self.mean.lerp_(mean, rate)
        self.deviation.lerp_(deviation, rate)
        self.seen.fill_(True)

    def forward(self, evidence: Evidence) -> Scored:
        """The base is softmax response."""
        if self.training:
            self._observe(whole(evidence.log_odds))
        standard = (evidence.log_odds - self.mean) / self.deviation
        inputs = torch.cat([evidence.embedding, standard.unsqueeze(-1)], -1)
        correction = self.net.forward(inputs).squeeze(-1)
        return Scored(-standard, correction)


def top_log_odds(logits: Tensor) -> Tensor:
    """[n, C] logits to [n] ``z_max - logsumexp of the others``: monotone in max p."""
    top, where = logits.max(-1)
    others = logits.scatter(-1, where.unsqueeze(-1), -torch.inf)
    return top - others.logsumexp(-1)

"""What every classifier exposes: a trunk, a head, and one flat feature vector between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from revar import fields

DropoutPlacement = Literal["head", "everywhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout:
    """Where dropout sits and how much of it; the paper leaves both open.

    Attributes:
        rate: share of units dropped. 0 builds a net without dropout.
        placement: ``head`` before the last layer only, so that T passes share the trunk;
            ``everywhere`` after every block as well.
    """

    rate: float = 0.3
    placement: DropoutPlacement = "head"

    def __post_init__(self) -> None:
        fields.check(self)
        fields.require(0 <= self.rate < 1, self, "rate", "be in [0, 1)")

    @property
    def trunk_rate(self) -> float:
        """The rate after each block of the trunk."""
        return self.rate if self.placement == "everywhere" else 0.0


class Classifier(ABC, nn.Module):
    """Inputs to logits, in two halves.

    Attributes:
        n_features: width of `embed`.
        is_ours: whether its code is known; a module of somebody's own may do as it likes.
    """

    n_features: int
    is_ours: bool = True

    @abstractmethod
    def forward_features(self, x: Tensor) -> Tensor:
        """The trunk: [n, ...] inputs to features of any shape."""

    @abstractmethod
    def forward_head(self, features: Tensor) -> Tensor:
        """The head: features to [n, C] logits, dropout included."""

    def embed(self, features: Tensor) -> Tensor:
        """Features as [n, n_features], for whoever reads them (the U-Score)."""
        return features

    @property
    def is_flat(self) -> bool:
        """Whether features are what `embed` makes of them, so that it need not run."""
        return type(self).embed is Classifier.embed

    def forward(self, x: Tensor) -> Tensor:
        """[n, ...] inputs to [n, C] logits."""
        return self.forward_head(self.forward_features(x))


class SplitClassifier(Classifier):
    """A trunk that ends in a flat vector, then dropout and one linear layer."""

    def __init__(self, trunk: nn.Module, n_features: int, n_outputs: int, rate: float) -> None:
        super().__init__()
        self.n_features = n_features
        self.trunk = trunk
        self.head = nn.Sequential(nn.Dropout(rate), nn.Linear(n_features, n_outputs))

    @property
    def last_layers(self) -> tuple[nn.Dropout, nn.Linear] | None:
        """Dropout and the linear layer, if they are the head that was built here, and run so."""
        if type(self).forward_head is not SplitClassifier.forward_head:
            return None
        if "forward_head" in vars(self) or type(self.head) is not nn.Sequential:
            return None
        layers = list(self.head)
        if [type(layer) for layer in layers] != [nn.Dropout, nn.Linear]:
            return None
        dropout, layer = layers
        if any(map(is_watched, layers)):
            return None
        assert isinstance(dropout, nn.Dropout)
        assert isinstance(layer, nn.Linear)
        return dropout, layer

    def forward_features(self, x: Tensor) -> Tensor:
        """[n, ...] to [n, n_features]."""
        features: Tensor = self.trunk(x)
        return features

    def forward_head(self, features: Tensor) -> Tensor:
        """[n, n_features] to [n, C]."""
        logits: Tensor = self.head(features)
        return logits


def is_watched(layer: nn.Module) -> bool:
    """Whether somebody has a hook on its passes."""
    # Straight from its attributes: small nets are asked in every step.
    own = vars(layer)
    forward = own["_forward_hooks"] or own["_forward_pre_hooks"]
    return bool(forward or own["_backward_hooks"] or own["_backward_pre_hooks"])


def convolution_weights(classifier: Classifier) -> frozenset[str]:
    """Names of what its convolutions have, which autocast rounds before every use.

    None of a module of somebody's own: it may switch autocast off for some of them.
    """
    if not classifier.is_ours:
        return frozenset()
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return frozenset(
        f"{name}.{own}" if name else own
        for name, layer in classifier.named_modules()
        if type(layer) in kinds
        for own, _ in layer.named_parameters(recurse=False)
    )

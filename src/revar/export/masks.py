"""The fixed dropout masks of test time (design note 007) as constants of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from revar.dropouts import InsteadOfDropout
from revar.functional import mode
from revar.randomness import derive
from revar.stochastic import FixedMasks


class _Recorded(InsteadOfDropout):
    """Notes the mask of every dropout; inside `FixedMasks`, which draws them.

    Attributes:
        masks: [...] of one example each; ``None`` for a dropout that drops nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[Tensor | None] = []

    def drop(
        self,
        func: Callable[..., Tensor],
        input: Tensor,  # noqa: A002  (named as in torch.nn.functional, it may come by keyword)
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """The dropout itself, on ones: what is left of them is its mask."""
        mask = func(torch.ones_like(input), *args, **kwargs)
        kept = bool((mask == 1).all())
        self.masks.append(None if kept else mask[0].clone())
        return input * mask


class _Replayed(InsteadOfDropout):
    """Puts recorded masks in the place of dropout."""

    def __init__(self, masks: Iterable[Tensor | None]) -> None:
        super().__init__()
        self.masks = iter(masks)

    def drop(
        self,
        func: Callable[..., Tensor],
        input: Tensor,  # noqa: A002
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """The next mask."""
        mask = next(self.masks)
        return input if mask is None else input * mask


class DropoutHeads(nn.Module):
    """T heads of a classifier on one trunk, each under the masks of its pass."""

    def __init__(self, classifier: nn.Module, features: Tensor, passes: int, seed: int) -> None:
        """Draw the masks that `revar.stochastic.statistics` would.

        Args:
            classifier: with ``forward_head`` and all its dropout in there.
            features: [n, ...] of any inputs.
            passes: T.
            seed: of the masks.
        """
        super().__init__()
        # In a list, so that its weights are not registered a second time.
        self._classifier = [classifier]
        self._names: list[list[str | None]] = []
        for k in range(passes):
            drawn = FixedMasks(derive(seed, "dropout pass", k))
            with torch.no_grad(), mode(classifier, dropout=True, statistics=True), drawn:
                recorded = self._record(classifier, features)
            names: list[str | None] = []
            for j, mask in enumerate(recorded):
                names.append(None if mask is None else f"pass{k}_mask{j}")
                if mask is not None:
                    self.register_buffer(f"pass{k}_mask{j}", mask)
            self._names.append(names)

    @staticmethod
    def _record(classifier: Any, features: Tensor) -> list[Tensor | None]:
        recorded = _Recorded()
        with recorded:
            classifier.forward_head(features)
        return recorded.masks

    def forward(self, features: Tensor) -> Tensor:
        """[n, ...] features to [T, n, C] logits."""
        classifier: Any = self._classifier[0]
        logits = []
        for names in self._names:
            masks = [None if name is None else self.get_buffer(name) for name in names]
            with mode(classifier, dropout=True, statistics=True), _Replayed(masks):
                logits.append(classifier.forward_head(features))
        return torch.stack(logits)

"""The fixed dropout masks of test time (design note 007) as constants of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from revar.functional import mode
from revar.randomness import derive
from revar.stochastic import FixedMasks

_DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)


class _Recorded(TorchFunctionMode):
    """Notes the mask of every dropout; inside `FixedMasks`, which draws them.

    Attributes:
        masks: [...] of one example each; ``None`` for a dropout that drops nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[Tensor | None] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func not in _DROPOUTS:
            return func(*args, **kwargs)
        x = args[0] if args else kwargs.pop("input")
        ones = torch.ones_like(x)
        mask = func(ones, *args[1:], **kwargs)
        kept = bool((mask == 1).all())
        self.masks.append(None if kept else mask[0].clone())
        return x * mask


class _Replayed(TorchFunctionMode):
    """Puts recorded masks in the place of dropout."""

    def __init__(self, masks: Iterable[Tensor | None]) -> None:
        super().__init__()
        self.masks = iter(masks)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _DROPOUTS:
            return func(*args, **kwargs)
        x = args[0] if args else kwargs["input"]
        mask = next(self.masks)
        return x if mask is None else x * mask


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

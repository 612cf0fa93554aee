"""Dropout, wherever a network calls it: a layer of torch, or a function as in timm's ResNets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)
"""Dropout inside fused attention is none of these: no mask of it is visible."""


class InsteadOfDropout(TorchFunctionMode):
    """A block in which dropout is something else, and everything else is itself."""

    @abstractmethod
    def drop(self, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """What is done instead of ``func(*args, **kwargs)``, one of `DROPOUTS`."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace dropout, pass everything else through."""
        kwargs = kwargs or {}
        if func in DROPOUTS:
            return self.drop(func, *args, **kwargs)
        return func(*args, **kwargs)

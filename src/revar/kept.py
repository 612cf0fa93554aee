"""What a training pass finds, kept for the forward-mode pass over the same rows.

Forward mode computes values beside their tangents: for a convolution one product of three, for
batch norm a whole pass over the data. But the pass of the look-ahead, or of the training step that
is the look-ahead, has had the values: same rows, same parameters, same dropout masks. So outputs of
convolutions and statistics of batch norm are kept until they were used, once each, in their order.
The outputs are what batch norm keeps for the backward pass; they stay a little longer.

This takes a network whose layers come in the same order both times, as those of known code do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from revar.dual_norm import by_batch

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Found:
    """What a layer found.

    Attributes:
        function: of the layer.
        shape: of its input.
        parts: the output of a convolution, or mean and inverse deviation of batch norm; nothing,
            where these cannot be had.
        version: of the first of these.
    """

    function: _Function
    shape: torch.Size
    parts: tuple[Tensor, ...]
    version: int

    @property
    def is_there(self) -> bool:
        """Whether it still is what was found: what follows a layer may write into its output."""
        return bool(self.parts) and self.parts[0]._version == self.version


class Kept(TorchFunctionMode):
    """A block of a training pass, with gradients, in which layers keep what they find."""

    def __init__(self) -> None:
        super().__init__()
        self._found: deque[_Found] | None = deque()

    def __torch_function__(
        self,
        func: _Function,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Do what is asked, and look at what comes out."""
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if self._found is None:
            return output
        if func in CONVOLUTIONS:
            self._add(func, args[0], (output.detach(),))
        elif func is F.batch_norm and by_batch(args, kwargs):
            self._add(func, args[0], _statistics(output))
        return output

    def _add(self, function: _Function, x: Tensor, parts: tuple[Tensor, ...]) -> None:
        assert self._found is not None
        version = parts[0]._version if parts else 0
        self._found.append(_Found(function, x.shape, parts, version))

    def give_up(self) -> None:
        """Keep nothing: the pass is one that computes its layers again to save memory."""
        self._found = None

    def of_next(self, func: _Function, x: Tensor) -> tuple[Tensor, ...]:
        """What the next layer has found, and nothing where it is to be computed.

        Args:
            func: one of `CONVOLUTIONS`, or batch norm that takes its statistics from the batch.
            x: its input.

        Returns:
            The output of a convolution; mean and inverse deviation of batch norm.
        """
        if self._found is None:
            return ()
        found = self._found.popleft() if self._found else None
        if found is None or (found.function, found.shape) != (func, x.shape):
            raise RuntimeError(f"{func.__name__} comes in another order than in the training pass")
        return found.parts if found.is_there else ()


def _statistics(normed: Tensor) -> tuple[Tensor, ...]:
    """Mean and inverse deviation of the batch, as batch norm keeps them for its backward pass."""
    node = normed.grad_fn
    names = ("_saved_result1", "_saved_result2")
    if not all(hasattr(node, name) for name in names):
        return ()
    mean, inverse = (getattr(node, name) for name in names)
    return (mean, inverse) if mean.shape == (normed.shape[1],) == inverse.shape else ()


def give_up_keeping() -> None:
    """Let nothing be kept of the pass that runs now."""
    for block in _get_current_function_mode_stack():
        if isinstance(block, Kept):
            block.give_up()

"""Large batches in little memory: the trunk runs on a part of the rows at a time.

The features of all rows are kept, what lies between is not: it is computed again in the backward
pass, part by part (Chen et al. 2016, "Training deep nets with sublinear memory cost"). Losses,
weights and alignments see the whole batch, so gradient and hypergradient are those of the whole
batch, whatever the loss does with its rows. Only layers of the trunk that mix rows or draw for them
see the parts: batch norm in training mode takes its statistics from each one, as it would from
smaller batches, and dropout draws other masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from revar.dual_norm import usual_norm
from revar.functional import Params, call

Features = Callable[[Tensor], Tensor]


@contextmanager
def in_parts(net: nn.Module, rows: int | None) -> Iterator[None]:
    """Let the trunk of a classifier run on at most so many rows at a time.

    Args:
        net: a classifier.
        rows: of a part; ``None`` runs all at once and keeps everything.
    """
    if rows is None:
        yield
        return
    trunk: Features = net.forward_features  # type: ignore[assignment]

    def forward_features(x: Tensor) -> Tensor:
        # Of nearly equal size: batch norm cannot take its statistics from a last single row.
        parts = x.tensor_split(-(-len(x) // rows))
        if not torch.is_grad_enabled():
            return torch.cat([trunk(part) for part in parts])
        again = _Again(net, trunk)
        return torch.cat(
            [
                checkpoint(again.run, part, use_reentrant=False, context_fn=again.contexts)
                for part in parts
            ]
        )

    net.forward_features = forward_features  # type: ignore[assignment]
    try:
        yield
    finally:
        del net.forward_features


class _Again:
    """A trunk as it is now, to be run once more when its network may be in another state.

    Parameters may have been put in its place for one call (`revar.functional.call`), and whether
    dropout is on is switched back after each (`revar.functional.mode`). Batch norm must not count
    the same rows twice.
    """

    def __init__(self, net: nn.Module, trunk: Features) -> None:
        self._net, self._trunk = net, trunk
        self._params: Params = dict(net.named_parameters())
        self._training = [(module, module.training) for module in net.modules()]
        self._again = False

    def run(self, x: Tensor) -> Tensor:
        """The features of some rows."""
        if not self._again:
            with usual_norm():
                return self._trunk(x)
        # Through a name of the network, where `call` can find it; its statistics are copies.
        self._net.forward_features = self._trunk  # type: ignore[assignment]
        return call(self._net, self._params, x, part="forward_features")

    def contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """For the first run and for the second."""
        return nullcontext(), self._recomputing()

    @contextmanager
    def _recomputing(self) -> Iterator[None]:
        now = [(module, module.training) for module, _ in self._training]
        wrapped = vars(self._net).get("forward_features")
        _set(self._training)
        self._again = True
        try:
            yield
        finally:
            self._again = False
            _set(now)
            if wrapped is None:
                vars(self._net).pop("forward_features", None)
            else:
                self._net.forward_features = wrapped


def _set(flags: list[tuple[nn.Module, bool]]) -> None:
    for module, training in flags:
        vars(module)["training"] = training

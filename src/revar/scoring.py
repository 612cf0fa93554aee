"""Networks and inputs to predictions."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revar.data.stored import Stored
from revar.functional import mode, without_autocast
from revar.methods.base import Method
from revar.predictions import Predictions
from revar.registry import SCORES
from revar.scores.learned import Fitted
from revar.stochastic import statistics
from revar.turns import TURNS
from revar.types import Networks

_FEWEST = 8
"""Rows of a table in one pass: fewer go through other kernels, which round otherwise."""
_BY_DROPOUT = ("dropout_entropy", "dropout_variance", "mutual_information", "mcd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is computed besides the logits.

    Attributes:
        columns: what the method adds for scores of the registry, such as the U-Score.
        scores: the scores that the method brings along.
        dropout: the T passes.
    """

    columns: bool = True
    scores: bool = True
    dropout: bool = True

    @classmethod
    def by(cls, score: str, fitted: Fitted) -> Wanted:
        """What one score reads, as `revar.scores.uncertainty` computes it."""
        name = fitted.own if score == "own" else score
        if name not in {entry.name for entry in SCORES}:
            return cls(columns=False, dropout=False)
        read = {name}
        if name == "fused" and fitted.fusion is not None:
            read = set(fitted.fusion.used)
        return cls(columns="uscore" in read, scores=False, dropout=not read.isdisjoint(_BY_DROPOUT))


EVERYTHING = Wanted()
NOTHING = Wanted(columns=False, scores=False, dropout=False)


@TURNS.mine()
@torch.no_grad()
def predict(
    networks: Networks,
    method: Method,
    x: Stored,
    *,
    labels: NDArray[np.int64] | None = None,
    index: NDArray[np.int64] | None = None,
    passes: int,
    seed: int,
    device: torch.device,
    batch_size: int = 512,
    wanted: Wanted = EVERYTHING,
) -> Predictions:
    """What a run can say about inputs, in float32, row by row independent of the others.

    Args:
        networks: trained.
        method: adds its own columns.
        x: [n, ...] stored values.
        labels: [n] class numbers, copied and not looked at.
        index: [n] positions to remember; 0..n-1 unless given.
        passes: T; 0 takes no dropout passes.
        seed: of the dropout masks.
        device: to compute on.
        batch_size: rows at a time.
        wanted: everything, unless told what is not needed; what is computed stays the same.
    """
    parts: dict[str, list[Tensor]] = {}
    classifier = networks.classifier
    # To set and restore the flags of every module costs a tenth of a small net on one image.
    settled = _settled(networks)
    still = nullcontext() if settled else mode(networks, dropout=False, statistics=True)
    with still, without_autocast():
        # max(): an empty set still has the right columns.
        for start in range(0, max(len(x), 1), batch_size):
            inputs = networks.normalise(x[start : start + batch_size].to(device))
            n = len(inputs)
            if inputs.ndim == 2 and 0 < n < _FEWEST:
                inputs = torch.cat([inputs, inputs[-1:].expand(_FEWEST - n, -1)])
            features = classifier.forward_features(inputs)
            logits = classifier.forward_head(features)
            row = {"logits": logits}
            if wanted.columns:
                for name, value in method.columns(networks, inputs, features, logits).items():
                    row[f"column.{name}"] = value
            if wanted.scores:
                for name, value in method.scores(networks, inputs, features, logits).items():
                    row[f"score.{name}"] = value.float()
            if wanted.dropout and networks.sampler is not None and passes > 0:
                dropped = statistics(networks.sampler, inputs, passes, seed, features)
                row["dropout_mean"] = dropped.mean.float()
                row["dropout_variance"] = dropped.variance
                row["dropout_entropy"] = dropped.entropy
                row["dropout_expected_entropy"] = dropped.expected_entropy
            for name, value in row.items():
                parts.setdefault(name, []).append(value[:n].cpu())
    arrays: dict[str, Any] = {name: torch.cat(values).numpy() for name, values in parts.items()}
    columns, scores = (
        {n.removeprefix(kind): arrays.pop(n) for n in list(arrays) if n.startswith(kind)}
        for kind in ("column.", "score.")
    )
    return Predictions(
        index=np.arange(len(x)) if index is None else index,
        labels=labels,
        columns=columns,
        scores=scores,
        **arrays,
    )


def _settled(net: nn.Module) -> bool:
    """Whether every part of a network is in evaluation mode already."""
    left: list[nn.Module | None] = [net]
    while left:
        module = left.pop()
        if module is not None:
            if module.training:
                return False
            left.extend(module._modules.values())
    return True

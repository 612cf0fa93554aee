"""Networks and inputs to predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.data.stored import Stored
from revar.functional import mode
from revar.methods.base import Method
from revar.predictions import Predictions
from revar.stochastic import statistics
from revar.types import Networks


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
) -> Predictions:
    """Everything a run can say about inputs, in float32, row by row independent of the others.

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
    """
    parts: dict[str, list[Tensor]] = {}
    classifier = networks.classifier
    with mode(networks, dropout=False, statistics=True):
        # max(): an empty set still has the right columns.
        for start in range(0, max(len(x), 1), batch_size):
            inputs = networks.normalise(x[start : start + batch_size].to(device))
            features = classifier.forward_features(inputs)
            logits = classifier.forward_head(features)
            row = {"logits": logits}
            for name, value in method.columns(networks, inputs, features, logits).items():
                row[f"column.{name}"] = value
            for name, value in method.scores(networks, inputs, features, logits).items():
                row[f"score.{name}"] = value.float()
            if networks.sampler is not None and passes > 0:
                dropped = statistics(networks.sampler, inputs, passes, seed, features)
                row["dropout_mean"] = dropped.mean.float()
                row["dropout_variance"] = dropped.variance
                row["dropout_entropy"] = dropped.entropy
                row["dropout_expected_entropy"] = dropped.expected_entropy
            for name, value in row.items():
                parts.setdefault(name, []).append(value.cpu())
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

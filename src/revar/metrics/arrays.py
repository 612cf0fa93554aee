"""Arguments of metrics: NumPy or torch in, checked, never guessed at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_array(values: Any) -> NDArray[Any]:
    """A NumPy array of whatever was given; torch tensors are brought to the host."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # NumPy has no bfloat16.
        values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    return np.asarray(values)


def selective_arguments(
    uncertainty: Any, correct: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[n] uncertainty and [n] correctness as 0 and 1.

    Raises:
        ValueError: not two vectors of one length, NaN, or correctness that is neither.
    """
    scores = as_array(uncertainty).astype(np.float64)
    hits = as_array(correct)
    if scores.ndim != 1 or hits.shape != scores.shape:
        msg = f"uncertainty has shape {scores.shape}, correct {hits.shape}: two vectors [n] needed"
        raise ValueError(msg)
    if len(scores) == 0:
        raise ValueError("no examples")
    if np.isnan(scores).any():
        rows = np.flatnonzero(np.isnan(scores))
        raise ValueError(f"uncertainty is NaN in {len(rows)} rows, first in row {rows[0]}")
    if not np.isin(hits, (0, 1)).all():
        raise ValueError("correct must be booleans, or 0 and 1")
    return scores, hits.astype(np.float64)

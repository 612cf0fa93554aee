"""What the property tests share: reproducible settings and examples with many ties."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Derandomised: a failure on one machine is a failure on all. No deadline: the cores are shared.
PROPERTY = settings(derandomize=True, deadline=None, max_examples=100)
FEW = settings(derandomize=True, deadline=None, max_examples=25)


def scored_rows(
    *, min_size: int = 1, max_size: int = 30, levels: int = 6
) -> SearchStrategy[tuple[Floats, Bools]]:
    """Uncertainty from a few whole numbers, so that many rows tie, and correctness."""
    row = st.tuples(st.integers(-levels, levels), st.booleans())
    return st.lists(row, min_size=min_size, max_size=max_size).map(
        lambda rows: (
            np.array([score for score, _ in rows], dtype=np.float64),
            np.array([hit for _, hit in rows], dtype=bool),
        )
    )

"""What is answered, and what is left to a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Decision:
    """Labels, and whether to believe them.

    Attributes:
        labels: [n] predicted labels, also of what is rejected; those of `predict` unless the
            threshold is one of ``mcd``, which predicts by the mean of the dropout passes.
        accepted: [n] whether the uncertainty is at most the threshold.
        uncertainty: [n] higher is less certain.
    """

    labels: NDArray[Any]
    accepted: NDArray[np.bool_]
    uncertainty: NDArray[np.float64]

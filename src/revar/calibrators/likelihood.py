"""Searches for the most likely parameters; all convex, in float64, with analytic gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax

from revar.calibrators.base import Labels, Table, Values
from revar.errors import InputError


def fit_logistic(x: Table, targets: Values, ridge: float) -> Values:
    """Logistic regression on chances: minimise ``sum_i CE(t_i, sigma(w_0 + w x_i)) + r |w|^2 / 2``.

    Args:
        x: [n, d] features, each of a spread near one.
        targets: [n] chances in [0, 1].
        ridge: r, on the slopes and not on the intercept.

    Returns:
        [1 + d] intercept and slopes.
    """
    from scipy.optimize import minimize

    columns = np.concatenate([np.ones((1, len(x))), x.T])

    def objective(weights: Values) -> tuple[float, Values]:
        z = (columns * weights[:, None]).sum(axis=0)
        slopes = np.r_[0.0, weights[1:]]
        value = (np.logaddexp(0.0, z) - targets * z).sum() + ridge * (slopes**2).sum() / 2
        slope = (columns * (expit(z) - targets)).sum(axis=1) + ridge * slopes
        return value / len(x), slope / len(x)

    found = minimize(
        objective, np.zeros(len(columns)), jac=True, method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    weights: Values = found.x
    return weights


def spread(values: NDArray[np.float64]) -> float:
    """Root mean square, or one where everything is zero: what to divide by before a search."""
    size = float(np.sqrt(np.mean(values**2)))
    return size if size > 0 else 1.0


def fit_affine(
    labels: Labels,
    identity: Values,
    size: float,
    penalty: float,
    mapped: Callable[[Values], Table],
    gradient: Callable[[Table], Values],
) -> tuple[Values, Values]:
    """Weights and [C] offsets of the least penalised loss; both start where nothing changes.

    Args:
        labels: [n] class numbers.
        identity: [k] the weights that leave the logits alone.
        size: of the logits; the search moves weights in units of its inverse.
        penalty: r.
        mapped: [k] weights to [n, C] logits without the offsets.
        gradient: [n, C] slope in the logits to [k] slope in the weights.
    """
    from scipy.optimize import minimize

    if penalty < 0:
        raise InputError(f"penalty is {penalty}, it must not be negative")
    n, k = len(labels), len(identity)
    rows = np.arange(n)

    def objective(moved: Values) -> tuple[float, Values]:
        away, offsets = moved[:k] / size, moved[k:]
        log_chances = log_softmax(mapped(identity + away) + offsets, axis=1)
        value = (
            -log_chances[rows, labels].sum() + penalty * ((away**2).sum() + offsets @ offsets) / 2
        )
        residual = np.exp(log_chances)
        residual[rows, labels] -= 1.0
        by_weights = (gradient(residual) + penalty * away) / size
        by_offsets = residual.sum(axis=0) + penalty * offsets
        return value / n, np.r_[by_weights, by_offsets] / n

    n_classes = mapped(identity).shape[1]
    found = minimize(
        objective, np.zeros(k + n_classes), jac=True, method="L-BFGS-B",
        options={"maxiter": 2000, "maxfun": 4000, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-8},
    )  # fmt: skip
    return identity + found.x[:k] / size, found.x[k:]

"""How well learned weights agree with ideal ones, by figures that say different things.

No single one is enough: an ideal weight such as ``1 / |G'x|^2`` has nearly all of its variance
in its largest hundredth, which no bounded weight can follow, and a constant ideal has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Learned weights against an ideal ``lambda_1 t_1(x) + lambda_2 t_2(x)``; nan where undefined.

    Attributes:
        spearman: rank correlation with the ideal, its lambdas fitted.
        kendall: Kendall's tau-b with it.
        r2_log: squared correlation of the logarithms.
        r2_floored: share of the variance of the weights that the floored terms explain, with an
            intercept.
        r2_winsorised: the same for the terms as they are, cut at their 95 % quantile.
        r2_uncentred: ``1 - |w - ideal|^2 / |w|^2`` for the terms as they are, no intercept. It
            is ``1 / (1 + CV^2)`` where the ideal is constant, and never small.
        cv: standard deviation of the weights over their mean.
        noise_coefficient: lambda_1 E[t_1], the weights scaled to mean one, first term floored.
        shift_coefficient: lambda_2 E[t_2]; nan where there is one term.
        shift_share: the second over the sum of both.
    """

    spearman: float
    kendall: float
    r2_log: float
    r2_floored: float
    r2_winsorised: float
    r2_uncentred: float
    cv: float
    noise_coefficient: float
    shift_coefficient: float
    shift_share: float


def agreement(
    weights: ArrayLike, noise: ArrayLike, distance: ArrayLike | None = None, *, floor: float = 0.1
) -> Agreement:
    """Compare.

    Args:
        weights: [n] learned, positive.
        noise: [n] variance of the label noise; the first term of the ideal is its inverse.
        distance: [n] second term of the ideal, or none.
        floor: quantile of the noise that is added to it in the floored first term.
    """
    from scipy.stats import kendalltau, spearmanr

    w = np.asarray(weights, np.float64)
    w = w / w.mean()
    variance = np.asarray(noise, np.float64)
    second = [] if distance is None else [np.asarray(distance, np.float64)]
    raw = [1 / variance, *second]
    floored = [1 / (variance + np.quantile(variance, floor)), *second]
    coefficients = _fitted(floored, w)
    ideal = _combined(floored, coefficients)
    ranked = _varies(ideal) and _varies(w)
    # A fitted ideal can be negative somewhere, and a weight can round to zero.
    positive = (ideal > 0) & (w > 0)
    both = np.array([*coefficients, *([np.nan] if not second else [])])
    return Agreement(
        spearman=float(spearmanr(w, ideal).statistic) if ranked else np.nan,
        kendall=float(kendalltau(w, ideal).statistic) if ranked else np.nan,
        r2_log=_explained([np.log(ideal[positive])], np.log(w[positive])) if ranked else np.nan,
        r2_floored=_explained(floored, w),
        r2_winsorised=_explained([np.minimum(t, np.quantile(t, 0.95)) for t in raw], w),
        r2_uncentred=1 - float(np.mean((w - _combined(raw, _fitted(raw, w))) ** 2) / np.mean(w**2)),
        cv=float(w.std()),
        noise_coefficient=float(both[0]),
        shift_coefficient=float(both[1]),
        shift_share=float(both[1] / both.sum()),
    )


def _fitted(terms: list[Floats], w: Floats) -> Floats:
    """Least squares of w on the terms, each scaled to mean one, no intercept."""
    scaled = np.stack([term / term.mean() for term in terms], 1)
    return np.asarray(np.linalg.lstsq(scaled, w)[0], np.float64)


def _combined(terms: list[Floats], coefficients: Floats) -> Floats:
    total = sum(c * t / t.mean() for c, t in zip(coefficients, terms, strict=True))
    return np.asarray(total, np.float64)


def _varies(values: Floats) -> bool:
    """More than rounding does."""
    return bool(np.ptp(values) > 1e-9 * np.abs(values).max())


def _explained(terms: list[Floats], w: Floats) -> float:
    """R^2 of least squares with an intercept; nan where neither w nor a term varies."""
    varying = [term for term in terms if _varies(term)]
    if not varying or not _varies(w):
        return np.nan
    design = np.stack([np.ones_like(w), *((t - t.mean()) / t.std() for t in varying)], 1)
    left = w - design @ np.linalg.lstsq(design, w)[0]
    return float(1 - left.var() / w.var())

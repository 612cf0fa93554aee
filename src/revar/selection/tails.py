"""How surprising few losses are: p-values for "the risk is above r", and their inversion.

A p-value here is the largest chance, over all laws with a mean loss above r, of a sum of
losses this small or smaller. Its inversion at a level is the upper confidence bound.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, xlogy

Floats = NDArray[np.float64]
_HALVINGS = 34
"""The bound is then known to 1e-10."""


class Tail(Protocol):
    """A test of the mean of losses in [0, 1]."""

    exact: bool
    """Whether losses are 0 and 1 and the p-value is the binomial tail itself."""

    def p_value(self, total: Any, count: Any, risk: float) -> Floats:
        """P-values of a sum of losses among `count` examples; 1 where there are none."""

    def upper(self, total: Any, count: Any, level: float) -> Floats:
        """The largest risk whose p-value is above the level."""


def _binomial_cdf(total: Floats, count: Floats, risk: Any) -> Floats:
    """P(Bin(count, risk) <= total) for whole numbers."""
    some = total < count
    # P(Bin(n, r) <= k) = I_{1-r}(n - k, k + 1).
    cdf = betainc(np.where(some, count - total, 1.0), total + 1.0, 1.0 - np.asarray(risk))
    return np.where(some, cdf, 1.0)


class Binomial:
    """Errors, 0 or 1: the exact binomial tail and its inversion (Clopper and Pearson 1934)."""

    exact = True

    def p_value(self, total: Any, count: Any, risk: float) -> Floats:
        """``P(Bin(count, risk) <= total)``."""
        return _binomial_cdf(np.asarray(total, float), np.asarray(count, float), risk)

    def upper(self, total: Any, count: Any, level: float) -> Floats:
        """The risk at which at most `total` errors have the chance `level`; 1 if all are wrong.

        >>> float(Binomial().upper(0, 59, 0.05).round(6))  # 1 - 0.05 ** (1 / 59)
        0.049508
        """
        errors, n = np.asarray(total, float), np.asarray(count, float)
        some = errors < n
        bound = betaincinv(errors + 1.0, np.where(some, n - errors, 1.0), 1.0 - level)
        return np.where(some, bound, 1.0)


class HoeffdingBentkus:
    """Losses in [0, 1]: the smaller of Hoeffding's (1963) and Bentkus's (2004) bound.

    ``min(exp(-n h(mean, r)), e P(Bin(n, r) <= ceil(n mean)))`` with h the relative entropy of
    two coins (Bates et al. 2021).
    """

    exact = False

    def p_value(self, total: Any, count: Any, risk: Any) -> Floats:
        """The bound on the chance of a sum this small; `risk` may be a vector too."""
        losses, n = np.asarray(total, float), np.asarray(count, float)
        r = np.asarray(risk, float)
        mean = np.minimum(losses / np.maximum(n, 1.0), r)
        entropy = xlogy(mean, mean / r) + xlogy(1.0 - mean, (1.0 - mean) / (1.0 - r))
        # The sum is rounded up, but 3.0000000001 from adding tenths is 3.
        whole = np.ceil(losses - 1e-9)
        bentkus = math.e * _binomial_cdf(np.minimum(whole, n), n, r)
        found = np.minimum(np.exp(-n * np.maximum(entropy, 0.0)), bentkus)
        return np.where(n > 0, np.minimum(found, 1.0), 1.0)

    def upper(self, total: Any, count: Any, level: float) -> Floats:
        """By bisection on the risk: the p-value falls where the risk grows."""
        losses, n = np.atleast_1d(np.asarray(total, float)), np.atleast_1d(np.asarray(count, float))
        low, high = np.full(n.shape, 1e-12), np.full(n.shape, 1.0 - 1e-12)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            above = self.p_value(losses, n, middle) > level
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        # The upper end: a bound may be too large, never too small.
        return np.where(n > 0, high, 1.0)


def enough(risk: float, level: float) -> int:
    """The fewest examples that prove this risk if none of them has a loss, ``(1 - r)^n <= level``.

    >>> enough(0.05, 0.05)
    59
    """
    return max(1, math.ceil(math.log(level) / math.log1p(-risk) - 1e-9))

"""The acceptance regions that labelled examples can say something exact about.

A region is ``{U < t}`` with t one of the calibration values, or everything. Given the value of
t and how many examples lie strictly below it, these are independent draws from the law of
``(U, loss)`` given ``U < t``, with or without ties. This is not so for ``{U <= t}``: the example
on the border is there because it is the border. So ``t`` itself is left out, by the threshold
just below it in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from revar.selection.result import Attainable


@dataclass(frozen=True, slots=True)
class Cuts:
    """All regions of one calibration set, the smallest first.

    Attributes:
        counts: [k] examples in each.
        totals: [k] sum of their losses.
        borders: [k] first uncertainty outside; the last is infinity.
        n: examples in the calibration set.
    """

    counts: NDArray[np.int64]
    totals: NDArray[np.float64]
    borders: NDArray[np.float64]
    n: int

    @classmethod
    def of(cls, uncertainty: NDArray[np.float64], losses: NDArray[np.float64]) -> Cuts:
        """From [n] uncertainties and [n] losses."""
        order = np.argsort(uncertainty, kind="stable")
        values = np.append(uncertainty[order], np.inf)
        counts = np.flatnonzero(values[1:] != values[:-1]) + 1
        sums = np.cumsum(losses[order])
        return cls(counts, sums[counts - 1], values[counts], len(losses))

    def at_rank(self, rank: int) -> int:
        """The region below the ``rank + 1``-th smallest value, -1 if it is empty.

        It holds `rank` examples, or fewer if that value is tied. The rank must not depend on
        the losses.
        """
        return int(np.searchsorted(self.counts, rank, side="right")) - 1

    def threshold(self, cut: int) -> float:
        """Accept iff the uncertainty is at most this."""
        return float(np.nextafter(self.borders[cut], -np.inf))

    def point(self, cut: int, risk_bound: float) -> Attainable:
        """What a region gives, with a bound on its risk."""
        count = int(self.counts[cut])
        return Attainable(
            threshold=self.threshold(cut),
            coverage=count / self.n,
            risk=float(self.totals[cut]) / count,
            risk_bound=risk_bound,
        )

"""Fixed-sequence testing of thresholds (Angelopoulos et al. 2021, learn then test).

Regions ``{U < t}`` are tested in the order of t, growing, for the hypothesis that their risk is
above the limit; the testing goes on as long as it is rejected. It begins at several ranks fixed
by n, the limit and the confidence alone: the first is where no loss at all would just do, the
others lie at growing coverages up to everything, so that a mishap among the most certain
examples or a tie at the start does not end it all. Each start brings an equal part of the error
budget ``delta``. For 0/1 losses a sequence that arrives at a later start takes its part along (the
fallback procedure of Wiens 2003), so it ends with all of it; for other losses each sequence keeps
its own part (a union bound).

Why it holds for every law, with ties and with a risk that is not monotone. Call a region bad if
its true risk is above the limit r. Break ties by an independent uniform variable; then the risk R
of the c most certain share is continuous in c. A start s is charged to the first observed bad
region t at or after it, which no label decides; a wrong result means that the p-value of some
such t is at most the sum D of the parts charged to it.

- Starts at t itself: given t and the count below it, errors are ``Bin(count, > r)``. Fine.
- Starts before t: let T be the last share below t with R(T) = r. Given the count N below T,
  errors below T are ``Bin(N, r)``; what lies between T and t has a risk above r. "No bad region is
  seen between s and t" concerns the places of the N examples. Given their labels, the place of an
  error is that of a hit moved to the right where R < r and to the left where R > r, which never
  makes the event false: so it is the more likely the more errors there are. Hence, given the
  event, errors have a density w(e) relative to ``Bin(count, r)`` that does not fall in e
  (Efron 1965 for the sum of both parts). One start alone is therefore fine, and so is any loss in
  [0, 1]: replaced by coins of these chances it is smaller in convex order, and both tails of
  Hoeffding and Bentkus are means of convex falling functions.
- Several starts with different D: w has mean 1 and does not fall, so ``w <= 1 / (1 - delta)``
  wherever the binomial tail is at most delta, and the chance of a wrong result is at most the
  mean of D over ``1 - delta``. A budget of ``delta / (1 + delta)`` in all makes up for it.
"""

from __future__ import annotations

import math

import numpy as np

from revar.selection.cuts import Cuts
from revar.selection.result import Attainable
from revar.selection.tails import Tail, enough

_MOST_STARTS = 8
_LAST_COVERAGE = 0.95
"""The last start before everything."""


def starts(n: int, risk: float, delta: float, *, carry: bool) -> tuple[list[int], float]:
    """Ranks at which a sequence begins, growing, and the part of the budget that each brings.

    Args:
        n: calibration examples.
        risk: the limit.
        delta: 1 - confidence.
        carry: a sequence takes the parts of later starts along.
    """
    needed = enough(risk, delta)
    if needed > n:
        # Nothing can pass; these are for the best attainable.
        ranks = sorted({math.ceil(n / 4), math.ceil(n / 2), n})
        return ranks, delta / len(ranks)
    many = min(_MOST_STARTS, n // needed)
    if many == 1:
        return [needed], delta
    part = (delta / (1.0 + delta) if carry else delta) / many
    first = min(enough(risk, part), n)
    ends = [share / (1.0 - share) for share in (first / (n + 1), _LAST_COVERAGE)]
    # Evenly in the logarithm of the odds: as many small shares as nearly full ones.
    odds = np.geomspace(ends[0], max(ends), many - 1) if many > 2 else np.array([])
    between = [round(n * odd / (1.0 + odd)) for odd in odds[1:]]
    # Ranks that coincide, in small sets, leave a little of the budget unused.
    return sorted({first, n, *(rank for rank in between if rank > first)}), part


def search(cuts: Cuts, tail: Tail, risk: float, delta: float) -> tuple[int | None, Attainable]:
    """The largest region that passes, and the best attainable.

    If none passes the best is the start with the lowest bound at its part of the budget; starts
    do not depend on labels, so these bounds hold together.

    Args:
        cuts: regions of the calibration set.
        tail: the test.
        risk: the limit, in (0, 1).
        delta: 1 - confidence.
    """
    ranks, part = starts(cuts.n, risk, delta, carry=tail.exact)
    # A start whose value is tied down to the smallest one has an empty region: it is lost.
    begins = [cut for cut in map(cuts.at_rank, ranks) if cut >= 0]
    if not begins:
        return None, Attainable(threshold=None, coverage=0.0)
    offset = begins[0]
    p_values = tail.p_value(cuts.totals[offset:], cuts.counts[offset:], risk)
    passed: int | None = None
    budget = 0.0
    for begin, end in zip(begins, [*begins[1:], len(cuts.counts)], strict=True):
        budget += part
        stop = end if tail.exact else len(cuts.counts)
        failed = np.flatnonzero(p_values[begin - offset : stop - offset] > budget)
        reached = begin + int(failed[0]) if len(failed) else stop
        if reached > begin:
            passed = max(reached - 1, passed or 0)
        if len(failed) or not tail.exact:
            budget = 0.0
    if passed is not None:
        return passed, cuts.point(passed, risk)
    bounds = tail.upper(cuts.totals[begins], cuts.counts[begins], part)
    lowest = int(np.argmin(bounds))
    return None, cuts.point(begins[lowest], float(bounds[lowest]))

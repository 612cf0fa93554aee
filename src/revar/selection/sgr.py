"""Selection with guaranteed risk (Geifman and El-Yaniv 2017, algorithm 2).

A binary search over the number of accepted examples, each step a test by the exact tail at the
level ``(1 - confidence) / steps``, ``steps = ceil(log2(n + 1))``.

Two things differ from the paper. A step tests ``{U < t}``, t the next larger value, instead of
``{U <= t}``, t the largest accepted one: the example that defines the region is no fair draw
from it (see `revar.selection.cuts`). And the bound that is stated is the risk asked for, because
which ranks are visited depends on the labels, so a smaller bound at the last of them is not
covered by a union over the steps.

A value tied across the middle rank ends a search early, for the region below it may be empty; the
fixed-sequence test has several starts against that.

The union bound itself is proved for a selective risk that is monotone in the threshold, rising or
falling: then in each step only one rank can be wrongly passed as the first, and it is the same
whatever the labels of that step. For a risk that crosses the limit several times the search may
visit more such ranks than the bound counts. The fixed-sequence test needs no such condition.
"""

from __future__ import annotations

import math

import numpy as np

from revar.selection.cuts import Cuts
from revar.selection.result import Attainable
from revar.selection.tails import Tail


def search(cuts: Cuts, tail: Tail, risk: float, delta: float) -> tuple[int | None, Attainable]:
    """The largest region that passes, and the best attainable.

    If none passes, every step went to the smaller half, so the visited ranks were fixed in
    advance and their bounds hold together.

    Args:
        cuts: regions of the calibration set.
        tail: the test.
        risk: the limit, in (0, 1).
        delta: 1 - confidence.
    """
    steps = math.ceil(math.log2(cuts.n + 1))
    level = delta / steps
    low, high = 0, cuts.n + 1
    visited = []
    while high - low > 1:
        rank = (low + high) // 2
        cut = cuts.at_rank(rank)
        if cut >= 0:
            visited.append(cut)
        if cut >= 0 and tail.p_value(cuts.totals[cut], cuts.counts[cut], risk) <= level:
            low = rank
        else:
            high = rank
    if low > 0:
        passed = cuts.at_rank(low)
        return passed, cuts.point(passed, risk)
    if not visited:
        return None, Attainable(threshold=None, coverage=0.0)
    bounds = tail.upper(cuts.totals[visited], cuts.counts[visited], level)
    lowest = int(np.argmin(bounds))
    return None, cuts.point(visited[lowest], float(bounds[lowest]))

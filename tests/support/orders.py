"""Selective figures by brute force: every order the scores allow, in exact fractions.

Nothing here sorts or cuts into blocks; an order is allowed if uncertainty never falls along it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, permutations

Hits = Sequence[bool]
"""Correctness along one order, the most certain first."""


def allowed_orders(uncertainty: Sequence[float], correct: Sequence[bool]) -> list[Hits]:
    """The correctness along every order of the rows in which uncertainty does not fall."""
    return [
        [bool(correct[i]) for i in order]
        for order in permutations(range(len(correct)))
        if all(uncertainty[i] <= uncertainty[j] for i, j in pairwise(order))
    ]


def all_orders(correct: Sequence[bool]) -> list[Hits]:
    """The correctness along every order whatsoever."""
    return allowed_orders([0.0] * len(correct), correct)


def mean_over(orders: Sequence[Hits], figure: Callable[[Hits], Fraction]) -> Fraction:
    """The mean of a figure over orders."""
    return sum((figure(order) for order in orders), Fraction(0)) / len(orders)


def risk_of_first(hits: Hits, kept: int) -> Fraction:
    """Share of errors among the first ones."""
    return Fraction(sum(not hit for hit in hits[:kept]), kept)


def aurc_of(hits: Hits) -> Fraction:
    """Mean risk over k = 1..n."""
    n = len(hits)
    return sum((risk_of_first(hits, k) for k in range(1, n + 1)), Fraction(0)) / n


def auarc_of(hits: Hits) -> Fraction:
    """Mean accuracy over k = 1..n."""
    n = len(hits)
    accuracies = [Fraction(sum(hits[:k]), k) for k in range(1, n + 1)]
    return sum(accuracies, Fraction(0)) / n


def augrc_of(hits: Hits) -> Fraction:
    """Trapezoids below the points (k/n, errors among the first k / n), k = 0..n."""
    n = len(hits)
    heights = [Fraction(sum(not hit for hit in hits[:k]), n) for k in range(n + 1)]
    return sum(((a + b) / 2 * Fraction(1, n) for a, b in pairwise(heights)), Fraction(0))

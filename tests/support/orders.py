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


def kept_rows(coverage: Fraction, n: int) -> int:
    """How many rows a coverage keeps: rounded down, at least one."""
    return max(1, coverage.numerator * n // coverage.denominator)


def rows_between(low: Fraction, high: Fraction, n: int) -> range:
    """The numbers of kept rows above one coverage and up to another."""
    return range(low.numerator * n // low.denominator + 1, kept_rows(high, n) + 1)


def aurc_of(hits: Hits, among: range | None = None) -> Fraction:
    """Mean risk over numbers of kept rows; over k = 1..n unless given."""
    among = among or range(1, len(hits) + 1)
    return sum((risk_of_first(hits, k) for k in among), Fraction(0)) / len(among)


def auarc_of(hits: Hits, among: range | None = None) -> Fraction:
    """Mean accuracy over numbers of kept rows; over k = 1..n unless given."""
    among = among or range(1, len(hits) + 1)
    return sum((Fraction(sum(hits[:k]), k) for k in among), Fraction(0)) / len(among)


def augrc_of(hits: Hits, among: range | None = None) -> Fraction:
    """Mean height of the trapezoids below the points (k/n, errors among the first k / n)."""
    n = len(hits)
    among = among or range(1, n + 1)
    heights = [Fraction(sum(not hit for hit in hits[:k]), n) for k in range(n + 1)]
    return sum(((heights[k - 1] + heights[k]) / 2 for k in among), Fraction(0)) / len(among)


def auroc_of(hits: Hits) -> Fraction:
    """Share of the pairs of a hit and an error in which the hit comes first."""
    pairs = [i < j for i, a in enumerate(hits) if a for j, b in enumerate(hits) if not b]
    return Fraction(sum(pairs), len(pairs))


def normalised_auarc_of(
    uncertainty: Sequence[float], correct: Sequence[bool], among: range | None = None
) -> Fraction:
    """Share of the gap between the mean of all orders and the best one that is closed."""

    def figure(hits: Hits) -> Fraction:
        return auarc_of(hits, among)

    every = all_orders(correct)
    random, best = mean_over(every, figure), max(map(figure, every))
    return (mean_over(allowed_orders(uncertainty, correct), figure) - random) / (best - random)

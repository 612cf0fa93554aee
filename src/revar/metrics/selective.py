"""Selective classification: what is left when the most uncertain are rejected.

All figures are exact under ties: examples of one uncertainty are taken in every order, and the
figure is the mean over these orders. So none depends on the order of the rows. ``sample_weight``
of whole numbers equals repeated rows; other weights follow by continuous extension. So weights
count examples: ones that sum to one are one example, and the areas of `aurc` feel it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from revar.errors import UndefinedMetricWarning
from revar.metrics.arrays import selective_arguments, whole_count
from revar.metrics.ranking import (
    Floats,
    Ranking,
    among,
    expected_errors,
    rank,
    summed_generalised_risk,
    summed_risk,
)

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """Selective risk when the most certain examples are kept, one more at a time.

    Attributes:
        coverage: [n] share that is kept; k / n for k = 1..n without weights.
        risk: [n] expected share of errors among the kept.
        threshold: [n] the largest uncertainty among the kept.
    """

    coverage: Floats
    risk: Floats
    threshold: Floats


@dataclass(frozen=True, slots=True)
class AccuracyRejection:
    """Accuracy of what is left when the most uncertain examples are rejected.

    Attributes:
        rejection: [n] share that is rejected, falling from (n - 1) / n to 0.
        accuracy: [n] expected accuracy of the rest.
    """

    rejection: Floats
    accuracy: Floats


def risk_coverage_curve(
    uncertainty: Any, correct: Any, *, sample_weight: Any = None
) -> RiskCoverage:
    """The expected risk at every coverage.

    Args:
        uncertainty: [n] scores, higher is rejected first.
        correct: [n] booleans.
        sample_weight: [n] weights; the curve has a point per example of positive weight.
    """
    scores, hits, weights = selective_arguments(uncertainty, correct, sample_weight)
    if weights is None:
        right, failed = np.sort(scores[hits]), np.sort(scores[~hits])
        ranking = among(failed, [right])
        # Two sorted runs are merged in one pass.
        threshold = np.sort(np.concatenate([right, failed]), kind="stable").astype(np.float64)
        kept = np.arange(1.0, len(scores) + 1)
    else:
        ranking = rank(uncertainty, correct, sample_weight)
        # By weight within ties: the points must not depend on the order of the rows.
        order = np.lexsort((weights, scores))
        order = order[weights[order] > 0]
        threshold = scores[order].astype(np.float64)
        kept = np.minimum(np.cumsum(weights[order]), ranking.total)
        kept[-1] = ranking.total
    risk = expected_errors(ranking, kept) / kept
    return RiskCoverage(kept / ranking.total, risk, threshold)


def accuracy_rejection_curve(
    uncertainty: Any, correct: Any, *, sample_weight: Any = None
) -> AccuracyRejection:
    """The expected accuracy at every share of rejected examples."""
    curve = risk_coverage_curve(uncertainty, correct, sample_weight=sample_weight)
    return AccuracyRejection(1.0 - curve.coverage, 1.0 - curve.risk)


def _bounds(ranking: Ranking, coverage: Interval) -> tuple[Floats, Floats]:
    """Weights at the two ends of an interval of coverages."""
    low, high = coverage
    if not 0.0 <= low < high <= 1.0:
        msg = f"coverage is {coverage}: two shares low < high in [0, 1] are needed"
        raise ValueError(msg)
    first = whole_count(low * ranking.total) if ranking.counts else low * ranking.total
    last = ranking.kept(high)
    if not (first < last).all():
        msg = f"no example lies between the coverages {low} and {high} of {ranking.total:g}"
        raise ValueError(msg)
    return first, last


def aurc_of(ranking: Ranking, coverage: Interval = (0.0, 1.0)) -> Floats:
    """[...] mean selective risk over the coverages of an interval, see `aurc`."""
    first, last = _bounds(ranking, coverage)
    area = summed_risk(ranking, last)
    if coverage[0] > 0:
        area = area - summed_risk(ranking, first)
    return area / (last - first)


def e_aurc_of(ranking: Ranking) -> Floats:
    """[...] excess over the finite oracle, see `e_aurc`."""
    # What falls below zero is rounding: no order is better than the oracle.
    return np.maximum(aurc_of(ranking) - aurc_of(ranking.oracle()), 0.0)


def augrc_of(ranking: Ranking, coverage: Interval = (0.0, 1.0)) -> Floats:
    """[...] mean generalised risk over the coverages of an interval, see `augrc`."""
    first, last = _bounds(ranking, coverage)
    area = summed_generalised_risk(ranking, last)
    if coverage[0] > 0:
        area = area - summed_generalised_risk(ranking, first)
    return area / (ranking.total * (last - first))


def normalised_auarc_of(ranking: Ranking, coverage: Interval = (0.0, 1.0)) -> Floats:
    """[...] share of the gap between random and oracle that is closed; NaN without a gap."""
    best = aurc_of(ranking.oracle(), coverage)
    return _closed(ranking, aurc_of(ranking, coverage), best, coverage)


def _closed(ranking: Ranking, area: Floats, best: Floats, coverage: Interval) -> Floats:
    gap = ranking.error_rate - best
    closed = ranking.error_rate - area
    mixed = (ranking.wrong > 0) & (ranking.wrong < ranking.total) & (gap > 0)
    if ranking.counts:
        # Where nothing is rejected all orders are alike, and what gap there is is rounding.
        mixed &= _bounds(ranking, coverage)[0] < ranking.total - 1
    return np.where(mixed, closed / np.where(mixed, gap, 1.0), np.nan)


def failure_auroc_of(ranking: Ranking) -> Floats:
    """[...] chance that an error is less certain than a hit; NaN if there are no such pairs."""
    before = np.cumsum(ranking.errors, axis=-1) - ranking.errors
    hits = ranking.below - before + (ranking.size - ranking.errors) / 2.0
    pairs = ranking.wrong * (ranking.total - ranking.wrong)
    wins = (ranking.errors * hits).sum(axis=-1)
    return np.where(pairs > 0, wins / np.where(pairs > 0, pairs, 1.0), np.nan)


def auarc(
    uncertainty: Any, correct: Any, *, coverage: Interval = (0.0, 1.0), sample_weight: Any = None
) -> float:
    """Area under the accuracy-rejection curve, ``(1/n) sum_k accuracy of the k most certain``.

    Args:
        uncertainty: [n] higher is rejected first.
        correct: [n] booleans.
        coverage: the interval to average over; all of it unless given.
        sample_weight: [n] weights.

    >>> round(auarc([0.1, 0.2, 0.3], [True, True, False]), 12)  # (1 + 1 + 2/3) / 3
    0.888888888889
    """
    return 1.0 - aurc(uncertainty, correct, coverage=coverage, sample_weight=sample_weight)


def aurc(
    uncertainty: Any, correct: Any, *, coverage: Interval = (0.0, 1.0), sample_weight: Any = None
) -> float:
    """Area under the risk-coverage curve, ``(1/n) sum_k risk of the k most certain``."""
    return float(aurc_of(rank(uncertainty, correct, sample_weight), coverage))


def e_aurc(
    uncertainty: Any,
    correct: Any,
    *,
    oracle: Literal["finite", "asymptotic"] = "finite",
    sample_weight: Any = None,
) -> float:
    """`aurc` in excess of the best order, all errors rejected first (Geifman et al. 2019).

    Args:
        uncertainty: [n] higher is rejected first.
        correct: [n] booleans.
        oracle: ``finite`` compares with the best order of these n examples and is never
            negative; ``asymptotic`` with ``e + (1 - e) ln(1 - e)``, its limit for error rate e.
        sample_weight: [n] weights.
    """
    ranking = rank(uncertainty, correct, sample_weight)
    if oracle == "finite":
        return float(e_aurc_of(ranking))
    if oracle != "asymptotic":
        raise ValueError(f'oracle is "{oracle}": it must be finite or asymptotic')
    rate = float(ranking.error_rate)
    best = rate + (1.0 - rate) * np.log1p(-rate) if rate < 1 else 1.0
    return float(aurc_of(ranking) - best)


def augrc(
    uncertainty: Any, correct: Any, *, coverage: Interval = (0.0, 1.0), sample_weight: Any = None
) -> float:
    """Area under the generalised-risk-coverage curve (Traub et al. 2024).

    The generalised risk at k is ``errors among the kept / n``; trapezoids from (0, 0), divided
    by the length of the interval. Over all coverages it equals
    ``(1 - failure_auroc) e (1 - e) + e^2 / 2`` with e the error rate.
    """
    return float(augrc_of(rank(uncertainty, correct, sample_weight), coverage))


def normalised_auarc(
    uncertainty: Any, correct: Any, *, coverage: Interval = (0.0, 1.0), sample_weight: Any = None
) -> float:
    """Share of the gap between random and oracle AUARC that the score closes.

    1 for an oracle, 0 for chance, negative below it. NaN, with an `UndefinedMetricWarning`,
    where no order is better than another.
    """
    ranking = rank(uncertainty, correct, sample_weight)
    alike = f"every order is alike between the coverages {coverage[0]} and {coverage[1]}"
    _bounds(ranking, coverage)
    return _defined(
        lambda r: normalised_auarc_of(r, coverage), ranking, "normalised AUARC", otherwise=alike
    )


def accuracy_at_coverage(
    uncertainty: Any, correct: Any, coverage: float, *, sample_weight: Any = None
) -> float:
    """Expected accuracy of the ``floor(coverage * n)`` most certain examples, at least one.

    With weights that are not whole numbers, of the most certain that make up exactly
    ``coverage`` of the weight.

    Raises:
        ValueError: a coverage outside (0, 1].
    """
    if not 0.0 < coverage <= 1.0:
        raise ValueError(f"coverage is {coverage}, it must be in (0, 1]")
    ranking = rank(uncertainty, correct, sample_weight)
    return float(_accuracy_at(ranking, coverage))


def _accuracy_at(ranking: Ranking, coverage: float) -> Floats:
    kept = np.minimum(ranking.kept(coverage), ranking.total)
    return (kept - expected_errors(ranking, kept)) / kept


def coverage_at_risk(
    uncertainty: Any, correct: Any, max_risk: float, *, sample_weight: Any = None
) -> float:
    """The largest coverage of a threshold whose selective risk is at most ``max_risk``.

    A threshold accepts tied examples together. 0 where none is good enough. This describes the
    examples at hand; `revar.selection.threshold_for_risk` gives a threshold that holds on others.

    Raises:
        ValueError: a risk outside [0, 1].
    """
    if not 0.0 <= max_risk <= 1.0:
        raise ValueError(f"max_risk is {max_risk}, it must be in [0, 1]")
    ranking = rank(uncertainty, correct, sample_weight)
    # Between two blocks with errors the risk only falls, so the last place before a block is best.
    kept = np.r_[ranking.below, ranking.total]
    errors = np.r_[0.0, np.cumsum(ranking.errors)]
    good = kept[errors <= max_risk * kept * (1 + 1e-12)]
    return float(good.max() / ranking.total) if len(good) else 0.0


def failure_auroc(uncertainty: Any, correct: Any, *, sample_weight: Any = None) -> float:
    """Chance that an error is less certain than a hit, ties counting half.

    NaN, with an `UndefinedMetricWarning`, where there are no errors or nothing is right.
    """
    ranking = rank(uncertainty, correct, sample_weight)
    return _defined(failure_auroc_of, ranking, "failure AUROC")


def failure_aupr(uncertainty: Any, correct: Any, *, sample_weight: Any = None) -> float:
    """Average precision in finding errors by uncertainty, ties taken together.

    NaN, with an `UndefinedMetricWarning`, where there are no errors or nothing is right.
    """
    ranking = rank(uncertainty, correct, sample_weight)
    return _defined(_aupr_of, ranking, "failure AUPR")


def _aupr_of(ranking: Ranking) -> Floats:
    found = _found(ranking)
    # Tiny weights beside large ones are lost in the total, so it may seem less than its part.
    precision = found / np.maximum(ranking.total - ranking.below, found)
    value: Floats = (ranking.errors * precision).sum() / ranking.wrong
    return value


def _found(ranking: Ranking) -> Floats:
    """Weight of the errors that are rejected with each block and what is less certain."""
    return np.cumsum(ranking.errors[::-1])[::-1]


def fpr_at_tpr(
    uncertainty: Any, correct: Any, *, tpr: float = 0.95, sample_weight: Any = None
) -> float:
    """Share of hits rejected by the highest threshold that rejects this share of the errors.

    NaN, with an `UndefinedMetricWarning`, where there are no errors or nothing is right.

    Raises:
        ValueError: a ``tpr`` outside (0, 1].
    """
    if not 0.0 < tpr <= 1.0:
        raise ValueError(f"tpr is {tpr}, it must be in (0, 1]")
    ranking = rank(uncertainty, correct, sample_weight)
    return _defined(lambda r: _fpr_of(r, tpr), ranking, f"FPR at {tpr:.0%} TPR")


def _fpr_of(ranking: Ranking, tpr: float) -> Floats:
    found = _found(ranking)
    enough = np.flatnonzero(found >= tpr * found[0] * (1 - 1e-12))
    if len(enough) == 0:
        return np.asarray(np.nan)
    place = enough[-1]
    rejected_hits = max(ranking.total - ranking.below[place] - found[place], 0.0)
    return np.asarray(rejected_hits / (ranking.total - ranking.wrong))


def _why_undefined(ranking: Ranking) -> str:
    if ranking.wrong == 0:
        return f"no errors among {ranking.total:g} examples"
    if ranking.wrong == ranking.total:
        return f"nothing right among {ranking.total:g} examples"
    return ""


def _defined(
    figure: Callable[[Ranking], Any], ranking: Ranking, name: str, *, otherwise: str = ""
) -> float:
    """The figure, or NaN and a warning to the caller's caller where it is undefined."""
    reason = _why_undefined(ranking)
    value = float("nan") if reason else float(figure(ranking))
    if np.isnan(value):
        msg = f"{name} is undefined: {reason or otherwise}"
        warnings.warn(msg, UndefinedMetricWarning, stacklevel=3)
    return value


CURVE_FIGURES = (
    "auarc",
    "aurc",
    "e_aurc",
    "augrc",
    "normalised_auarc",
    "failure_auroc",
    "failure_aupr",
    "fpr_at_95_tpr",
)
"""What `curve_figures` gives; the last four need errors and hits."""


def curve_figures(uncertainty: Any, correct: Any, *, sample_weight: Any = None) -> dict[str, float]:
    """All figures of one score from one sort, by name.

    Undefined ones are NaN, with one `UndefinedMetricWarning` that gives the reason.
    """
    ranking = rank(uncertainty, correct, sample_weight)
    area, best = aurc_of(ranking), aurc_of(ranking.oracle())
    values = [1.0 - area, area, np.maximum(area - best, 0.0), augrc_of(ranking)]
    reason = _why_undefined(ranking)
    if reason:
        msg = f"{', '.join(CURVE_FIGURES[4:])} are undefined: {reason}"
        warnings.warn(msg, UndefinedMetricWarning, stacklevel=2)
        values += [np.asarray(np.nan)] * 4
    else:
        closed = _closed(ranking, area, best, (0.0, 1.0))
        values += [closed, failure_auroc_of(ranking), _aupr_of(ranking), _fpr_of(ranking, 0.95)]
    return dict(zip(CURVE_FIGURES, map(float, values), strict=True))

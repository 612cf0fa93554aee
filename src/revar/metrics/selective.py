"""Selective classification: what is left when the most uncertain are rejected.

All figures are exact under ties: examples of one uncertainty are taken in every order, and the
figure is the mean over these orders. So none depends on the order of the rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.errors import UndefinedMetricWarning
from revar.metrics.arrays import selective_arguments


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """Selective risk when the k most certain examples are kept, k = 1..n.

    Attributes:
        coverage: [n] k / n.
        risk: [n] expected share of errors among the kept.
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]


def _expected_hits(uncertainty: Any, correct: Any) -> NDArray[np.float64]:
    """[n] expected number of correct ones among the k most certain, k = 1..n.

    In a block of b tied examples with h hits every order is equally likely, so the j-th of them
    adds h / b.
    """
    scores, hits = selective_arguments(uncertainty, correct)
    order = np.argsort(scores, kind="stable")
    sorted_scores, sorted_hits = scores[order], hits[order]
    starts = np.flatnonzero(np.r_[True, sorted_scores[1:] != sorted_scores[:-1]])
    sizes = np.diff(np.r_[starts, len(scores)])
    per_example = np.repeat(np.add.reduceat(sorted_hits, starts) / sizes, sizes)
    expected: NDArray[np.float64] = np.cumsum(per_example)
    # A sum of shares such as 1/3 + 1/3 + 1/3 ends where the whole numbers do.
    ends = starts + sizes - 1
    expected[ends] = np.cumsum(np.add.reduceat(sorted_hits, starts))
    return expected


def risk_coverage_curve(uncertainty: Any, correct: Any) -> RiskCoverage:
    """The expected risk at every coverage.

    Args:
        uncertainty: [n] scores, higher is rejected first.
        correct: [n] booleans.
    """
    hits = _expected_hits(uncertainty, correct)
    kept = np.arange(1, len(hits) + 1)
    return RiskCoverage(kept / len(hits), 1.0 - hits / kept)


def auarc(uncertainty: Any, correct: Any) -> float:
    """Area under the accuracy-rejection curve, ``(1/n) sum_k accuracy of the k most certain``.

    >>> auarc([0.1, 0.2, 0.3], [True, True, False])  # (1 + 1 + 2/3) / 3
    0.8888888888888888
    """
    return float(1.0 - risk_coverage_curve(uncertainty, correct).risk.mean())


def aurc(uncertainty: Any, correct: Any) -> float:
    """Area under the risk-coverage curve; ``1 - auarc``."""
    return float(risk_coverage_curve(uncertainty, correct).risk.mean())


def e_aurc(uncertainty: Any, correct: Any) -> float:
    """`aurc` in excess of the best order: all errors rejected first, on these n examples."""
    _, hits = selective_arguments(uncertainty, correct)
    return aurc(uncertainty, correct) - aurc(1.0 - hits, hits)


def augrc(uncertainty: Any, correct: Any) -> float:
    """Area under the generalised-risk-coverage curve (Traub et al. 2024).

    The generalised risk at k is ``errors among the kept / n``; trapezoids from (0, 0). Equals
    ``(1 - failure_auroc) e (1 - e) + e^2 / 2`` with e the error rate.
    """
    hits = _expected_hits(uncertainty, correct)
    n = len(hits)
    generalised = np.r_[0.0, (np.arange(1, n + 1) - hits) / n]
    return float((generalised[1:] + generalised[:-1]).sum() / (2 * n))


def accuracy_at_coverage(uncertainty: Any, correct: Any, coverage: float) -> float:
    """Expected accuracy of the ``floor(coverage * n)`` most certain examples, at least one.

    Raises:
        ValueError: a coverage outside (0, 1].
    """
    if not 0.0 < coverage <= 1.0:
        raise ValueError(f"coverage is {coverage}, it must be in (0, 1]")
    hits = _expected_hits(uncertainty, correct)
    # 0.7 * 10 is 7.000000000000001 or 6.999999999999999 as the machine likes; both mean 7.
    kept = max(1, int(np.floor(coverage * len(hits) + 1e-9)))
    return float(hits[kept - 1] / kept)


def failure_auroc(uncertainty: Any, correct: Any) -> float:
    """Chance that an error is less certain than a hit, ties counting half.

    NaN, with an `UndefinedMetricWarning`, where there are no errors or nothing is right.
    """
    scores, hits = selective_arguments(uncertainty, correct)
    errors = int(len(hits) - hits.sum())
    if errors in (0, len(hits)):
        which = "no errors" if errors == 0 else "nothing right"
        msg = f"failure AUROC is undefined: {which} among {len(hits)} examples"
        warnings.warn(msg, UndefinedMetricWarning, stacklevel=2)
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle_rank = last - (counts - 1) / 2.0
    rank_sum = middle_rank[inverse][hits == 0].sum()
    pairs = errors * (len(hits) - errors)
    return float((rank_sum - errors * (errors + 1) / 2.0) / pairs)

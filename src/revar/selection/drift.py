"""Whether live data is still accepted at the rate of the calibration data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError
from revar.selection.arguments import open_share, vector
from revar.selection.coverage import rank_for
from revar.selection.result import Threshold
from revar.selection.tails import Binomial

Tails = Callable[[NDArray[np.int64]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""From numbers of accepted live examples to the p-values "too few" and "too many"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageDrift:
    """What the acceptance rate on live data says.

    Attributes:
        drifted: the rate has left its interval.
        live_coverage: share of the live examples that is accepted.
        interval: the rates, both ends included, that raise no alarm for so many live examples.
        reference_coverage: share of the calibration examples that is accepted.
        p_value: chance of a rate at least as strange without a drift, at most.
        n_live: live examples.
        message: one line for people.
    """

    drifted: bool
    live_coverage: float
    interval: tuple[float, float]
    reference_coverage: float
    p_value: float
    n_live: int
    message: str


def coverage_drift(
    reference: Any, live: Any, *, threshold: float | None = None, confidence: float = 0.95
) -> CoverageDrift:
    """Whether unlabelled live data is accepted at another rate than the calibration data.

    Without a drift an alarm has a chance of at most ``1 - confidence`` for one look at one batch,
    however small the calibration set. Many looks need a larger confidence each.

    For a threshold that is the k-th smallest of n continuous values the number accepted among m
    live ones is beta-binomial with parameters ``(m, k, n + 1 - k)``; its tails are those of
    Fisher's exact test. With ties "too few" takes k, or one more than the number of values below
    the threshold, and "too many" takes ``(b + 1, n - b)``, b the number of values <= the
    threshold; both only make an alarm rarer. A threshold that labels have chosen, for a
    risk, is no fixed rank: a quarter of the error goes into a band for the calibration rate at all
    thresholds together (Massart 1990), the rest into the binomial tail at its nearer edge
    (Berger and Boos 1994).

    Args:
        reference: the `Threshold`; or [n] uncertainties of calibration examples, with a
            `threshold` that is fixed or the value of a fixed rank among them.
        live: [m] uncertainties.
        threshold: accept iff the uncertainty is at most this; only without a `Threshold`.
        confidence: that there is no alarm without a drift.

    Raises:
        InputError: no threshold to compare at, no examples, or NaN.
    """
    delta = 1.0 - open_share(confidence, "confidence")
    values = vector(live, "live")
    at, rate, tails, spent = _reference(reference, threshold, len(values), delta)
    m = len(values)
    accepted = int((values <= at).sum())
    few, many = (float(tail.item()) for tail in tails(np.array([accepted])))
    p_value = min(1.0, spent + 2.0 * min(few, many))
    limit = (delta - spent) / 2.0
    least = _first(lambda counts: tails(counts)[0] > limit, m)
    most = m - _first(lambda counts: tails(m - counts)[1] > limit, m)
    drifted = not least <= accepted <= most
    live_rate, interval = accepted / m, (least / m, most / m)
    state = "has left" if drifted else "is within"
    message = (
        f"acceptance rate {live_rate:.3f} on {m} live examples {state} "
        f"{interval[0]:.3f} to {interval[1]:.3f} (calibration {rate:.3f}, p = {p_value:.2g})"
    )
    return CoverageDrift(
        drifted=drifted,
        live_coverage=live_rate,
        interval=interval,
        reference_coverage=rate,
        p_value=p_value,
        n_live=m,
        message=message,
    )


def _reference(
    reference: Any, threshold: float | None, m: int, delta: float
) -> tuple[float, float, Tails, float]:
    """The threshold, the calibration rate, the tails, and what of the error they cost already."""
    if isinstance(reference, Threshold):
        if threshold is not None:
            raise InputError("threshold= is for reference uncertainties, not for a Threshold")
        if reference.threshold is None:
            raise InputError("the reference has no threshold, so there is no rate to compare with")
        n, at, rate = reference.n, reference.threshold, reference.coverage
        if reference.wanted is None:
            spent = delta / 4.0
            margin = math.sqrt(math.log(2.0 / spent) / (2.0 * n))
            return at, rate, _binomial_tails(m, rate, margin), spent
        return at, rate, _rank_tails(m, n, rank_for(reference.wanted, n), round(rate * n)), 0.0
    if threshold is None or math.isnan(threshold):
        raise InputError("give the threshold= that goes with the reference uncertainties")
    values = vector(reference, "reference")
    below, inside = int((values < threshold).sum()), int((values <= threshold).sum())
    tails = _rank_tails(m, len(values), min(below + 1, inside), inside)
    return float(threshold), inside / len(values), tails, 0.0


def _rank_tails(m: int, n: int, rank: int, inside: int) -> Tails:
    """Beta-binomial tails, by the count of calibration examples in the pooled order.

    Less than a + 1 of m live values lie below the rank-th of n calibration values iff the first
    ``rank + a`` of the pooled order hold at least `rank` calibration values: hypergeometric.
    """
    from scipy.stats import hypergeom

    def tails(accepted: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        drawn = np.minimum(rank + accepted, n + m)
        few = hypergeom.sf(rank - 1, n + m, n, drawn) if rank else np.ones(len(accepted))
        many = hypergeom.cdf(inside, n + m, n, inside + accepted)
        return few, many

    return tails


def _binomial_tails(m: int, rate: float, margin: float) -> Tails:
    """Tails at the edge of a band for the calibration rate."""
    low, high = max(0.0, rate - margin), min(1.0, rate + margin)

    def tails(accepted: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        few = Binomial().p_value(accepted, np.full(len(accepted), m), low)
        many = Binomial().p_value(m - accepted, np.full(len(accepted), m), 1.0 - high)
        return few, many

    return tails


def _first(holds: Callable[[NDArray[np.int64]], NDArray[np.bool_]], m: int) -> int:
    """The smallest of 0..m where a condition holds that stays true once it is; it does at m."""
    low, high = 0, m
    while low < high:
        tried = np.unique(np.linspace(low, high, 66).astype(np.int64))[:-1]
        kept = holds(tried)
        where = int(np.argmax(kept)) if kept.any() else len(tried)
        low, high = (
            int(tried[where - 1]) + 1 if where else low,
            int(tried[where]) if where < len(tried) else high,
        )
    return low

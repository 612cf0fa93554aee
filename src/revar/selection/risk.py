"""The threshold that keeps the risk of the accepted below a limit, with a stated confidence."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

from revar.errors import InputError, unknown
from revar.selection import fixed_sequence, sgr
from revar.selection.arguments import losses_of, number, open_share, same_length, vector
from revar.selection.cuts import Cuts
from revar.selection.result import Attainable, Threshold
from revar.selection.tails import Binomial, HoeffdingBentkus, Tail

Procedure = Literal["fixed_sequence", "sgr"]
_PROCEDURES = {"fixed_sequence": fixed_sequence.search, "sgr": sgr.search}


def threshold_for_risk(
    uncertainty: Any,
    correct: Any = None,
    *,
    max_risk: float,
    confidence: float = 0.95,
    procedure: Procedure = "fixed_sequence",
    loss: Any = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    score: str = "",
) -> Threshold:
    """The largest threshold found whose accepted examples keep the risk, and it is proved.

    With a chance of at least `confidence` over the calibration set the result is such that
    ``E[loss | uncertainty <= threshold] <= max_risk`` on new examples, or has no threshold at all.
    The calibration set must have served nothing else. `procedure` says how it is searched for:
    see `revar.selection.fixed_sequence` and `revar.selection.sgr`.

    The interval for the coverage is that of Dvoretzky, Kiefer, Wolfowitz and Massart (1990),
    which holds for all thresholds together, for labels have chosen among them.

    Args:
        uncertainty: [n] of calibration examples, higher is rejected first.
        correct: [n] booleans; the risk is the share of errors.
        max_risk: the limit.
        confidence: that the limit holds.
        procedure: ``fixed_sequence``, or ``sgr``, which mostly accepts less and is proved only
            for a risk that is monotone in the threshold.
        loss: [n] instead of `correct`: any loss within `bounds`.
        bounds: what the loss can be at least and at most, whatever was seen.
        score: the name of the score, kept with the result.

    Returns:
        Its ``threshold`` is ``None`` if nothing could be proved to keep the limit; ``best`` has the
        lowest bound that could be.

    Raises:
        InputError: a limit or confidence out of range, vectors of different lengths, NaN, or
            correctness that is neither right nor wrong.
    """
    values = vector(uncertainty, "uncertainty")
    losses, (low, high) = losses_of(correct, loss, bounds)
    same_length(values, losses, "correct" if loss is None else "loss")
    delta = 1.0 - open_share(confidence, "confidence")
    if not low < number(max_risk, "max_risk") < high:
        raise InputError(f"max_risk is {max_risk}, it must be in ({low:g}, {high:g})")
    if procedure not in _PROCEDURES:
        raise unknown("procedure", procedure, _PROCEDURES)
    width = high - low
    tail: Tail = Binomial() if loss is None else HoeffdingBentkus()
    cuts = Cuts.of(values, losses)
    passed, best = _PROCEDURES[procedure](cuts, tail, (max_risk - low) / width, delta)
    best = _unscaled(best, low, width)
    if passed is not None:
        best = replace(best, risk_bound=float(max_risk))
    found = best if passed is not None else Attainable(threshold=None, coverage=0.0)
    margin = math.sqrt(math.log(2.0 / delta) / (2.0 * len(values)))
    interval = (max(0.0, found.coverage - margin), min(1.0, found.coverage + margin))
    return Threshold(
        threshold=found.threshold,
        coverage=found.coverage,
        coverage_interval=interval if found.threshold is not None else (0.0, 0.0),
        n=len(values),
        confidence=float(confidence),
        procedure=procedure,
        best=best,
        max_risk=float(max_risk),
        risk=found.risk,
        risk_bound=found.risk_bound,
        score=score,
    )


def _unscaled(point: Attainable, low: float, width: float) -> Attainable:
    if point.risk is None or point.risk_bound is None:
        return point
    return replace(point, risk=low + width * point.risk, risk_bound=low + width * point.risk_bound)

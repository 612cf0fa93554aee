"""Is one method better than another? Paired resampling over examples and seeds.

All methods are drawn the same examples (whole clusters, such as patients, where given) and the
same seeds, so what is common to them cancels in their differences.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from revar.errors import UndefinedMetricWarning
from revar.metrics.arrays import as_array, selective_arguments
from revar.metrics.few_seeds import for_few_seeds, moved_by_seeds
from revar.metrics.ranking import Floats, Ranking
from revar.metrics.resampling import SortedScore, cluster_numbers, draw_counts, sort_score
from revar.metrics.selective import (
    augrc_of,
    aurc_of,
    e_aurc_of,
    failure_auroc_of,
    normalised_auarc_of,
)

Figure = Literal[
    "auarc", "aurc", "e_aurc", "augrc", "normalised_auarc", "failure_auroc", "accuracy"
]
_FIGURES: dict[str, tuple[Callable[[Ranking], Floats], bool]] = {
    "auarc": (lambda r: 1.0 - aurc_of(r), True),
    "aurc": (aurc_of, False),
    "e_aurc": (e_aurc_of, False),
    "augrc": (augrc_of, False),
    "normalised_auarc": (normalised_auarc_of, True),
    "failure_auroc": (failure_auroc_of, True),
    "accuracy": (lambda r: 1.0 - r.error_rate, True),
}
"""How to compute a figure, and whether more is better."""
_CELLS = 2_000_000
"""Resampled examples held at a time; the result does not depend on it."""
_ROUNDING = 1e-12
"""Figures are level within this: means over seeds are rounded, accuracies are often equal."""
_MOST_UNDEFINED = 0.05
"""Share of resamples in which a figure may be undefined before nothing is said of it."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One method in a comparison.

    What is taken from resamples is NaN where the figure is undefined in over 5 % of them. Intervals
    and p-values allow for the number of seeds (`revar.metrics.few_seeds`).

    Attributes:
        name: of the method.
        value: mean of the figure over seeds.
        low: lower end of its confidence interval.
        high: upper end.
        by_seed: the figure of each seed.
        rank: 1 is best; mean over resamples, so that near ties show. Methods that are undefined
            too often are not ranked.
        difference: to the reference method, positive is better whatever the figure; 0 for itself.
        difference_low: lower end of its confidence interval.
        difference_high: upper end.
        p_value: two-sided, of no difference; 1 for the reference.
        p_holm: the same, corrected for all methods compared (Holm 1979).
    """

    name: str
    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    rank: float
    difference: float
    difference_low: float
    difference_high: float
    p_value: float
    p_holm: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found.

    Attributes:
        figure: that was compared.
        reference: the method the differences are to.
        methods: best first.
        confidence: of the intervals.
        n_examples: per seed.
        n_seeds: per method.
        n_clusters: drawn as wholes; the number of examples without clusters.
        n_resamples: of the bootstrap.
    """

    figure: str
    reference: str
    methods: tuple[Compared, ...]
    confidence: float
    n_examples: int
    n_seeds: int
    n_clusters: int
    n_resamples: int

    def __getitem__(self, name: str) -> Compared:
        for method in self.methods:
            if method.name == name:
                return method
        raise KeyError(name)


def compare(
    uncertainty: Mapping[str, Any],
    correct: Mapping[str, Any] | Any,
    *,
    figure: Figure = "auarc",
    reference: str | None = None,
    clusters: Any = None,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compare scores, or methods, on the same test examples.

    Args:
        uncertainty: method to [n], or to [seeds, n] where it was trained several times; seeds
            of different methods belong together in their order.
        correct: method to booleans of the same shape, or one array for all.
        figure: to compare.
        reference: the method that differences are to; the first unless given.
        clusters: [n] what must be drawn together, such as patients.
        n_resamples: of the bootstrap.
        confidence: of the intervals.
        seed: of the bootstrap.

    Where a figure is undefined in some resamples (in them a seed has no errors, or nothing right),
    an `UndefinedMetricWarning` counts them and the others are used; see `Compared`.

    Raises:
        ValueError: other shapes for different methods, an unknown name, NaN, or a single example
            or cluster, which cannot be resampled.
    """
    if figure not in _FIGURES:
        raise ValueError(f'figure is "{figure}": known are {", ".join(_FIGURES)}')
    if not uncertainty:
        raise ValueError("no methods to compare")
    if not 0 < confidence < 1 or n_resamples < 1:
        raise ValueError(
            f"confidence is {confidence}, n_resamples {n_resamples}: in (0, 1) and >= 1 needed"
        )
    names = list(uncertainty)
    reference = names[0] if reference is None else reference
    if reference not in names:
        raise ValueError(f'reference is "{reference}": known are {", ".join(names)}')
    scores = {name: _seeds(name, uncertainty[name], correct) for name in names}
    shapes = {name: (len(s), len(s[0].order)) for name, s in scores.items()}
    if len(set(shapes.values())) != 1:
        said = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"methods must have the same seeds and examples, not {said}")
    n_seeds, n = shapes[reference]
    numbers = cluster_numbers(clusters, n)
    compute, more_is_better = _FIGURES[figure]

    def values_of(counts: Any) -> Floats:
        """[methods, seeds, rows] the figure on [rows, n] resamples."""
        return np.stack([[compute(s.drawn(counts)) for s in scores[name]] for name in names])

    point = values_of(np.ones((1, n), dtype=np.int32))[:, :, 0]
    generator = np.random.default_rng(seed)
    # Seeds first and for all resamples: so the size of the blocks changes no draw.
    drawn = moved_by_seeds(draw_counts(None, n_seeds, n_resamples, generator), point)
    block = max(1, _CELLS // n)
    for first in range(0, n_resamples, block):
        rows = min(block, n_resamples - first)
        values = values_of(draw_counts(numbers, n, rows, generator))
        drawn[first : first + rows] += values.mean(axis=1).T
    _warn_undefined(names, drawn, figure)
    return _summary(
        names, reference, point, drawn, figure=figure, confidence=confidence,
        more_is_better=more_is_better, n=n,
        n_clusters=n if numbers is None else int(numbers.max()) + 1,
    )  # fmt: skip


def _seeds(name: str, uncertainty: Any, correct: Mapping[str, Any] | Any) -> list[SortedScore]:
    if isinstance(correct, Mapping):
        if name not in correct:
            raise ValueError(f'correct has no "{name}"')
        correct = correct[name]
    scores, hits = np.atleast_2d(as_array(uncertainty)), np.atleast_2d(as_array(correct))
    if len(hits) == 1:
        hits = np.repeat(hits, len(scores), axis=0)
    if scores.shape != hits.shape or scores.ndim != 2 or len(scores) == 0:
        msg = f'"{name}": uncertainty has shape {scores.shape}, correct {hits.shape}'
        raise ValueError(msg)
    try:
        return [
            sort_score(*selective_arguments(*pair)[:2]) for pair in zip(scores, hits, strict=True)
        ]
    except ValueError as error:
        raise ValueError(f'"{name}": {error}') from error


def _warn_undefined(names: list[str], drawn: Floats, figure: str) -> None:
    """One warning, to the caller of `compare`, for all resamples without a value."""
    counts = dict(zip(names, np.isnan(drawn).sum(axis=0).tolist(), strict=True))
    if not any(counts.values()):
        return
    of = ", ".join(f'{count} of {len(drawn)} for "{name}"' for name, count in counts.items())
    over = ", ".join(f'"{name}"' for name, count in counts.items() if _too_many(count, len(drawn)))
    then = "they are left out"
    if over:
        then += f"; all that resamples tell is NaN for {over}, over {_MOST_UNDEFINED:.0%} of them"
    msg = f"{figure} is undefined in resamples with no errors or nothing right, {of}: {then}"
    warnings.warn(msg, UndefinedMetricWarning, stacklevel=3)


def _too_many(undefined: Any, resamples: int) -> bool:
    return bool(undefined > _MOST_UNDEFINED * resamples)


def _summary(
    names: list[str], reference: str, point: Floats, drawn: Floats, *, figure: str,
    confidence: float, more_is_better: bool, n: int, n_clusters: int,
) -> Comparison:  # fmt: skip
    sign = 1.0 if more_is_better else -1.0
    at = names.index(reference)
    means = point.mean(axis=1)
    differences = sign * for_few_seeds(drawn - drawn[:, at : at + 1], point - point[at])
    low, high = _intervals(for_few_seeds(drawn, point), confidence)
    d_low, d_high = _intervals(differences, confidence)
    p_values = _p_values(differences)
    p_values[at] = 1.0
    p_holm = np.ones(len(names))
    others = [i for i in range(len(names)) if i != at]
    p_holm[others] = holm(p_values[others])
    ranks = _ranks(sign * drawn)
    methods = [
        Compared(
            name=name,
            value=float(means[i]),
            low=float(low[i]),
            high=float(high[i]),
            by_seed=tuple(point[i].tolist()),
            rank=float(ranks[i]),
            difference=float(sign * (means[i] - means[at])),
            difference_low=float(d_low[i]),
            difference_high=float(d_high[i]),
            p_value=float(p_values[i]),
            p_holm=float(p_holm[i]),
        )
        for i, name in enumerate(names)
    ]
    methods.sort(key=lambda m: (np.isnan(m.value), -sign * m.value))
    return Comparison(
        figure, reference, tuple(methods), confidence, n, point.shape[1], n_clusters, len(drawn)
    )


def _trusted(drawn: Floats) -> list[Floats | None]:
    """The defined ones of each column of resamples; none where too many are undefined."""
    defined = ~np.isnan(drawn)
    return [
        None if _too_many((~keep).sum(), len(drawn)) else column[keep]
        for column, keep in zip(drawn.T, defined.T, strict=True)
    ]


def _intervals(drawn: Floats, confidence: float) -> Floats:
    """[2, methods] lower and upper ends, by percentiles."""
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    undefined = np.full(2, np.nan)
    ends = [undefined if v is None else np.quantile(v, tails) for v in _trusted(drawn)]
    return np.stack(ends, axis=1)


def _p_values(differences: Floats) -> Floats:
    """[methods] two-sided: how rarely a resample falls on the other side of zero.

    One resample is added to each side, so that none is ever zero; ties count for both.
    """
    p_values = np.full(differences.shape[1], np.nan)
    for i, values in enumerate(_trusted(differences)):
        if values is not None:
            side = min((values <= _ROUNDING).sum(), (values >= -_ROUNDING).sum())
            p_values[i] = min(1.0, 2 * (side + 1) / (len(values) + 1))
    return p_values


def _ranks(better: Floats) -> Floats:
    """[methods] mean rank over resamples, 1 for the largest; level ones share their ranks."""
    ranks = np.full(better.shape[1], np.nan)
    ranked = [i for i, values in enumerate(_trusted(better)) if values is not None]
    rows = better[:, ranked]
    rows = rows[~np.isnan(rows).any(axis=1), :, None]
    if len(rows):
        lead = rows.transpose(0, 2, 1) - rows
        ahead = (lead > _ROUNDING).sum(axis=2)
        level = (np.abs(lead) <= _ROUNDING).sum(axis=2) - 1
        ranks[ranked] = (1 + ahead + level / 2).mean(axis=0)
    return ranks


def holm(p_values: Any) -> Floats:
    """P-values corrected for their number: Holm's step-down method (1979).

    NaN stays NaN and counts in the number, as the test was meant to be made.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = values[order] * np.arange(len(values), 0, -1)
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return corrected

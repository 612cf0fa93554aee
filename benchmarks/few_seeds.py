"""How often what tables and `compare` tell is wrong, where there is nothing to tell.

    python benchmarks/few_seeds.py --json results/metrics/few_seeds.json

Two methods of equal worth whose seeds differ more or less: how often the 95 % interval of their
difference in AUARC holds 0, and how wide it is over the exact one, with `compare` and with
percentiles of drawn seeds and examples, as it had them before. Columns of a table whose rows are
equal: how often any is told from the best.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.metrics import auarc, compare
from revar.metrics.resampling import draw_counts, sort_score
from revar.metrics.selective import aurc_of
from revar.report.telling import told_from
from where import here, keep

EXAMPLES, RESAMPLES = 120, 199
DIFFER = {"not at all": 0.0, "less than examples": 0.15, "more": 0.4, "much more": 1.0}
"""Standard deviation over seeds of the evidence of an error."""
SEEDS = (2, 3, 5, 10)
SPREADS: dict[str, tuple[Sequence[float], int]] = {
    "2 alike, 3 seeds": ([1] * 2, 3),
    "6 alike, 3 seeds": ([1] * 6, 3),
    "9 alike, 2 seeds": ([1] * 9, 2),
    "9 alike, 5 seeds": ([1] * 9, 5),
    "1 of 9 by 5, 3 seeds": ([1] * 8 + [5], 3),
    "2 of 9 by 5, 5 seeds": ([1] * 7 + [5] * 2, 5),
    "1 of 5 by 10, 3 seeds": ([1] * 4 + [10], 3),
    "3 of 9 by 10, 5 seeds": ([1] * 6 + [10] * 3, 5),
}
"""Standard deviations of the rows of a column."""
Floats = NDArray[np.float64]


def drawn_alike(rng: np.random.Generator, seeds: int, differ: float) -> tuple[Floats, Any]:
    """[2, seeds, n] uncertainty of two methods of equal worth, and [n] what both get right."""
    correct = rng.random(EXAMPLES) > 0.3
    common = rng.normal(size=EXAMPLES)
    evidence = 1 + differ * rng.normal(size=(2, seeds, 1))
    noise = 0.5 * rng.normal(size=(2, seeds, EXAMPLES))
    return common + evidence * ~correct + noise, correct


def before(uncertainty: Floats, correct: Any, seed: int) -> tuple[float, float]:
    """Percentiles of the difference, seeds and examples drawn alike."""
    seeds = uncertainty.shape[1]
    rng = np.random.default_rng(seed)
    shares = draw_counts(None, seeds, RESAMPLES, rng) / seeds
    counts = draw_counts(None, EXAMPLES, RESAMPLES, rng)
    one, other = (
        sum(
            shares[:, s] * (1 - aurc_of(sort_score(scores[s], correct).drawn(counts)))
            for s in range(seeds)
        )
        for scores in uncertainty
    )
    low, high = np.quantile(np.asarray(other) - np.asarray(one), [0.025, 0.975])
    return float(low), float(high)


def intervals(seeds: int, differ: float, studies: int) -> dict[str, float]:
    """Shares of intervals that hold 0, and median widths."""
    rng = np.random.default_rng(seeds)
    ends: dict[str, list[tuple[float, float]]] = {"before": [], "now": []}
    differences = []
    for study in range(studies):
        uncertainty, correct = drawn_alike(rng, seeds, differ)
        both = dict(zip("ab", uncertainty, strict=True))
        found = compare(both, correct, n_resamples=RESAMPLES, seed=study)["b"]
        ends["now"].append((found.difference_low, found.difference_high))
        ends["before"].append(before(uncertainty, correct, study))
        means = [np.mean([auarc(one, correct) for one in scores]) for scores in uncertainty]
        differences.append(means[1] - means[0])
    exact = 2 * 1.96 * float(np.std(differences))
    result = {}
    for way, pairs in ends.items():
        low, high = np.array(pairs).T
        result[f"{way}_holds"] = float(np.mean((low <= 0) & (high >= 0)))
        result[f"{way}_width"] = float(np.median(high - low) / exact)
    return result


def told(spreads: Sequence[float], seeds: int, studies: int) -> float:
    """Share of columns of equal rows in which any is told from the best."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(studies):
        table = rng.normal(size=(len(spreads), seeds)) * np.array(spreads)[:, None]
        table += rng.normal(size=seeds)
        rows = {str(k): dict(enumerate(row.tolist())) for k, row in enumerate(table)}
        wrong += bool(told_from(rows, str(table.mean(axis=1).argmax())))
    return wrong / studies


def main() -> None:
    """Simulate and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--columns", type=int, default=3000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"studies": options.studies, "columns": options.columns}
    found["told"] = {name: told(*asked, options.columns) for name, asked in SPREADS.items()}
    found["intervals"] = {
        name: {str(seeds): intervals(seeds, differ, options.studies) for seeds in SEEDS}
        for name, differ in DIFFER.items()
    }
    print(found)
    if options.json is not None:
        keep(options.json, {**here(), **found})


if __name__ == "__main__":
    main()

"""What a second network beside f adds to its softmax response, from runs of the study.

With two classes, what another network thinks of f's answer is its own log-odds, turned round where
the two disagree. So runs that are there can be each other's second readers: a logistic model of
both log-odds is fitted on tune data and judged on test sets.

    python benchmarks/uscore_readers.py OUT --json results/uscore/readers-retinas.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from revar.metrics import auarc
from uscore_store import Run, runs_in
from where import here, keep

FOLDER = "eyepacs"
"""The only data with two classes."""
SETS = ("test", "aptos", "deepdrid")
READERS = ("erm+meta", "sat+meta", "gamblers+meta")


def both(first: Run, second: Run, name: str) -> NDArray[np.float64]:
    """[n, 2] log-odds against the answer of the first, by either.

    Args:
        first: whose answers count.
        second: a run on the same examples, of two classes.
        name: of the set.
    """
    own = first.uncertainty(name, "softmax")
    other = second.uncertainty(name, "softmax")
    same = first.correct(name, "softmax") == second.correct(name, "softmax")
    return np.stack([own, np.where(same, other, -other)], axis=1).astype(np.float64)


def gain(first: Run, second: Run, name: str) -> float:
    """Points of AUARC that both together have over softmax response of the first."""
    model = LogisticRegression().fit(both(first, second, "tune"), ~first.correct("tune", "softmax"))
    weights = model.coef_[0].clip(min=0)
    found, right = both(first, second, name), first.correct(name, "softmax")
    return 100 * (auarc(found @ weights, right) - auarc(found[:, 0], right))


def main(arguments: list[str] | None = None) -> int:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="of benchmarks/uscore.py")
    parser.add_argument("--ours", default="trajectory+meta")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    runs = {(run.way, run.seed): run for run in runs_in(options.out) if run.folder == FOLDER}
    seeds = sorted(
        seed for way, seed in runs
        if way == options.ours and all((reader, seed) in runs for reader in READERS)
    )  # fmt: skip
    if not seeds:
        wanted = ", ".join((options.ours, *READERS))
        print(f'error: "{options.out}" has no seed of {FOLDER} by all of {wanted}', file=sys.stderr)
        return 2
    gains: dict[str, dict[str, list[float]]] = {}
    for reader in READERS:
        gains[reader] = {
            name: [
                round(gain(runs[options.ours, seed], runs[reader, seed], name), 3) for seed in seeds
            ]
            for name in SETS
        }
        means = {name: f"{np.mean(values):+.2f}" for name, values in gains[reader].items()}
        print(reader, len(seeds), "seeds", means)
    keep(options.json, {**here(), "ours": options.ours, "gains": gains})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What the U-Score adds to softmax and dropout, from runs of the study: fused with it and without.

The fused score of a run is fitted on tune data, as in the product, of softmax response, dropout
entropy and the U-Score, and again without the U-Score. Both rank the same answers of test sets.

    python benchmarks/uscore_fusion.py OUT --json results/uscore/fusion.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError
from revar.metrics import auarc
from revar.scores.learned import Fusion, fit_features
from uscore_report import markdown
from uscore_store import Run, runs_in
from where import here, keep

WITHOUT = ("softmax", "dropout_entropy")
WITH = (*WITHOUT, "uscore")


def features_of(run: Run, name: str, scores: tuple[str, ...]) -> dict[str, NDArray[np.float64]]:
    """[n] each, of a set."""
    return {score: run.uncertainty(name, score).astype(np.float64) for score in scores}


def ranked(fusion: Fusion, features: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """[n] the fused score, up to a constant."""
    pairs = zip(fusion.features, fusion.coefficients, strict=True)
    total: NDArray[np.float64] = np.sum([v * features[score] for score, v in pairs], axis=0)
    return total


def row_of(run: Run, name: str) -> dict[str, Any]:
    """Of a run and a set: AUARC in percent of softmax response, and of both fusions."""
    right = run.correct(name, "softmax")
    row: dict[str, Any] = {
        "folder": run.folder, "set": name, "way": run.way, "seed": run.seed,
        "softmax": 100 * auarc(run.uncertainty(name, "softmax"), right),
    }  # fmt: skip
    for told_as, scores in (("without", WITHOUT), ("with", WITH)):
        fusion = fit_features(features_of(run, "tune", scores), ~run.correct("tune", "softmax"))
        found = features_of(run, name, scores)
        row[told_as] = 100 * auarc(ranked(fusion, found), right)
    return row


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Of every run that has tune data, dropout and a U-Score."""
    rows = []
    for run in runs_in(folder):
        if "tune" not in run.sets or not set(WITH) <= set(run.figures("tune")):
            continue
        rows += [row_of(run, name) for name in run.sets if name != "tune"]
    return sorted(rows, key=lambda row: (row["way"], row["folder"], row["set"], row["seed"]))


def main(arguments: list[str] | None = None) -> int:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, nargs="+", help="of benchmarks/uscore.py")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    try:
        rows = [row for folder in options.out for row in rows_in(folder)]
        if not rows:
            raise InputError("no finished run has tune data, dropout and a U-Score")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["way"], row["folder"], row["set"]), []).append(row)
    lines = []
    for (way, folder, name), some in groups.items():
        gains = [row["with"] - row["without"] for row in some]
        means = [f"{np.mean([row[key] for row in some]):.2f}" for key in ("softmax", "without")]
        each = " ".join(f"{gain:+.3f}" for gain in gains)
        lines.append([way, f"{folder} {name}", *means, f"{np.mean(gains):+.3f}", each])
    heads = ["way", "set", "softmax", "fused without g", "with g, less that", "by seed"]
    print(markdown("AUARC, %, fused with the U-Score and without", heads, lines))
    keep(options.json, {**here(), "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

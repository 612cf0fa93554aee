"""The step sizes of the controlled study, chosen on seeds that the study does not use.

Every method gets the same grid, scenario 1, five seeds from 1,000 on; the best mean rank
correlation with the ideal weights wins and is written into `revar.studies.controlled`.

    python benchmarks/controlled_rates.py --out results/controlled/rates.csv
"""

from __future__ import annotations

import argparse
import csv
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

from revar.studies.controlled import ENTRANTS, SCALES, Cell, Scale, run_cells

INNER, OUTER = (0.03, 0.1), (1e-4, 3e-4, 1e-3)
SEEDS = range(1000, 1005)


def tried(name: str, inner: float, outer: float, scale: Scale) -> dict[str, Any]:
    """One point of the grid."""
    method = replace(ENTRANTS[name].method, outer_learning_rate=outer)  # type: ignore[call-arg]
    cells = [
        Cell(
            part="table", name=name, scenario="1", shift=None, seed=seed, method=method, inner=inner
        )
        for seed in SEEDS
    ]
    rows = run_cells(cells, scale, "linear")
    figures = {figure: mean(row[figure] for row in rows) for figure in ("spearman", "cv")}
    return {"method": name, "inner": inner, "outer": outer, **figures}


def main(arguments: list[str] | None = None) -> None:
    """Try the grid and say what won."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", default="small", choices=SCALES)
    parser.add_argument("--methods", nargs="+", default=list(ENTRANTS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    scale = SCALES[options.scale]
    grid = [(name, i, o, scale) for name in options.methods for i in INNER for o in OUTER]
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(tried, *zip(*grid, strict=True)))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for name in options.methods:
        best = max((r for r in rows if r["method"] == name), key=lambda r: r["spearman"])
        print(f"{name}: inner {best['inner']:g}, outer {best['outer']:g} ({best['spearman']:.3f})")


if __name__ == "__main__":
    main()

"""Does g find wrong labels as well when its look-ahead is the training step itself?

Three clusters, one region of one of them labelled wrongly in training, a clean meta set. g reads
the features of f and is moved by linear updates on training examples in every step. The figure is
the mean weight of that region relative to all others: below 1 g has found it. Either way g learns
from features of a deterministic pass, as it is asked: from those of the training pass, which batch
norm takes from the batch, it found the region in 3 seeds of 8.

    python benchmarks/shared_gradient.py --json results/shared_gradient/clusters.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from revar.data.source import Part, Source
from revar.fitting import fit_model
from revar.progress import Silent
from revar.recipe import Budget, Recipe, make_method, with_settings
from where import here, keep

SETTINGS = {
    "scorer": "features", "update": "linear", "candidates": "train", "interval": "1",
    "meta_batch": "512", "outer_learning_rate": "0.003", "dropout_rate": "0.1",
}  # fmt: skip


def clusters(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """[n, 4] points around three places on a circle, two columns of noise; their classes."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 3
    angle = 2 * np.pi * y / 3
    places = np.stack([2 * np.cos(angle), 2 * np.sin(angle), 0 * angle, 0 * angle], axis=1)
    return places + generator.standard_normal((n, 4)), y


def relative_weight(backbone: str, seed: int, *, shared: bool) -> float:
    """Of the region with wrong labels, after a run."""
    x, y = clusters(900, seed)
    wrong = (y == 2) & (x[:, 3] > 0)
    source = Source(Part(x, np.where(wrong, 0, y)), meta=Part(*clusters(300, 100 + seed)))
    plain = Recipe(
        method=make_method("revar"), backbone=backbone, seed=seed,
        budget=Budget(epochs=12, batch_size=32),
    )  # fmt: skip
    recipe = with_settings(plain, {**SETTINGS, "shares_gradient": str(shared).lower()})
    model = fit_model(recipe, source, device=torch.device("cpu"), observer=Silent())
    train = model.predictions["train"]
    weight, region = train.columns["weight"], wrong[train.index]
    return float(weight[region].mean() / weight[~region].mean())


def main() -> None:
    """Print a table and write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title="weight of the region with wrong labels, relative to all others")
    for column in ("net", "look-ahead", "by seed", "found"):
        table.add_column(column)
    found: dict[str, dict[str, list[float]]] = {}
    for backbone in ("mlp", "perceptron"):
        for shared in (False, True):
            way = "the training step" if shared else "its own"
            each = [relative_weight(backbone, seed, shared=shared) for seed in range(options.seeds)]
            found.setdefault(backbone, {})[way] = each
            told = " ".join(f"{value:.2f}" for value in each)
            table.add_row(backbone, way, told, f"{sum(v < 0.8 for v in each)} of {len(each)}")
    Console().print(table)
    keep(options.json, {**here(), "relative_weights": found})


if __name__ == "__main__":
    main()

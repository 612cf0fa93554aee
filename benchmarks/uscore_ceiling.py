"""What averages over the whole run would add to softmax response, if a new input had them.

g is taught the average of what the network said of an example along the run. Here that average
is taken of the test images themselves, a pass over them after every epoch: what g could be at
best. Fashion-MNIST with a fifth of the labels wrong, with plain training and as `trajectory`
trains.

    python benchmarks/uscore_ceiling.py --json results/uscore/ceiling.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.fitting import fit_prepared
from revar.functional import mode
from revar.methods.history import summed_log_odds
from revar.methods.trajectory import Trajectory
from revar.metrics import auarc
from revar.model import Model
from revar.preparation import Prepared, prepare
from revar.progress import Silent
from revar.scores import correct, uncertainty
from revar.tables.cell import Cell, DataChoice
from revar.tables.sources import source_of
from revar.types import Clock, Feeds, Networks, Task
from where import here, keep

CPU = torch.device("cpu")
WAYS: dict[str, dict[str, float]] = {"plain": {"early": 0.0, "half_life": 0.0}, "trajectory": {}}
_CHUNK = 500


Choose = Callable[[NDArray[Any]], NDArray[np.bool_]]
"""From [n] patients of a set's examples, or their numbers where it has none, to [n] yes or no."""


def everyone(patients: NDArray[Any]) -> NDArray[np.bool_]:
    """All of a set."""
    return np.ones(len(patients), dtype=bool)


@dataclass(frozen=True, slots=True)
class Watched:
    """What a run said of a test set.

    Attributes:
        rows: [n] whether it was asked about an example.
        sums: [m, C] of the probabilities it gave to those, after every averaged epoch.
    """

    rows: NDArray[np.bool_]
    sums: Tensor


def reporting(method: Trajectory, x: Tensor) -> tuple[Trajectory, list[Tensor]]:
    """The method, and what it will have said of other inputs after every averaged epoch.

    Args:
        method: as it is.
        x: [n, ...] stored values.
    """
    said: list[Tensor] = []

    class Reporting(Trajectory):
        def finish_epoch(self, networks: Networks, task: Task, feeds: Feeds, clock: Clock) -> None:
            if clock.step < self.start * clock.total:
                return
            with torch.no_grad(), mode(networks, dropout=False, statistics=True):
                parts = [networks.normalise(part) for part in x.split(_CHUNK)]
                logits = torch.cat([networks.classifier(part) for part in parts])
            said.append(logits.softmax(dim=1).cpu())

    fields = {name: getattr(method, name) for name in method.__dataclass_fields__}
    return Reporting(**fields), said


def noisy_fashion(way: str, seed: int, epochs: int, choice: DataChoice) -> Cell:
    """A run on Fashion-MNIST, a fifth of whose labels are made wrong.

    Args:
        way: a name of `WAYS`.
        seed: of data and run.
        epochs: of it.
        choice: of the data.
    """
    return Cell(
        data=replace(choice, name="fashion-mnist", label_noise="instance:0.2"),
        method="trajectory", backbone="resnet20", epochs=epochs,
        settings=(("batch_size", "32"), *((k, str(v)) for k, v in WAYS[way].items())), seed=seed,
    )  # fmt: skip


def watched_run(
    cell: Cell, choose: Choose = everyone, device: torch.device = CPU
) -> tuple[Prepared, Model, dict[str, Watched]]:
    """A run of `trajectory` that says along the way what it makes of test inputs.

    Args:
        cell: what to train.
        choose: which rows of a test set are watched.
        device: to train on.

    Returns:
        Its data, the model, and by test set what was said of it.
    """
    recipe = cell.recipe()
    source = source_of(cell, recipe)
    data = prepare(recipe, source, device)
    assert isinstance(data.recipe.method, Trajectory)
    chosen = {}
    for name, split in data.tests.items():
        patients = source.tests[name].groups
        chosen[name] = choose(np.arange(len(split.y)) if patients is None else patients)
    seen = [torch.as_tensor(split.x[:])[chosen[name]] for name, split in data.tests.items()]
    method, said = reporting(data.recipe.method, torch.cat(seen).to(device))
    data = replace(data, recipe=replace(data.recipe, method=method))
    model = fit_prepared(data, device=device, observer=Silent())
    sums = torch.stack(said).sum(dim=0).split([int(rows.sum()) for rows in chosen.values()])
    pairs = zip(chosen.items(), sums, strict=True)
    return data, model, {name: Watched(rows, along) for (name, rows), along in pairs}


def one(way: str, seed: int, images: int, epochs: int) -> dict[str, float]:
    """AUARC by score, and accuracy, in %."""
    choice = DataChoice(name="fashion-mnist", train=images, test=2 * images)
    cell = noisy_fashion(way, seed, epochs, choice)
    _, model, watched = watched_run(cell)
    test, sums = model.predictions["test"], watched["test"].sums
    right = correct(test, "softmax", model.fitted)
    scores: dict[str, NDArray[Any]] = {
        name: uncertainty(test, name, model.fitted)
        for name in ("softmax", "uscore", "fused", "dropout_entropy")
    }
    scores["average"] = summed_log_odds(sums, torch.from_numpy(test.predicted)).numpy()
    parts = [scores[name] / scores[name].std() for name in ("softmax", "average")]
    scores["softmax + average"] = parts[0] + parts[1]
    found = {name: 100 * auarc(values, right) for name, values in scores.items()}
    return {**found, "accuracy": 100 * float(right.mean())}


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    for seed in range(options.seeds):
        for way in WAYS:
            figures = one(way, seed, options.images, options.epochs)
            runs.append({"way": way, "seed": seed, **{k: round(v, 2) for k, v in figures.items()}})
            print(runs[-1], flush=True)
    for way in WAYS:
        rows = [run for run in runs if run["way"] == way]
        means = {n: np.mean([run[n] for run in rows]) for n in rows[0] if n not in ("way", "seed")}
        print(way, {name: round(float(value), 2) for name, value in means.items()})
    keep(options.json, {**here(), "runs": runs})


if __name__ == "__main__":
    main()

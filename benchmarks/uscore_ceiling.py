"""What averages over the whole run would add to softmax response, if a new input had them.

g is taught the average of what the network said of an example along the run. Here that average
is taken of the test images themselves, a pass over them after every epoch: what g could be at
best. Fashion-MNIST with a fifth of the labels wrong, with plain training and as `trajectory`
trains.

    python benchmarks/uscore_ceiling.py --json results/uscore/ceiling.json
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
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
from where import commit, processor

CPU = torch.device("cpu")
WAYS: dict[str, dict[str, float]] = {"plain": {"early": 0.0, "half_life": 0.0}, "trajectory": {}}
_CHUNK = 500


def watched(method: Trajectory, x: Tensor) -> tuple[Trajectory, list[Tensor]]:
    """The method, and what it will have said of other inputs after every averaged epoch.

    Args:
        method: as it is.
        x: [n, ...] stored values.
    """
    said: list[Tensor] = []

    class Watched(Trajectory):
        def finish_epoch(self, networks: Networks, task: Task, feeds: Feeds, clock: Clock) -> None:
            if clock.step < self.start * clock.total:
                return
            with torch.no_grad(), mode(networks, dropout=False, statistics=True):
                parts = [networks.normalise(part) for part in x.split(_CHUNK)]
                logits = torch.cat([networks.classifier(part) for part in parts])
            said.append(logits.softmax(dim=1))

    return Watched(**{name: getattr(method, name) for name in method.__dataclass_fields__}), said


def watched_run(
    way: str, seed: int, epochs: int, choice: DataChoice, rows: slice
) -> tuple[Prepared, Model, Tensor]:
    """A run on Fashion-MNIST, a fifth of whose labels are made wrong.

    Args:
        way: a name of `WAYS`.
        seed: of data and run.
        epochs: of it.
        choice: of the data.
        rows: of every test set, those that are watched.

    Returns:
        Its data, the model, and [n, C] sums of what was said of those rows along the run.
    """
    cell = Cell(
        data=replace(choice, name="fashion-mnist", label_noise="instance:0.2"),
        method="trajectory", backbone="resnet20", epochs=epochs,
        settings=(("batch_size", "32"), *((k, str(v)) for k, v in WAYS[way].items())), seed=seed,
    )  # fmt: skip
    recipe = cell.recipe()
    data = prepare(recipe, source_of(cell, recipe))
    assert isinstance(data.recipe.method, Trajectory)
    seen = torch.cat([torch.as_tensor(split.x[:])[rows] for split in data.tests.values()])
    method, said = watched(data.recipe.method, seen)
    data = replace(data, recipe=replace(data.recipe, method=method))
    model = fit_prepared(data, device=CPU, observer=Silent())
    return data, model, torch.stack(said).sum(dim=0)


def one(way: str, seed: int, images: int, epochs: int) -> dict[str, float]:
    """AUARC by score, and accuracy, in %."""
    choice = DataChoice(name="fashion-mnist", train=images, test=2 * images)
    _, model, sums = watched_run(way, seed, epochs, choice, slice(None))
    test = model.predictions["test"]
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
    if options.json is not None:
        made = {
            "command": " ".join(["benchmarks/uscore_ceiling.py", *sys.argv[1:]]),
            "commit": commit(), "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "processor": processor(), "torch": torch.__version__, "runs": runs,
        }  # fmt: skip
        options.json.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

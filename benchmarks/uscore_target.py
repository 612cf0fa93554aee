"""Whether g gains under shift if it is taught on unlabelled inputs of the target domain as well.

What teaches g, the average of what the network said along the run, takes no labels. So it can be
taken of unlabelled inputs from where the classifier will be used (the idea of the paper's PV).
Fashion-MNIST with a fifth of the labels wrong, and five corruptions as target domains: g learns
from the training images, from unlabelled images of the target, or from both, and is judged on
other images of the target.

    python benchmarks/uscore_target.py --json results/uscore/target.json
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from revar.methods.history import summed_log_odds
from revar.methods.trajectory import Averages
from revar.metrics import auarc
from revar.model import Model
from revar.nets.scorer import top_log_odds
from revar.tables.cell import DataChoice
from uscore_ceiling import WAYS, watched_run
from uscore_limits_record import said
from uscore_limits_teachers import Inputs, fit_g, score
from where import commit, processor, told

DOMAINS = ("gaussian_noise:3", "defocus_blur:3", "fog:3", "contrast:3", "jpeg_compression:3")
TAUGHT = ("train", "target", "both")


def together(*parts: tuple[Inputs, Tensor]) -> tuple[Inputs, Tensor]:
    """Points of several sets, and what g is to learn of them."""
    inputs, targets = zip(*parts, strict=True)
    whole = Inputs(
        torch.cat([one.embedding for one in inputs]), torch.cat([one.log_odds for one in inputs])
    )
    return whole, torch.cat(targets)


def lesson(model: Model, stored: Tensor, sums: Tensor | None) -> tuple[Inputs, Tensor, Tensor]:
    """What g reads of inputs, what it is to learn of them, and the classes predicted.

    Args:
        model: trained.
        stored: [n, ...] inputs.
        sums: [n, C] of probabilities along the run; without them there is nothing to learn.
    """
    networks = model.networks
    found = said(networks.classifier, networks.normalise(stored), torch.zeros(len(stored)).long())
    predicted = found.logits.argmax(dim=1)
    target = predicted.new_zeros(0) if sums is None else summed_log_odds(sums, predicted)
    inputs = Inputs(found.features, top_log_odds(found.logits))
    return inputs, target.clamp(-12, 12), predicted


def one(way: str, seed: int, images: int, epochs: int, unlabelled: int) -> list[dict[str, Any]]:
    """AUARC in % by domain and score."""
    choice = DataChoice(
        name="fashion-mnist", train=images, test=unlabelled + images,
        tests=tuple(f"test+{domain}" for domain in DOMAINS),
    )  # fmt: skip
    data, model, along = watched_run(way, seed, epochs, choice, slice(unlabelled))
    stored = {name: torch.as_tensor(split.x[:]) for name, split in data.tests.items()}
    assert isinstance(model.networks.memory, Averages)
    train = torch.as_tensor(data.splits["train"].x[:])
    source = lesson(model, train, model.networks.memory.sums)[:2]
    sums = along.split(unlabelled)
    rows = []
    for (name, x), of_target in zip(stored.items(), sums, strict=True):
        target = lesson(model, x[:unlabelled], of_target)[:2]
        inputs, _, predicted = lesson(model, x[unlabelled:], None)
        right = predicted.numpy() == data.tests[name].y[unlabelled:]
        row: dict[str, Any] = {"way": way, "seed": seed, "domain": name.removeprefix("test+")}
        row["accuracy"] = 100 * float(right.mean())
        row["softmax"] = 100 * auarc(-inputs.log_odds.numpy(), right)
        sets = {"train": source, "target": target, "both": together(source, target)}
        for taught, (points, wanted) in sets.items():
            scorer = fit_g(points, wanted, "evidence", "distil", seed)
            row[f"g, {taught}"] = 100 * auarc(score(scorer, inputs).numpy(), right)
        rows.append({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})
    return rows


def gains(runs: list[dict[str, Any]], way: str) -> dict[str, tuple[float, float]]:
    """AUARC of each g less softmax response: mean and deviation over seeds of means over domains.

    Args:
        runs: rows of all domains and seeds.
        way: of training.
    """
    found = {}
    for taught in TAUGHT:
        by_seed: dict[int, list[float]] = {}
        for row in runs:
            if row["way"] == way:
                by_seed.setdefault(row["seed"], []).append(row[f"g, {taught}"] - row["softmax"])
        means = [float(np.mean(some)) for some in by_seed.values()]
        spread = float(np.std(means, ddof=1)) if len(means) > 1 else float("nan")
        found[taught] = float(np.mean(means)), spread
    return found


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--unlabelled", type=int, default=300, help="of each target domain")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for way in WAYS:
            runs += one(way, seed, options.images, options.epochs, options.unlabelled)
            print(*runs[-len(DOMAINS) :], sep="\n", flush=True)
    means = {way: gains(runs, way) for way in WAYS}
    for way, found in means.items():
        told_of = {name: f"{mean:+.2f} ± {spread:.2f}" for name, (mean, spread) in found.items()}
        print(way, told_of)
    if options.json is not None:
        made = {
            "command": " ".join(["benchmarks/uscore_target.py", *told(sys.argv[1:])]),
            "commit": commit(), "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "processor": processor(), "torch": torch.__version__,
            "gains": {way: {k: [round(v, 3) for v in pair] for k, pair in found.items()}
                      for way, found in means.items()},
            "runs": runs,
        }  # fmt: skip
        options.json.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Whether g gains under shift if it is taught on unlabelled inputs of the target domain as well.

What teaches g, the average of what the network said along the run, takes no labels. So it can be
taken of unlabelled inputs from where the classifier will be used (the idea of the paper's PV).
Fashion-MNIST with a fifth of the labels wrong, and five corruptions as target domains; or retinal
images of one country, and those of two others, a tenth of whose patients are unlabelled. g learns
from the training images, from unlabelled images of the target, or from both, and is judged on
other images of the target.

    python benchmarks/uscore_target.py --json results/uscore/target.json
    python benchmarks/uscore_target.py --data retinas --device cuda --seeds 5 \
        --json results/uscore/target-retinas.json
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.methods.history import summed_log_odds
from revar.methods.trajectory import Averages
from revar.metrics import auarc
from revar.model import Model
from revar.nets.scorer import top_log_odds
from revar.tables.cell import Cell, DataChoice
from uscore_ceiling import WAYS, Choose, noisy_fashion, watched_run
from uscore_limits_record import said
from uscore_limits_teachers import Inputs, fit_g, score
from uscore_run import cell_of
from uscore_tasks import Job, Way
from where import here, keep

DOMAINS = ("gaussian_noise:3", "defocus_blur:3", "fog:3", "contrast:3", "jpeg_compression:3")
TAUGHT = ("train", "target", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is trained, and which inputs of the target it may see."""

    cell: Cell
    choose: Choose


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
    device = next(networks.classifier.parameters()).device
    inputs = networks.normalise(stored.to(device))
    found = said(networks.classifier, inputs, torch.zeros(len(stored)).long())
    logits = found.logits.cpu()
    predicted = logits.argmax(dim=1)
    target = predicted.new_zeros(0) if sums is None else summed_log_odds(sums, predicted)
    embedding = networks.classifier.embed(found.features).cpu()
    return Inputs(embedding, top_log_odds(logits)), target.clamp(-12, 12), predicted


def corrupted(way: str, seed: int, images: int, epochs: int, unlabelled: int) -> Run:
    """A run on Fashion-MNIST, and the first images of each corrupted set, unlabelled."""
    choice = DataChoice(
        name="fashion-mnist", train=images, test=unlabelled + images,
        tests=tuple(f"test+{domain}" for domain in DOMAINS),
    )  # fmt: skip
    return Run(
        cell=noisy_fashion(way, seed, epochs, choice),
        choose=lambda numbers: numbers < unlabelled,
    )


def retinas(way: str, seed: int) -> Run:
    """A run of the study on EyePACS, and a tenth of the patients of each other country."""
    changes = tuple((name, str(value)) for name, value in WAYS[way].items())
    as_way = Way(name=way, method="trajectory", settings=changes)
    cell = cell_of(Job(folder="eyepacs", way=as_way, seed=seed))
    generator = np.random.default_rng(seed)

    def tenth(patients: NDArray[Any]) -> NDArray[np.bool_]:
        each = np.unique(patients)
        return np.isin(patients, generator.choice(each, len(each) // 10, replace=False))

    return Run(
        cell=replace(cell, data=replace(cell.data, tests=("aptos", "deepdrid"))), choose=tenth
    )


def one(way: str, seed: int, run: Run, device: torch.device) -> list[dict[str, Any]]:
    """AUARC in % by domain and score."""
    data, model, watched = watched_run(run.cell, run.choose, device)
    stored = {name: torch.as_tensor(split.x[:]) for name, split in data.tests.items()}
    assert isinstance(model.networks.memory, Averages)
    train = torch.as_tensor(data.splits["train"].x[:])
    source = lesson(model, train, model.networks.memory.sums.cpu())[:2]
    rows = []
    for name, x in stored.items():
        unlabelled = watched[name].rows
        target = lesson(model, x[unlabelled], watched[name].sums)[:2]
        inputs, _, predicted = lesson(model, x[~unlabelled], None)
        right = predicted.numpy() == data.tests[name].y[~unlabelled]
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
    parser.add_argument("--data", choices=("fashion", "retinas"), default="fashion")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=1500, help="of Fashion-MNIST")
    parser.add_argument("--epochs", type=int, default=20, help="on Fashion-MNIST")
    parser.add_argument("--unlabelled", type=int, default=300, help="of each corrupted set")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for way in WAYS:
            if options.data == "retinas":
                run = retinas(way, seed)
            else:
                run = corrupted(way, seed, options.images, options.epochs, options.unlabelled)
            found_now = one(way, seed, run, torch.device(options.device))
            print(*found_now, sep="\n", flush=True)
            runs += found_now
    means = {way: gains(runs, way) for way in WAYS}
    for way, found in means.items():
        told_of = {name: f"{mean:+.2f} ± {spread:.2f}" for name, (mean, spread) in found.items()}
        print(way, told_of)
    rounded = {
        way: {k: [round(v, 3) for v in pair] for k, pair in found.items()}
        for way, found in means.items()
    }
    keep(options.json, {**here(options.device), "gains": rounded, "runs": runs})


if __name__ == "__main__":
    main()

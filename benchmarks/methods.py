"""Every method on one data set: accuracy, selection, calibration and cost.

All methods get the same splits, seeds, network, schedule and budget; none is tuned. With
``--noise`` the labels of the training and tune splits are wrong as said, those of the meta set are
clean (``--noisy-meta`` makes them wrong too), and the test labels are clean. Finished runs are kept
in ``runs.jsonl`` and not repeated, so a second call goes on where the first stopped.

    python benchmarks/methods.py --out results/methods                       # CPU, a small net
    python benchmarks/methods.py --data cifar10 --train 20000 --backbone resnet18-cifar \
        --device cuda --workers 6 --out results/methods
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch

from revar.data.label_noise import symmetric
from revar.data.source import Part, Reading, Source, load_source
from revar.errors import InputError
from revar.evaluation import evaluate
from revar.fitting import fit_model
from revar.provenance import provenance
from revar.recipe import Budget, Recipe, make_method, with_settings
from revar.registry import METHODS
from revar.splits import take_off
from revar.totals import EpochRecord

FIGURES = {
    "accuracy": "accuracy",
    "auarc": "AUARC",
    "auarc_softmax": "AUARC softmax",
    "normalised_auarc": "norm. AUARC",
    "ece": "ECE",
}


class Watch:
    """Remembers how long epochs take."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def started(self, *, step: int, total: int, epochs: int) -> None:
        """Nothing to do."""

    def stepped(self, step: int, figures: Callable[[], dict[str, float]]) -> None:
        """Nothing to do: asking for figures would slow the steps down."""

    def finished_epoch(self, record: EpochRecord) -> None:
        """Take the time."""
        self.seconds.append(record.seconds)


@functools.cache
def _whole(data: str) -> Source:
    """The data set, read once in each process."""
    return load_source(data, Reading())


def source(data: str, n_train: int, noise: float, seed: int, *, noisy_meta: bool) -> Source:
    """Training examples, a tenth of them a meta set, and the whole test set."""
    whole = _whole(data)
    x, y = np.asarray(whole.train.x), np.asarray(whole.train.y)
    share = min(n_train / len(y), 1.0)
    _, y = np.unique(y, return_inverse=True)
    if share < 1:
        rows = np.random.default_rng(seed).permutation(len(y))[:n_train]
        x, y = x[rows], y[rows]
    split = take_off(y, None, {"meta": 0.1}, seed)
    noisy = symmetric(y, noise, int(y.max()) + 1, seed).labels if noise else y
    meta_labels = noisy if noisy_meta else y
    test = whole.tests["test"]
    _, y_test = np.unique(np.asarray(test.y), return_inverse=True)
    return Source(
        Part(x[split["train"]], noisy[split["train"]]),
        meta=Part(x[split["meta"]], meta_labels[split["meta"]]),
        tests={"test": Part(test.x, y_test)},
    )


def one_run(options: argparse.Namespace, name: str, noise: float, seed: int) -> dict[str, Any]:
    """Train and test one method."""
    torch.set_num_threads(1)
    recipe = Recipe(
        method=make_method(name),
        backbone=options.backbone,
        budget=Budget(epochs=options.epochs, batch_size=options.batch_size),
        seed=seed,
    )
    recipe = with_settings(recipe, dict(pair.split("=", 1) for pair in options.set))
    watch = Watch()
    row: dict[str, Any] = {"method": name, "noise": noise, "seed": seed}
    began = time.perf_counter()
    try:
        data = source(options.data, options.train, noise, seed, noisy_meta=options.noisy_meta)
        model = fit_model(recipe, data, device=torch.device(options.device), observer=watch)
    except InputError as error:
        return {**row, "failed": str(error)}
    found = evaluate(model.predictions["test"], model.fitted)
    default = found["scores"][found["default_score"]]
    train = model.predictions["train"]
    return {
        **row,
        "accuracy": found["accuracy"],
        "train_accuracy": float(train.correct().mean()),
        "score": found["default_score"],
        "auarc": default["auarc"],
        "normalised_auarc": default["normalised_auarc"],
        "failure_auroc": default["failure_auroc"],
        "augrc": default["augrc"],
        "auarc_softmax": found["scores"]["softmax"]["auarc"],
        "auarc_own": found["scores"]["own"]["auarc"],
        "ece": found["ece"],
        "nll": found["nll"],
        "epoch_seconds": statistics.median(watch.seconds),
        "fastest_epoch": min(watch.seconds[1:] or watch.seconds),
        "run_seconds": time.perf_counter() - began,
        "recipe": recipe.digest,
    }


def time_alone(options: argparse.Namespace, name: str) -> float:
    """Seconds of the fastest epoch after the first, with no other run beside it."""
    alone = argparse.Namespace(**{**vars(options), "epochs": options.timed_epochs})
    return float(one_run(alone, name, 0.0, 0).get("fastest_epoch", float("nan")))


def table(
    rows: Iterable[dict[str, Any]], noise: float, alone: Mapping[str, float] | None = None
) -> str:
    """Markdown: mean and standard deviation over seeds, best mean in bold.

    Args:
        rows: of all runs.
        noise: which of them.
        alone: seconds per epoch of each method with nothing beside it; else the runs' own.
    """
    chosen = [row for row in rows if row["noise"] == noise and "failed" not in row]
    names = [entry.name for entry in METHODS if any(r["method"] == entry.name for r in chosen)]
    of = {name: [row for row in chosen if row["method"] == name] for name in names}
    seconds = {n: statistics.mean(row["epoch_seconds"] for row in of[n]) for n in names}
    seconds |= {n: alone[n] for n in names if alone}
    lines = [
        f"| method | score | {' | '.join(FIGURES.values())} | epoch / ERM |",
        "|---|---|" + "---|" * (len(FIGURES) + 1),
    ]
    means = {f: {n: statistics.mean(r[f] for r in of[n]) for n in names} for f in FIGURES}
    for name in names:
        cells = []
        for figure, values in means.items():
            each = [row[figure] for row in of[name]]
            spread = statistics.stdev(each) if len(each) > 1 else 0.0
            cell = f"{100 * values[name]:.2f} ± {100 * spread:.2f}"
            best = min(values.values()) if figure == "ece" else max(values.values())
            cells.append(f"**{cell}**" if values[name] == best else cell)
        cost = f"{seconds[name] / seconds['erm']:.1f}" if "erm" in seconds else ""
        lines.append(f"| {name} | {of[name][0]['score']} | {' | '.join(cells)} | {cost} |")
    return "\n".join(lines)


def figure(rows: list[dict[str, Any]], path: Path) -> None:
    """AUARC of every method's default score and of its softmax response, by noise."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    levels = sorted({row["noise"] for row in rows})
    names = [entry.name for entry in METHODS if any(r["method"] == entry.name for r in rows)]
    fig, axes = plt.subplots(
        1, len(levels), figsize=(5.5 * len(levels), 0.32 * len(names) + 1.5), sharey=True,
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for ax, noise in zip(axes[0], levels, strict=True):
        kinds = (("auarc", "default score", "o"), ("auarc_softmax", "softmax", "x"))
        for key, label, marker in kinds:
            for place, name in enumerate(names):
                each = [
                    100 * row[key]
                    for row in rows
                    if row["method"] == name and row["noise"] == noise and "failed" not in row
                ]
                colour = "C0" if key == "auarc" else "0.45"
                shown = label if place == 0 else None
                ax.plot(each, [place] * len(each), marker, color=colour, label=shown, alpha=0.8)
        title = f"{noise:.0%} of training labels wrong" if noise else "clean labels"
        ax.set_title(title)
        ax.set_xlabel("AUARC, %; one mark a seed")
        ax.grid(axis="x", alpha=0.3)
        ax.set_yticks(range(len(names)), names)
    fig.suptitle("AUARC on clean test images")
    axes[0][0].invert_yaxis()
    axes[0][0].legend(loc="lower left")
    fig.savefig(path, dpi=130)
    plt.close(fig)


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, then write tables and picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--train", type=int, default=4000, help="training examples, meta included")
    parser.add_argument("--backbone", default="mlp")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--set", nargs="*", default=[], help="fields for all: augment=none")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.4])
    parser.add_argument("--noisy-meta", action="store_true")
    parser.add_argument("--methods", nargs="+", default=[entry.name for entry in METHODS])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--timed-epochs", type=int, default=0, help="first time each method alone, this many epochs"
    )
    parser.add_argument("--out", type=Path, default=Path("results/methods"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "runs.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(row["method"], row["noise"], row["seed"]) for row in rows}
    wanted = [
        (name, noise, seed)
        for seed in range(options.seeds)
        for noise in options.noise
        for name in options.methods
        if (name, noise, seed) not in done
    ]
    described = {
        **{k: v if not isinstance(v, Path) else str(v) for k, v in vars(options).items()},
        **provenance(),
        "machine": platform.processor() or platform.machine(),
    }
    (options.out / "provenance.json").write_text(json.dumps(described, indent=2) + "\n")
    context = multiprocessing.get_context("spawn")
    timed = options.out / "epoch_seconds.json"
    if options.timed_epochs and not timed.exists():
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            # Not kept: the first run also pays for the start of the device and its libraries.
            pool.submit(time_alone, options, options.methods[0]).result()
            seconds = {n: pool.submit(time_alone, options, n).result() for n in options.methods}
        timed.write_text(json.dumps(seconds, indent=2) + "\n")
    alone = json.loads(timed.read_text()) if timed.exists() else None
    if alone:  # the longest first, so that no worker idles at the end
        wanted.sort(key=lambda job: (job[2], -alone.get(job[0], 0.0)))
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        futures = [pool.submit(one_run, options, *job) for job in wanted]
        for number, future in enumerate(as_completed(futures), 1):
            row = future.result()
            rows.append(row)
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
            said = row.get("failed") or f"AUARC {100 * row['auarc']:.2f}"
            print(
                f"{number}/{len(wanted)} {row['method']} noise {row['noise']} seed {row['seed']}: "
                f"{said}",
                flush=True,
            )
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with (options.out / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, keys, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text = "\n\n".join(
        f"Labels wrong: {noise:.0%}\n\n{table(rows, noise, alone)}" for noise in options.noise
    )
    (options.out / "table.md").write_text(text + "\n")
    print(text)
    figure(rows, options.out / "auarc.png")


if __name__ == "__main__":
    main()

"""What limits g: how much signal alignments have, and what g learns of which teacher.

Fashion-MNIST with a fifth of the labels wrong, and clean. One classifier a seed is recorded along
its run, and one a fold; every teacher of g is then a small regression on what was recorded, so
that all of them teach the same g about the same classifier.

    python benchmarks/uscore_limits.py --json results/uscore/limits.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from revar.metrics import auarc, failure_auroc
from revar.nets.base import Classifier, SplitClassifier
from revar.nets.scorer import top_log_odds
from revar.preparation import prepare
from revar.scores import uncertainty
from revar.tables.cell import Cell, DataChoice
from revar.tables.sources import source_of
from uscore_limits_record import (
    LAYERS,
    Record,
    cross_fit,
    fitted,
    inputs_of,
    kernels,
    pooled,
    said,
    watched,
)
from uscore_limits_report import figure, rounded, signal_table, summary, table
from uscore_limits_teachers import (
    LESSONS,
    READS,
    Inputs,
    Reads,
    aligned,
    fit_g,
    head_gradient,
    score,
)
from where import here, keep

NOISES = {"noisy": "instance:0.2", "clean": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What is run.

    Attributes:
        images: training and meta images together.
        meta: share of them that is the meta set; its labels are as noisy as the others.
        test: images g is judged on.
        epochs: of each classifier.
        every: epochs from one record to the next.
        folds: K of cross-fitting.
        candidates: training and held-out points whose alignments are measured, of each so many.
        sizes: of meta batches.
        draws: of them, for what single batches rank.
    """

    images: int = 1500
    meta: float = 1 / 3
    test: int = 3000
    epochs: int = 16
    every: int = 2
    folds: int = 3
    candidates: int = 300
    sizes: tuple[int, ...] = (16, 64, 256)
    draws: int = 50

    def cell(self, noise: str | None, seed: int) -> Cell:
        """Plain training of one classifier."""
        return Cell(
            data=DataChoice(
                name="fashion-mnist", train=self.images, label_noise=noise, test=self.test
            ),
            method="erm", backbone="resnet20", epochs=self.epochs, seed=seed,
            settings=(
                ("batch_size", "32"), ("meta_fraction", str(self.meta)), ("tune_fraction", "0"),
            ),
        )  # fmt: skip


def signal_to_noise(values: Tensor, size: int = 1) -> tuple[float, float]:
    """Of means over ``size`` columns that are drawn anew: spread over rows against that of draws.

    Signal is the variance over rows of the mean over all columns, less what the columns at hand
    leave in it. Noise is the variance over draws of a row, mean over rows; the second figure
    leaves out what all rows share, which cannot change their order.

    Args:
        values: [n, R] of n examples and R independent draws.
        size: of the batch.
    """
    values = values.double()
    n, draws = values.shape
    shared = values - values.mean(dim=1, keepdim=True)
    own = shared - shared.mean(dim=0, keepdim=True)
    noise = shared.square().sum() / (n * (draws - 1))
    interaction = own.square().sum() / ((n - 1) * (draws - 1))
    signal = (values.mean(dim=1).var() - interaction / draws).clamp_min(0.0)
    return float(size * signal / noise), float(size * signal / interaction)


def ranks(target: Tensor, wrong: NDArray[np.bool_]) -> float:
    """Area under the ROC curve of finding what is wrong, in %; nan where nothing is."""
    return 100 * failure_auroc(target.numpy(), ~wrong) if wrong.any() else float("nan")


def measured(
    kernel: Tensor, wrong: NDArray[np.bool_], sign: int, experiment: Experiment, seed: int
) -> dict[str, Any]:
    """Signal to noise of alignments by size of the meta batch, and how well they rank.

    Args:
        kernel: [n, M] alignments with single meta points.
        wrong: [n] what they should find.
        sign: 1 where it should have large alignments, -1 where small ones.
        experiment: sizes and draws.
        seed: of the draws.
    """
    count = kernel.shape[1]
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, Any] = {"snr": {}, "snr_order": {}, "auroc": {}}
    for size in (*experiment.sizes, count):
        name = "whole" if size == count else str(size)
        found["snr"][name], found["snr_order"][name] = signal_to_noise(kernel, size)
        # With replacement there are other whole sets; the one at hand is judged as it is.
        batches = [
            torch.randint(count, (size,), generator=generator) for _ in range(experiment.draws)
        ]
        batches = [torch.arange(count)] if size == count else batches
        aurocs = [ranks(sign * kernel[:, rows].mean(dim=1), wrong) for rows in batches]
        found["auroc"][name] = float(np.mean(aurocs))
    return found


def judged(scores: Tensor | NDArray[Any], right: NDArray[np.bool_]) -> dict[str, float]:
    """In %."""
    values = np.asarray(scores)
    return {"auroc": 100 * failure_auroc(values, right), "auarc": 100 * auarc(values, right)}


def taught(
    record: Record,
    inputs: Mapping[Reads, Mapping[str, Inputs]],
    right: NDArray[np.bool_],
    ideal: Tensor,
) -> list[dict[str, Any]]:
    """Every lesson to every kind of g, judged on test data.

    Args:
        record: for the teachers.
        inputs: of ``train``, ``meta`` and ``test`` points, by what g reads.
        right: [n] whether the classifier is, on test points.
        ideal: [n] alignments of the test points, their true labels known.
    """
    rows = []
    for lesson in LESSONS:
        target = lesson.teacher(record)
        for reads, of in inputs.items():
            members = []
            for member in range(lesson.members):
                seed = 100 * record.seed + member
                scorer = fit_g(of[lesson.points], target, reads, lesson.loss, seed)
                members.append(score(scorer, of["test"]))
            logits = torch.stack(members)
            # Close to 0 or 1 a weight ranks no more.
            weights = logits.sigmoid()
            saturated = float(((weights < 0.02) | (weights > 0.98)).double().mean())
            figures = judged(logits.mean(dim=0), right)
            row = {"teacher": lesson.name, "reads": reads, **figures}
            learned = float(spearmanr(logits.mean(dim=0).numpy(), ideal.numpy()).statistic)
            rows.append({**row, "saturated": 100 * saturated, "correlation": learned})
    return rows


def alignments_at(
    net: Classifier,
    points: Mapping[str, tuple[Tensor, Tensor]],
    wrong: NDArray[np.bool_],
    experiment: Experiment,
    seed: int,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Part A at one time of the run, and alignments of training and meta points by layers.

    Args:
        net: as it is then.
        points: inputs and labels of ``train``, ``meta`` and ``test``.
        wrong: [n] which training labels are.
        experiment: what is run.
        seed: of draws.
    """
    some = slice(experiment.candidates)
    new, new_labels = (part[some] for part in points["test"])
    answers, ours = said(net, new, new_labels), said(net, *(part[some] for part in points["train"]))
    errors = (answers.logits.argmax(dim=1) != answers.labels).numpy()
    losses = F.cross_entropy(ours.logits, ours.labels, reduction="none")
    known = kernels(net, points["train"], points["meta"])
    held_out = kernels(net, (new, new_labels), points["meta"])
    figures: dict[str, Any] = {
        "softmax, errors": ranks(-top_log_odds(answers.logits), errors),
        "loss, wrong labels": ranks(losses, wrong[some]),
    }
    for layers in LAYERS:
        figures[layers] = {
            "train": measured(known[layers][some], wrong[some], -1, experiment, seed),
            "held out": measured(held_out[layers], errors, 1, experiment, seed),
        }
    return figures, known


def one(experiment: Experiment, noise: str | None, seed: int) -> dict[str, Any]:
    """Everything about one classifier."""
    cell, plain = experiment.cell(noise, seed), experiment.cell(None, seed)
    recipe = cell.recipe()
    data = prepare(recipe, source_of(cell, recipe))
    truth = source_of(plain, recipe).train.y
    assert truth is not None
    train = data.splits["train"]
    wrong = data.classes.encode(np.asarray(truth)[train.index]) != train.y
    method, moments, middle = watched(experiment.every, experiment.epochs)
    model = fitted(data, method)
    net, test = model.networks.classifier, model.predictions["test"]
    assert isinstance(net, SplitClassifier)
    x = {name: inputs_of(model, data.splits[name]) for name in ("train", "meta")}
    x["test"] = inputs_of(model, data.tests["test"])

    early, before = alignments_at(middle[0], x, wrong, experiment, seed)
    late, kernel = alignments_at(net, x, wrong, experiment, seed)
    for layers in LAYERS:
        some = slice(experiment.candidates)
        means = [values[layers][some].mean(dim=1).numpy() for values in (before, kernel)]
        late[layers]["rank correlation with the middle"] = float(spearmanr(*means).statistic)
    epochs = range(experiment.every, experiment.epochs + 1, experiment.every)
    record = Record(
        train=tuple(pair[0] for pair in moments), meta=tuple(pair[1] for pair in moments),
        shares=tuple(epoch / experiment.epochs for epoch in epochs),
        folds=cross_fit(data, experiment.folds), head=kernel["last layer"], every=kernel["all"],
        dropout=recipe.dropout.rate, seed=seed,
    )  # fmt: skip

    says = {name: said(net, *pair) for name, pair in x.items()}
    odds = {name: top_log_odds(points.logits) for name, points in says.items()}
    last = {name: Inputs(points.features, odds[name]) for name, points in says.items()}
    several = {name: Inputs(pooled(net, pair[0]), odds[name]) for name, pair in x.items()}
    inputs = {reads: several if reads == "layers" else last for reads in READS}
    right = test.correct()
    ideal = aligned(says["test"], head_gradient(says["meta"]))
    references = {
        name: judged(uncertainty(test, name, model.fitted), right)
        for name in ("softmax", "dropout_entropy")
    }
    references["alignment, labels known"] = judged(ideal, right)
    reproduced = says["train"].logits.argmax(dim=1) == says["train"].labels
    return {
        "accuracy": 100 * float(right.mean()), "wrong labels": 100 * float(wrong.mean()),
        "training labels reproduced": 100 * float(reproduced.double().mean()),
        "references": references, "alignments": {"middle": early, "end": late},
        "taught": taught(record, inputs, right, ideal),
    }  # fmt: skip


def main() -> None:
    """Run and write, then draw and print; or only the latter, of what was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--again", action="store_true", help="only draw and print")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.again:
        write(options)
    made = json.loads(options.json.read_text(encoding="utf-8"))
    figure(made, options.json.with_suffix(".png"))
    print(signal_table(made), table(made), sep="\n\n")


def write(options: argparse.Namespace) -> None:
    """Run all seeds, and write what was found."""
    experiment = Experiment(images=options.images, epochs=options.epochs)
    runs: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for labels, noise in NOISES.items():
            began = time.perf_counter()
            runs.append({"labels": labels, "seed": seed, **one(experiment, noise, seed)})
            seconds = time.perf_counter() - began
            print(labels, seed, f"{seconds:.0f} s", runs[-1]["references"], flush=True)
    found = {"summary": rounded(summary(runs)), "runs": rounded(runs)}
    keep(options.json, {**here(), "experiment": asdict(experiment), **found})


if __name__ == "__main__":
    main()

"""Runs for reports that nobody trained: predictions drawn at random, with ties where asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import softmax

from revar.predictions import Predictions
from revar.report.page import PageRun, TestSet, build_page
from revar.scores.learned import Fitted, Fusion
from revar.selection import Threshold

FUSION = Fusion(
    features=("softmax", "uscore"), coefficients=(1.0, 0.3), intercept=0.0, fitted_on=9, errors=3
)
FITTED = Fitted(default_score="fused", own="uscore", fusion=FUSION)


def drawn(n: int = 300, n_classes: int = 4, seed: int = 0, *, ties: bool = False) -> Predictions:
    """Predictions of a classifier that is often right; with ties, scores have few values."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, n_classes, n)
    logits = generator.normal(size=(n, n_classes))
    logits[np.arange(n), labels] += 1.5
    if ties:
        logits = np.round(logits)
    mean = softmax(logits + 0.5 * generator.normal(size=logits.shape), axis=1)
    entropy = -(mean * np.log(mean)).sum(axis=1)
    return Predictions(
        index=np.arange(n),
        logits=logits.astype(np.float32),
        labels=labels,
        dropout_mean=mean,
        dropout_variance=generator.random(n),
        dropout_entropy=np.round(entropy, 1) if ties else entropy,
        dropout_expected_entropy=0.8 * entropy,
        columns={"uscore": np.round(generator.normal(size=n), 0 if ties else 6)},
    )


def page_run(
    name: str = "one",
    predictions: Predictions | None = None,
    *,
    classes: tuple[str, ...] | None = None,
    groups: tuple[str, ...] | None = None,
    threshold: Threshold | None = None,
) -> PageRun:
    """A run with one test set; groups, where there are some, take turns."""
    found = drawn() if predictions is None else predictions
    n, n_classes = found.logits.shape
    turns = None if groups is None else np.array(groups)[np.arange(n) % len(groups)]
    test = TestSet(predictions=found, groups=turns, group_name="" if groups is None else "site")
    return PageRun(
        name=name,
        path=f"runs/{name}",
        classes=classes or tuple(f"c{k}" for k in range(n_classes)),
        fitted=FITTED,
        tests={"test": test},
        threshold=threshold,
        recipe={"method": {"name": "revar"}, "seed": 0, "backbone": "mlp"},
    )


def written(folder: Path, *runs: PageRun) -> Path:
    """A page of these runs, on disk."""
    page = build_page(runs, title="A <report> & more", csv_name="page.csv")
    path = folder / "page.html"
    path.write_text(page.html, encoding="utf-8")
    return path

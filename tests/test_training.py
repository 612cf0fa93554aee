from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.fitting import build_networks, fit_model
from revar.nets.base import Dropout
from revar.optimisers import learning_rate, make_optimiser
from revar.preparation import prepare
from revar.progress import Log, Silent, describe
from revar.recipe import Budget, Recipe, make_method
from revar.totals import EpochRecord
from revar.types import Batch, Task
from support.problems import blobs, fit, recipe, source


def test_cosine_rises_then_falls_to_zero() -> None:
    budget = Budget(learning_rate=0.1, lr_warmup=0.1)
    rates = [learning_rate(budget, step, 200) for step in range(200)]
    assert rates[0] == pytest.approx(0.1 / 21)
    assert np.argmax(rates) == 20
    assert max(rates) == pytest.approx(0.1)
    assert rates[-1] < 1e-5
    assert all(np.diff(rates[:21]) > 0)
    assert all(np.diff(rates[20:]) < 0)


def test_step_schedule_divides_by_ten_after_a_half_and_three_quarters() -> None:
    budget = Budget(learning_rate=1.0, schedule="step", lr_warmup=0.0)
    rates = [learning_rate(budget, step, 8) for step in range(8)]
    assert rates == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])


def test_constant_schedule_is_constant() -> None:
    budget = Budget(learning_rate=0.3, schedule="constant", lr_warmup=0.0)
    assert {learning_rate(budget, step, 9) for step in range(9)} == {0.3}


def test_biases_and_norms_are_not_decayed() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimiser = make_optimiser(
        Budget(weight_decay=0.5, learning_rate=0.1), list(layer.parameters())
    )
    decay = {id(p): g["weight_decay"] for g in optimiser.param_groups for p in g["params"]}
    assert decay[id(layer[0].weight)] == 0.5
    assert decay[id(layer[0].bias)] == decay[id(layer[1].weight)] == 0.0


@pytest.mark.parametrize(
    ("n", "batch"), [(20, 16), (300, 16), (512, 32), (958, 32), (2048, 128), (10**6, 128)]
)
def test_the_batch_size_follows_the_size_of_the_data(n: int, batch: int) -> None:
    assert Budget().resolved(n).batch_size == batch


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_both_optimisers_learn(optimiser: str) -> None:
    model = fit("erm", epochs=8, optimiser=optimiser)
    assert model.predictions["test"].correct().mean() > 0.9


def test_training_that_diverges_says_what_to_lower() -> None:
    with pytest.raises(
        InputError, match=r"diverged in epoch \d.*lower learning_rate \(now 1e\+06\)"
    ):
        fit("erm", learning_rate=1e6, gradient_clip="none", optimiser="sgd", weight_decay=100.0)


def test_class_weights_move_the_decision() -> None:
    """Two overlapping classes, one ten times as frequent: balancing finds more of the rare one."""
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(0, 1, (500, 2)), generator.normal(1, 1, (50, 2))])
    y = np.repeat([0, 1], [500, 50])
    data = Source(Part(x, y))
    found = {}
    for weight in (None, "balanced"):
        chosen = Recipe(
            method=make_method("erm"),
            backbone="linear",
            budget=Budget(epochs=20, batch_size=32),
            dropout=Dropout(rate=0.0),
            class_weight=weight,
        )
        model = fit_model(chosen, data, device=torch.device("cpu"), observer=Silent())
        train = model.predictions["train"]
        assert train.labels is not None
        found[weight] = (train.predicted[train.labels == 1] == 1).mean()
    assert found["balanced"] > found[None] + 0.3


def test_a_loss_weighs_classes_by_their_weight() -> None:
    task = Task(n_classes=2, input_shape=(1,), class_weights=(1.0, 3.0))
    logits = torch.zeros(2, 2)
    batch = Batch(logits, torch.tensor([0, 1]), torch.arange(2))
    assert task.losses(logits, batch).tolist() == pytest.approx([np.log(2), 3 * np.log(2)])
    weighed = Batch(logits, batch.y, batch.index, torch.tensor([0.0, 2.0]))
    assert task.losses(logits, weighed).tolist() == pytest.approx([0.0, 6 * np.log(2)])


def test_networks_start_from_the_same_weights_whatever_was_built_before() -> None:
    chosen = recipe("revar")
    task = prepare(chosen, source()).task
    first = build_networks(chosen, task, torch.zeros(2, 4), None, torch.device("cpu"))
    torch.rand(100)
    second = build_networks(chosen, task, torch.zeros(2, 4), None, torch.device("cpu"))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def record(epoch: int, loss: float = 1.0) -> EpochRecord:
    return EpochRecord(epoch, epoch * 10, 0.1, loss, 0.5, None, None, None, 1.0)


def test_the_log_has_one_line_an_epoch_also_when_one_is_trained_again(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    for epoch in (1, 2, 3):
        log.finished_epoch(record(epoch))
    again = Log(tmp_path / "log.jsonl")
    again.finished_epoch(record(2, loss=9.0))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["epoch"], line["loss"]) for line in lines] == [(1, 1.0), (2, 9.0)]


def test_the_progress_line_shows_meta_loss_and_weights() -> None:
    figures = {
        "loss": 1.5, "accuracy": 0.5, "meta_loss": 0.25, "weight_mean": 1.0, "weight_spread": 0.1,
    }  # fmt: skip
    assert describe(figures) == "loss 1.500 acc 50.0% meta 0.250 w 1.00±0.10"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part(np.zeros((4, 2)), None), "no labels"),
        (Part(np.zeros((4, 2)), np.array([0, 1, 0])), "X has 4 rows, y has 3"),
        (Part(np.zeros((4, 2)), np.zeros(4)), r"4 samples of one class, 0\.0: .*two classes"),
        (Part(np.zeros((4, 2)), np.array([0, 1] * 2), np.zeros(3)), "groups has 3"),
        (Part(np.zeros((2, 2)), np.array([0, 1])), "too few to take 10% off for meta"),
    ],
)
def test_data_that_cannot_be_trained_on_is_named(part: Part, words: str) -> None:
    with pytest.raises(InputError, match=words):
        prepare(recipe("erm"), Source(part))


def test_a_meta_set_made_of_training_rows_is_refused() -> None:
    x, y = blobs()
    with pytest.raises(InputError, match=r"100% of these rows are in the train split"):
        prepare(recipe("erm", tune_fraction=0), Source(Part(x, y), meta=Part(x[:50], y[:50])))


def test_a_test_set_made_of_training_rows_is_refused() -> None:
    x, y = blobs()
    with pytest.raises(InputError, match="train, meta and tune splits and cannot serve as test"):
        prepare(recipe("erm"), Source(Part(x, y), tests={"test": Part(x, y)}))

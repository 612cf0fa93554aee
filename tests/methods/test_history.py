"""Training history against its equation, and the averages against weights kept aside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.fitting import fit_prepared
from revar.functional import mode
from revar.methods.base import Plan
from revar.methods.erm import ERM
from revar.methods.history import (
    History,
    Snapshots,
    Sums,
    mean_log_odds,
    snapshot_epochs,
    summed_log_odds,
)
from revar.metrics import auarc, failure_auroc
from revar.model import Model
from revar.nets.base import Dropout
from revar.nets.build import Backbone
from revar.preparation import Prepared, prepare
from revar.progress import Silent
from revar.run import RunFolder
from revar.training import TrainingState
from support.feeds import CLOCK, TASK, small
from support.problems import CPU, blobs, fit, recipe, source

# The score ------------------------------------------------------------------------------------


def test_the_score_is_the_log_odds_against_the_mean_probability() -> None:
    # The predicted class has 0.9 and 0.5, in the mean 0.7; then 0.2 and 0.6, in the mean 0.4.
    p = torch.tensor(
        [[[0.9, 0.06, 0.04], [0.2, 0.7, 0.1]], [[0.5, 0.2, 0.3], [0.6, 0.1, 0.3]]],
        dtype=torch.float64,
    )
    found = mean_log_odds(p.log() + 3.0, torch.tensor([0, 0]))
    assert found.tolist() == pytest.approx([math.log(0.3 / 0.7), math.log(0.6 / 0.4)])


def test_sums_give_the_same_score_whatever_their_number() -> None:
    torch.manual_seed(0)
    logits = 3 * torch.randn(5, 7, 4, dtype=torch.float64)
    predicted = logits[-1].argmax(dim=1)
    sums = logits.softmax(dim=2).sum(dim=0)
    torch.testing.assert_close(summed_log_odds(sums, predicted), mean_log_odds(logits, predicted))
    torch.testing.assert_close(
        summed_log_odds(sums / 5, predicted), summed_log_odds(sums, predicted)
    )


@pytest.mark.parametrize("size", [50.0, 1e4])
def test_confident_scores_are_finite_and_do_not_tie(size: float) -> None:
    logits = torch.tensor([[[size, 0.0, 0.0], [1.01 * size, 0.0, 0.0], [0.0, -size, -size]]])
    found = mean_log_odds(logits.expand(3, -1, -1), torch.tensor([0, 0, 0]))
    assert torch.isfinite(found).all()
    assert found[1] < found[0] < 0
    against = mean_log_odds(logits, torch.tensor([1, 1, 1]))
    assert against[1] > against[0] > 0


def test_sums_that_round_to_certainty_are_finite() -> None:
    sums = torch.tensor([[12.0, 0.0, 0.0], [12.0, 1e-30, 0.0]])
    found = summed_log_odds(sums, torch.tensor([0, 0]))
    assert torch.isfinite(found).all()
    assert found[0] < found[1]
    assert torch.isfinite(summed_log_odds(sums, torch.tensor([2, 2]))).all()


def test_the_loss_is_that_of_plain_training_and_finite_at_extreme_logits() -> None:
    method = History()
    networks, batch, feeds = small(method)
    with mode(networks, dropout=False, statistics=True):
        mine = method.loss(networks, TASK, batch, feeds, CLOCK)
        plain = ERM().loss(networks, TASK, batch, feeds, CLOCK)
    assert torch.equal(mine.loss, plain.loss)
    last = [p for p in networks.classifier.parameters() if p.ndim == 2][-1]
    with torch.no_grad():
        last.mul_(1e4)
    extreme = method.loss(networks, TASK, batch, feeds, CLOCK)
    extreme.loss.backward()
    assert torch.isfinite(extreme.loss)
    gradients = [p.grad for p in networks.classifier.parameters()]
    assert all(torch.isfinite(g).all() for g in gradients if g is not None)
    assert isinstance(networks.memory, Sums)
    assert torch.isfinite(networks.memory.of("train")).all()


def test_one_snapshot_is_softmax_response() -> None:
    model = fit("history", snapshots=1)
    test = model.predictions["test"]
    np.testing.assert_allclose(
        model.uncertainty(test, "history"), model.uncertainty(test, "softmax"), rtol=1e-5, atol=1e-6
    )
    assert len(list(model.networks.heads.parameters())) == 0  # type: ignore[union-attr]


# When ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "epochs", "count", "expected"),
    [
        (8, 20, 4, [11, 14, 17, 20]),
        (0, 5, 2, [3, 5]),
        (3, 4, 1, [4]),
        (2, 4, 4, [3, 3, 4, 4]),
    ],
)
def test_snapshots_are_spread_over_the_averaged_epochs(
    first: int, epochs: int, count: int, expected: list[int]
) -> None:
    assert snapshot_epochs(first, epochs, count) == expected


@pytest.mark.parametrize("source_", ["training", "evaluation"])
def test_what_is_added_and_when(source_: str) -> None:
    """Ten epochs of ten steps, averaged from epoch 4 on."""
    method = History(source=source_)  # type: ignore[arg-type]
    networks, batch, feeds = small(method)
    assert isinstance(networks.memory, Sums)
    before, inside = replace(CLOCK, step=39), replace(CLOCK, step=40)
    method.loss(networks, TASK, batch, feeds, before)
    # The fourth epoch is over.
    method.finish_epoch(networks, TASK, feeds, inside)
    assert not networks.memory.of("train").any()
    assert feeds.asked == []
    result = method.loss(networks, TASK, batch.part(slice(0, 5)), feeds, inside)
    expected = torch.zeros(12, 3).double()
    if source_ == "training":
        expected[:5] = result.logits.detach().softmax(dim=1)
    torch.testing.assert_close(networks.memory.of("train"), expected)
    assert not networks.memory.of("meta").any()
    method.finish_epoch(networks, TASK, feeds, replace(CLOCK, step=50))
    with mode(networks, dropout=False, statistics=True), torch.no_grad():
        meta = networks.classifier(feeds.x).softmax(dim=1)
        train = networks.classifier(feeds.x_train).softmax(dim=1)
    torch.testing.assert_close(networks.memory.of("meta"), meta)
    torch.testing.assert_close(
        networks.memory.of("train"), train if source_ == "evaluation" else expected
    )
    assert not networks.memory.of("unlabelled").any()
    assert not any(asked.startswith("unlabelled") for asked in feeds.asked)


def test_half_precision_is_averaged_in_single() -> None:
    method = History()
    networks, _, _ = small(method)
    sums = networks.memory
    assert isinstance(sums, Sums)
    logits = torch.tensor([[8.0, 0.0, 0.0]], dtype=torch.bfloat16)
    sums.add("train", torch.tensor([2]), logits)
    expected = logits.float().softmax(dim=1).double()
    torch.testing.assert_close(sums.of("train")[2:3], expected)


# Whole runs ------------------------------------------------------------------------------------


class _Diary:
    """A keeper that keeps the classifier as it was after every epoch."""

    def __init__(self) -> None:
        self.pages: list[dict[str, Tensor]] = []

    def begin(self, data: Prepared, state: TrainingState) -> None:
        self.meta = state.feeds.meta_at(torch.arange(state.feeds.meta_size)).x

    def save(self, state: TrainingState) -> None:
        self.pages.append(deepcopy(state.networks.classifier.state_dict()))


def images(n: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = generator.integers(0, 120, (n, 8, 8, 3)).astype(np.uint8)
    x[y == 1, :4] += 60
    return x, y


def same(mine: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return mine.keys() == other.keys() and all(torch.equal(mine[k], other[k]) for k in mine)


@pytest.fixture(scope="module")
def diary_of_images() -> tuple[Model, _Diary]:
    """A run on images, whose network has batch norm; epochs 2 to 5 of 6 are averaged."""
    chosen = replace(recipe("history", epochs=6, snapshots=2), backbone="convnet")
    diary = _Diary()
    data = prepare(chosen, Source(Part(*images(96))))
    return fit_prepared(data, device=CPU, observer=Silent(), keeper=diary), diary


def test_snapshots_are_the_weights_and_statistics_of_their_epoch(
    diary_of_images: tuple[Model, _Diary],
) -> None:
    model, diary = diary_of_images
    heads = model.networks.heads
    assert isinstance(heads, Snapshots)
    assert any(isinstance(module, nn.BatchNorm2d) for module in heads.modules())
    assert snapshot_epochs(2, 6, 2) == [4, 6]
    assert len(heads.copies) == 1
    assert same(heads.copies[0].state_dict(), diary.pages[3])
    assert not same(diary.pages[3], diary.pages[5])
    assert same(model.networks.classifier.state_dict(), diary.pages[5])
    assert not any(p.requires_grad for p in heads.parameters())


def test_streamed_averages_are_those_of_the_epochs(diary_of_images: tuple[Model, _Diary]) -> None:
    model, diary = diary_of_images
    net = Backbone("convnet", Dropout()).build((3, 8, 8), 2).eval()
    total = torch.zeros(len(diary.meta), 2)
    for page in diary.pages[2:]:
        net.load_state_dict(page)
        with torch.no_grad():
            total += net(diary.meta).softmax(dim=1)
    assert isinstance(model.networks.memory, Sums)
    torch.testing.assert_close(model.networks.memory.of("meta"), total)
    meta = model.predictions["meta"]
    p = total[torch.arange(len(total)), torch.from_numpy(meta.predicted)].double() / 4
    expected = torch.log1p(-p) - p.log()
    found = torch.from_numpy(model.uncertainty(meta, "history_streamed"))
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
    rows = model.networks.memory.of("train").sum(dim=1)
    torch.testing.assert_close(rows, torch.full_like(rows, 4.0))


def test_known_splits_have_the_streamed_score_and_others_do_not() -> None:
    model = fit("history")
    for split in ("train", "meta"):
        assert set(model.predictions[split].scores) == {"history", "history_streamed"}
    for split in ("tune", "test"):
        assert set(model.predictions[split].scores) == {"history"}
    assert "unlabelled" not in model.predictions


def registered(n: int = 60, **settings: Any) -> Model:
    """The meta set, registered as well."""
    meta = Part(*blobs(n, seed=7))
    data = replace(source(), meta=meta, unlabelled=Part(meta.x))
    return fit("history", data, register=True, **settings)


def test_registered_inputs_have_a_score_of_their_own() -> None:
    model = registered()
    found = model.predictions["unlabelled"]
    assert set(found.scores) == {"history", "history_registered"}
    assert found.labels is None
    assert np.array_equal(
        found.scores["history_registered"], model.predictions["meta"].scores["history_streamed"]
    )
    plain = fit("history", replace(source(), meta=Part(*blobs(60, seed=7))))
    assert same(plain.networks.classifier.state_dict(), model.networks.classifier.state_dict()), (
        "registering changed training"
    )


def test_a_run_with_registered_inputs_is_saved_and_loaded(tmp_path: Path) -> None:
    model = registered()
    folder = RunFolder(tmp_path / "run")
    folder.begin(model.recipe, {}, resume=False)
    folder.write(model)
    stored = folder.predictions("unlabelled")
    assert np.array_equal(
        stored.scores["history_registered"],
        model.predictions["unlabelled"].scores["history_registered"],
    )
    assert "memory.of_train" not in folder.load(device=CPU).networks.state_dict()


def test_evaluation_passes_do_not_change_training() -> None:
    mine, other = fit("history"), fit("history", source="evaluation")
    assert same(mine.networks.trained_state(), other.networks.trained_state())
    train, quiet = mine.predictions["train"], other.predictions["train"]
    assert not np.array_equal(train.scores["history_streamed"], quiet.scores["history_streamed"])


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"start": 1.0}, {"start": -0.1}, {"start_epochs": -1}, {"snapshots": 0}]
)
def test_fields_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        History(**wrong)


def test_a_run_of_which_nothing_would_be_averaged_is_refused() -> None:
    plan = Plan(total=40, steps_per_epoch=10, meta_size=8, unlabelled_size=0)
    History(start_epochs=3).check(plan)
    History().check(replace(plan, total=10))
    with pytest.raises(InputError, match="no epoch would be averaged: 4 epochs"):
        History(start_epochs=4).check(plan)
    with pytest.raises(InputError, match="register needs unlabelled inputs"):
        History(register=True).check(plan)


# Behaviour -------------------------------------------------------------------------------------


def test_with_noisy_labels_history_ranks_errors_better_than_the_last_weights() -> None:
    """30 % of the training labels are wrong and the network memorises some of them."""
    gains = []
    for seed in range(4):
        generator = np.random.default_rng(10 + seed)
        x, y = blobs(400, seed=10 + seed, spread=0.9)
        wrong = generator.random(len(y)) < 0.3
        y = np.where(wrong, (y + generator.integers(1, 3, len(y))) % 3, y)
        tests = {"test": Part(*blobs(1500, seed=100 + seed, spread=0.9))}
        data = Source(Part(x, y), tests=tests)
        model = fit("history", data, epochs=25, seed=seed, batch_size=64, test_passes=0)
        test = model.predictions["test"]
        figures = {
            score: auarc(model.uncertainty(test, score), test.correct())
            for score in ("history", "softmax")
        }
        gains.append(figures["history"] - figures["softmax"])
    assert np.mean(gains) > 0.001, gains


def test_mislabelled_training_points_have_the_higher_streamed_score() -> None:
    """Labels take no part in the score: it shows which of them the network had to give in to."""
    generator = np.random.default_rng(0)
    x, clean = blobs(400)
    wrong = generator.random(len(clean)) < 0.2
    model = fit("history", Source(Part(x, np.where(wrong, (clean + 1) % 3, clean))), epochs=20)
    train = model.predictions["train"]
    score = model.uncertainty(train, "history_streamed")
    assert failure_auroc(score, ~wrong[train.index]) > 0.65

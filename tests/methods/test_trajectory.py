"""The U-Score of the trajectory: its averages, its weights, and what g is taught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.functional import mode
from revar.methods.base import Plan, Sizes
from revar.methods.erm import ERM
from revar.methods.history import summed_log_odds
from revar.methods.trajectory import Averages, Trajectory, belief
from revar.metrics import failure_auroc
from revar.model import Model
from revar.nets.scorer import EvidenceScorer, top_log_odds
from revar.types import Clock
from support.feeds import CLOCK, TASK, small
from support.problems import blobs, fit

EARLY = replace(CLOCK, step=39)
AVERAGED = replace(CLOCK, step=45)


def test_belief_is_the_share_of_the_label() -> None:
    sums = torch.tensor([[6.0, 3.0, 1.0], [1.0, 3.0, 6.0], [2.0, 2.0, 0.0]])
    assert belief(sums, torch.tensor([0, 1, 1])).tolist() == pytest.approx([1.0, 0.5, 1.0])


def test_before_the_averages_it_is_plain_training() -> None:
    method = Trajectory()
    networks, batch, feeds = small(method)
    torch.manual_seed(0)
    result = method.loss(networks, TASK, batch, feeds, EARLY)
    torch.manual_seed(0)
    plain = ERM().loss(networks, TASK, batch, feeds, EARLY)
    assert torch.equal(result.loss, plain.loss)
    assert result.teaching is None
    assert result.weights is None
    assert isinstance(networks.memory, Averages)
    assert not networks.memory.sums.any()


def test_sums_grow_by_the_probabilities_of_each_pass() -> None:
    method = Trajectory()
    networks, batch, feeds = small(method)
    assert isinstance(networks.memory, Averages)
    seen = torch.zeros_like(networks.memory.sums)
    for _ in range(3):
        result = method.loss(networks, TASK, batch, feeds, AVERAGED)
        seen[batch.index] += result.logits.detach().softmax(dim=1)
    torch.testing.assert_close(networks.memory.sums, seen)
    torch.testing.assert_close(seen[batch.index].sum(dim=1), torch.full((12,), 3.0).double())


def test_examples_are_weighted_by_belief_from_half_of_the_budget_on() -> None:
    method = Trajectory()
    networks, batch, feeds = small(method, rate=0.0)
    assert method.loss(networks, TASK, batch, feeds, AVERAGED).weights is None
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    assert result.weights is not None
    assert isinstance(networks.memory, Averages)
    raw = belief(networks.memory.sums[batch.index], batch.y)
    torch.testing.assert_close(result.weights, raw / raw.mean())
    losses = F.cross_entropy(result.logits, batch.y, reduction="none")
    torch.testing.assert_close(result.loss, (result.weights * losses).mean())


def test_a_new_g_is_taught_from_softmax_response_on() -> None:
    """By hand: a correction of zero leaves the negative standardised log-odds."""
    method = Trajectory(smoothing=0.05)
    networks, batch, feeds = small(method, rate=0.0)
    result = method.loss(networks, TASK, batch, feeds, AVERAGED)
    classifier, memory = networks.classifier, networks.memory
    assert isinstance(memory, Averages)
    with torch.no_grad(), mode(classifier, dropout=False, statistics=False):
        # As in the step: what the training pass found, by the head without dropout.
        features = classifier.forward_features(batch.x)
        logits = classifier.forward_head(features)
    odds = top_log_odds(logits)
    base = -(odds - odds.mean()) / odds.std(unbiased=False)
    wanted = summed_log_odds(memory.sums[batch.index], logits.argmax(1)).clamp(-12, 12)
    target = (wanted - wanted.mean()) / wanted.std(unbiased=False)
    assert result.teaching is not None
    torch.testing.assert_close(result.teaching, F.smooth_l1_loss(base, target))
    assert torch.equal(memory.mean, wanted.mean())


def test_what_is_taught_moves_g_alone() -> None:
    method = Trajectory()
    networks, batch, feeds = small(method)
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    assert result.teaching is not None
    result.teaching.backward()
    assert all(p.grad is None for p in networks.classifier.parameters())
    assert networks.scorer is not None
    assert any(p.grad is not None and p.grad.any() for p in networks.scorer.parameters())


def test_running_mean_and_deviation() -> None:
    memory = Averages(Sizes(train=2, meta=1, unlabelled=0, n_classes=2))
    memory.standardised(torch.tensor([0.0, 2.0]), 0.1)
    assert (memory.mean.item(), memory.deviation.item()) == (1.0, 1.0)
    found = memory.standardised(torch.tensor([9.0, 13.0]), 0.1)
    assert memory.mean.item() == pytest.approx(0.9 * 1 + 0.1 * 11)
    assert memory.deviation.item() == pytest.approx(0.9 * 1 + 0.1 * 2)
    assert found.tolist() == pytest.approx([(9 - 2) / 1.1, (13 - 2) / 1.1])


def test_kinds_are_the_phases() -> None:
    method = Trajectory()
    kinds = {method.kind(replace(CLOCK, step=step)) for step in range(100)}
    assert kinds == {(False, False), (True, False), (True, True)}
    assert Trajectory(weighted_from=1.0).kind(replace(CLOCK, step=99)) == (True, False)


def test_a_run_without_averages_is_refused() -> None:
    plan = Plan(total=100, steps_per_epoch=10, meta_size=5, unlabelled_size=0)
    Trajectory(start_epochs=9).check(plan)
    with pytest.raises(InputError, match="nothing would be averaged: 100 steps"):
        Trajectory(start_epochs=10).check(plan)
    with pytest.raises(InputError, match="weighted_from"):
        Trajectory(weighted_from=0.0)


# Behaviour ------------------------------------------------------------------------------------


def noisy(seed: int) -> tuple[Source, np.ndarray]:
    """Overlapping clusters, a fifth of the labels wrong, and which."""
    x, y = blobs(600, seed=seed, spread=1.0)
    generator = np.random.default_rng(seed)
    wrong = generator.random(len(y)) < 0.2
    labels = np.where(wrong, (y + generator.integers(1, 3, len(y))) % 3, y)
    tests = {"test": Part(*blobs(2000, seed=seed + 100, spread=1.0))}
    return Source(Part(x, labels), tests=tests), wrong


def test_teaching_leaves_the_classifier_alone() -> None:
    plain = fit("erm", epochs=6)
    taught = fit("trajectory", epochs=6, weighted_from=1.0)
    for name, value in plain.networks.classifier.state_dict().items():
        assert torch.equal(value, taught.networks.classifier.state_dict()[name]), name


def test_g_learns_what_the_averages_say() -> None:
    model = fit("trajectory", noisy(0)[0], epochs=20)
    train = model.predictions["train"]
    memory = model.networks.memory
    assert isinstance(memory, Averages)
    wanted = summed_log_odds(memory.sums, torch.from_numpy(train.predicted))
    assert spearmanr(train.columns["uscore"], wanted).statistic > 0.9
    assert isinstance(model.networks.scorer, EvidenceScorer)


def test_belief_finds_wrong_labels() -> None:
    data, wrong = noisy(0)
    model = fit("trajectory", data, epochs=20)
    memory, train = model.networks.memory, model.predictions["train"]
    assert isinstance(memory, Averages)
    assert train.labels is not None
    doubt = -belief(memory.sums, torch.from_numpy(train.labels)).numpy()
    assert failure_auroc(doubt, ~wrong[train.index]) > 0.9


def scores(model: Model, name: str) -> float:
    """Failure AUROC on the test set."""
    test = model.predictions["test"]
    return failure_auroc(model.uncertainty(test, name), test.correct())


def test_the_score_ranks_errors_at_least_as_well_as_softmax() -> None:
    """Over five seeds, within two standard errors of the difference."""
    models = [fit("trajectory", noisy(seed)[0], epochs=20, seed=seed) for seed in range(5)]
    gains = [scores(model, "uscore") - scores(model, "softmax") for model in models]
    error = np.std(gains, ddof=1) / np.sqrt(len(gains))
    assert np.mean(gains) > -2 * error - 0.005
    assert np.mean([scores(model, "fused") for model in models]) > 0.7


def test_a_clock_of_its_own_is_not_needed() -> None:
    """A step at the very start of the averages counts; one before does not."""
    method = Trajectory(start=0.4)
    assert method.kind(Clock(step=40, total=100, steps_per_epoch=10, lr=0.1)) == (True, False)
    assert method.kind(Clock(step=39, total=100, steps_per_epoch=10, lr=0.1)) == (False, False)


def test_the_fused_score_is_fitted_on_both_held_out_splits() -> None:
    model = fit("trajectory", noisy(0)[0], epochs=6)
    sizes = [len(model.predictions[name]) for name in ("tune", "meta")]
    assert model.fitted.fusion is not None
    assert model.fitted.fusion.fitted_on == sum(sizes)

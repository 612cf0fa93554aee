"""What the trajectory teaches: the targets that hold f, the mean of its weights, and g."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.functional import flat_state, mode
from revar.methods.base import Plan, Sizes
from revar.methods.erm import ERM
from revar.methods.history import summed_log_odds
from revar.methods.trajectory import Averages, Trajectory, early_learning
from revar.metrics import failure_auroc
from revar.model import Model
from revar.nets.scorer import EvidenceScorer, top_log_odds
from support.feeds import CLOCK, TASK, small
from support.problems import blobs, fit

EARLY = replace(CLOCK, step=39)
AVERAGED = replace(CLOCK, step=45)


def test_the_early_learning_term_by_hand() -> None:
    """Of p = (0.6, 0.4) and t = (0.5, 0.25): 1 - 0.3 - 0.1."""
    logits = torch.tensor([0.6, 0.4]).log()[None].requires_grad_()
    probabilities, targets = logits.softmax(dim=1), torch.tensor([[0.5, 0.25]])
    found = early_learning(probabilities, targets)
    assert found.item() == pytest.approx(np.log(0.6))
    found.sum().backward()
    # d log(1 - <p, t>) / d z_k = -p_k (t_k - <p, t>) / (1 - <p, t>)
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-0.6 * 0.1 / 0.6, -0.4 * -0.15 / 0.6])


def test_the_term_cancels_a_label_that_the_targets_contradict() -> None:
    """The gradient of the loss pulls to the label, that of the term away from it."""
    logits = torch.tensor([[2.0, 0.0, 0.0]]).requires_grad_()
    label, targets = torch.tensor([1]), torch.tensor([[0.97, 0.01, 0.02]])
    (pull,) = torch.autograd.grad(F.cross_entropy(logits, label), logits)
    (hold,) = torch.autograd.grad(early_learning(logits.softmax(dim=1), targets).sum(), logits)
    assert pull[0, 1] < 0 < hold[0, 1]
    assert pull[0, 0] > 0 > hold[0, 0]


def test_agreement_beyond_rounding_has_no_gradient() -> None:
    logits = torch.tensor([[40.0, 0.0]]).requires_grad_()
    term = early_learning(logits.softmax(dim=1), torch.tensor([[1.0, 0.0]]))
    assert torch.isfinite(term).all()
    term.sum().backward()
    assert logits.grad is not None
    assert not logits.grad.any()


def test_targets_are_running_means() -> None:
    memory = Averages(Sizes(train=3, meta=1, unlabelled=0, n_classes=2), weights=False)
    p = torch.tensor([[0.8, 0.2]])
    index = torch.tensor([1])
    torch.testing.assert_close(memory.follow(index, p, 0.7), 0.3 * p)
    torch.testing.assert_close(memory.follow(index, p, 0.7), (0.7 * 0.3 + 0.3) * p)
    assert not memory.targets[[0, 2]].any()
    assert memory.weights is None


def test_before_the_averages_it_is_plain_training() -> None:
    method = Trajectory(early_from=0.4)
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


def test_f_is_held_from_a_share_of_the_budget_on() -> None:
    method = Trajectory(early=2.0)
    networks, batch, feeds = small(method, rate=0.0)
    before = method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=29))
    plain = F.cross_entropy(before.logits, batch.y)
    torch.testing.assert_close(before.loss, plain)
    result = method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=30))
    probabilities = result.logits.softmax(dim=1)
    assert isinstance(networks.memory, Averages)
    # Two passes of the same weights without dropout: t = (0.7 * 0.3 + 0.3) p.
    targets = networks.memory.targets[batch.index]
    torch.testing.assert_close(targets, 0.51 * probabilities.detach())
    term = (1 - (probabilities * targets).sum(dim=1)).log().mean()
    torch.testing.assert_close(result.loss, plain + 2 * term)


def test_the_trained_weights_are_a_running_mean() -> None:
    """By hand: w0, then half of the way to w1 within a half-life of one step."""
    method = Trajectory(half_life=0.01)
    networks, batch, feeds = small(method)
    first = flat_state(networks.classifier)
    method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=0))
    with torch.no_grad():
        for parameter in networks.classifier.parameters():
            parameter.add_(1.0)
    second = flat_state(networks.classifier)
    method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=1))
    method.finish(networks)
    torch.testing.assert_close(flat_state(networks.classifier), (first + second) / 2)


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
    memory = Averages(Sizes(train=2, meta=1, unlabelled=0, n_classes=2), weights=False)
    memory.standardised(torch.tensor([0.0, 2.0]), 0.1)
    assert (memory.mean.item(), memory.deviation.item()) == (1.0, 1.0)
    found = memory.standardised(torch.tensor([9.0, 13.0]), 0.1)
    assert memory.mean.item() == pytest.approx(0.9 * 1 + 0.1 * 11)
    assert memory.deviation.item() == pytest.approx(0.9 * 1 + 0.1 * 2)
    assert found.tolist() == pytest.approx([(9 - 2) / 1.1, (13 - 2) / 1.1])


def test_kinds_are_the_phases() -> None:
    kinds = [Trajectory().kind(replace(CLOCK, step=step)) for step in range(100)]
    assert kinds[0] == (True, False, False)
    assert set(kinds[1:30]) == {(False, False, False)}
    assert set(kinds[30:40]) == {(False, True, False)}
    assert set(kinds[40:]) == {(False, True, True)}
    assert Trajectory(early=0.0).kind(replace(CLOCK, step=99)) == (False, False, True)


def test_a_run_without_averages_is_refused() -> None:
    plan = Plan(total=100, steps_per_epoch=10, meta_size=5, unlabelled_size=0)
    Trajectory(start_epochs=9).check(plan)
    with pytest.raises(InputError, match="nothing would be averaged: 100 steps"):
        Trajectory(start_epochs=10).check(plan)
    with pytest.raises(InputError, match="half_life"):
        Trajectory(half_life=1.0)


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
    taught = fit("trajectory", epochs=6, early=0.0, half_life=0.0)
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


def test_targets_find_wrong_labels() -> None:
    data, wrong = noisy(0)
    model = fit("trajectory", data, epochs=20)
    memory, train = model.networks.memory, model.predictions["train"]
    assert isinstance(memory, Averages)
    assert train.labels is not None
    believed = memory.targets.gather(1, torch.from_numpy(train.labels)[:, None]).squeeze(1)
    assert failure_auroc(-believed.numpy(), ~wrong[train.index]) > 0.9


def test_what_f_used_to_say_keeps_it_from_learning_wrong_labels_by_heart() -> None:
    """Share of wrong labels learned, over three seeds: less than half that of plain training."""
    learned: dict[float, list[float]] = {0.0: [], 3.0: []}
    for seed in range(3):
        data, wrong = noisy(seed)
        for early, found in learned.items():
            model = fit(
                "trajectory", data, epochs=60, seed=seed, early=early, early_from=0.1,
                learning_rate=0.2, weight_decay=0.0,
            )  # fmt: skip
            train = model.predictions["train"]
            found.append(float(train.correct()[wrong[train.index]].mean()))
    assert np.mean(learned[3.0]) < 0.5 * np.mean(learned[0.0])


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


def test_the_fused_score_is_fitted_on_both_held_out_splits() -> None:
    model = fit("trajectory", noisy(0)[0], epochs=6)
    sizes = [len(model.predictions[name]) for name in ("tune", "meta")]
    assert model.fitted.fusion is not None
    assert model.fitted.fusion.fitted_on == sum(sizes)

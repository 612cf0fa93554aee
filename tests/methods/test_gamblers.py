"""Deep Gamblers against its equation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.functional import mode
from revar.methods.abstention import abstention_log_odds, joint_log_probabilities
from revar.methods.base import Plan
from revar.methods.gamblers import Gamblers, gambler_losses
from revar.metrics import failure_auroc
from support.feeds import CLOCK, TASK, small
from support.problems import blobs, fit

PLAN = Plan(total=100, steps_per_epoch=10, meta_size=10, unlabelled_size=0)


def test_the_loss_by_hand() -> None:
    """Softmax over three: 1/2, 1/4 and 1/4 for abstaining; the label has 1/4, o is 2."""
    logits = torch.tensor([[math.log(2.0), 0.0]], dtype=torch.float64)
    abstention = torch.zeros(1, dtype=torch.float64)
    loss = gambler_losses(logits, abstention, torch.tensor([1]), 2.0)
    torch.testing.assert_close(loss, -torch.tensor([3 / 8], dtype=torch.float64).log())
    log_odds = abstention_log_odds(logits, abstention)
    torch.testing.assert_close(log_odds, torch.tensor([1 / 3], dtype=torch.float64).log())


@given(st.integers(2, 6), st.floats(1.01, 50), st.integers(0, 10_000))
def test_the_loss_is_the_negative_log_of_bet_and_reserve(
    n_classes: int, payoff: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(8, n_classes, generator=generator, dtype=torch.float64)
    abstention = 3 * torch.randn(8, generator=generator, dtype=torch.float64)
    y = torch.arange(8) % n_classes
    p = torch.cat([logits, abstention[:, None]], dim=1).softmax(dim=1)
    expected = -(p[torch.arange(8), y] + p[:, -1] / payoff).log()
    torch.testing.assert_close(gambler_losses(logits, abstention, y, payoff), expected)
    torch.testing.assert_close(abstention_log_odds(logits, abstention).sigmoid(), p[:, -1])


def test_a_very_large_payoff_is_cross_entropy_over_all_outputs() -> None:
    """And that is cross-entropy on the class logits plus softplus of the abstention log-odds."""
    torch.manual_seed(0)
    logits, abstention = torch.randn(9, 4).double(), torch.randn(9).double()
    y = torch.arange(9) % 4
    losses = gambler_losses(logits, abstention, y, 1e30)
    joint = torch.cat([logits, abstention[:, None]], dim=1)
    torch.testing.assert_close(losses, F.cross_entropy(joint, y, reduction="none"))
    log_odds = abstention_log_odds(logits, abstention)
    plain = F.cross_entropy(logits, y, reduction="none")
    torch.testing.assert_close(losses, plain + F.softplus(log_odds))
    # A head that has learned that abstaining is not rewarded leaves plain cross-entropy.
    unrewarded = gambler_losses(logits, torch.full_like(abstention, -1e3), y, 1e30)
    torch.testing.assert_close(unrewarded, plain)


def best_reserve(probabilities: list[float], payoff: float) -> float:
    """p_{C+1} after minimising the expected loss for known class probabilities."""
    eta = torch.tensor(probabilities, dtype=torch.float64)
    n = len(eta)
    z = torch.zeros(n + 1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([z], max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        losses = gambler_losses(z[:n].expand(n, n), z[n].expand(n), torch.arange(n), payoff)
        loss = (eta * losses).sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return float(z.detach().softmax(0)[-1])


@pytest.mark.parametrize(
    ("probabilities", "payoff", "expected"),
    [
        # One class worth betting on: o (1 - eta) / (o - 1).
        ([0.8, 0.2], 1.8, 1.8 * 0.2 / 0.8),
        ([0.9, 0.05, 0.05], 2.2, 2.2 * 0.1 / 1.2),
        # No class above 1/o: everything is reserved.
        ([0.52, 0.48], 1.8, 1.0),
        ([0.4, 0.3, 0.3], 2.2, 1.0),
        # o >= C, or a doubt between fewer than o classes: bets are spread, nothing is reserved.
        ([0.52, 0.48], 2.2, 0.0),
        ([0.5, 0.5, 0.0], 2.2, 0.0),
    ],
)
def test_what_the_best_gambler_reserves(
    probabilities: list[float], payoff: float, expected: float
) -> None:
    """Why two classes have a default of their own."""
    assert best_reserve(probabilities, payoff) == pytest.approx(expected, abs=0.02)


def test_the_payoff_of_a_task() -> None:
    assert Gamblers().payoff_for(2) == 1.8
    assert Gamblers().payoff_for(3) == Gamblers().payoff_for(100) == 2.2
    assert Gamblers(payoff=6.0).payoff_for(2) == 6.0


@pytest.mark.parametrize("extreme", [1e4, -1e4])
@pytest.mark.parametrize("kind", ["label", "other", "abstention"])
def test_extreme_logits_give_finite_losses_and_gradients(extreme: float, kind: str) -> None:
    logits, abstention = torch.zeros(2, 3), torch.zeros(2)
    if kind == "abstention":
        abstention[0] = extreme
    else:
        logits[0, 0 if kind == "label" else 1] = extreme
    logits.requires_grad_()
    abstention.requires_grad_()
    losses = gambler_losses(logits, abstention, torch.zeros(2, dtype=torch.long), 2.2)
    losses.sum().backward()
    for value in (losses, logits.grad, abstention.grad):
        assert value is not None
        assert value.isfinite().all()
    assert abstention_log_odds(logits, abstention).isfinite().all()
    half = joint_log_probabilities(logits.bfloat16(), abstention.bfloat16())
    assert half.dtype == torch.float32


def test_pretraining_is_cross_entropy_and_leaves_the_head_alone() -> None:
    method = Gamblers()
    networks, batch, feeds = small(method, rate=0.0)
    clock = replace(CLOCK, step=32)
    result = method.loss(networks, TASK, batch, feeds, clock)
    result.loss.backward()
    expected = F.cross_entropy(networks.classifier(batch.x), batch.y)
    torch.testing.assert_close(result.loss, expected)
    assert networks.heads is not None
    assert all(p.grad is None for p in networks.heads.parameters())
    after = method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=33))
    assert not torch.isclose(after.loss, expected)


def test_the_step_is_the_equation_on_one_layer_of_more_outputs() -> None:
    """C logits beside one are a last layer of C+1; class and sample weights count."""
    method = Gamblers(pretrain=0.0)
    networks, batch, feeds = small(method, rate=0.0)
    batch = replace(batch, weight=torch.linspace(0.5, 2.0, 12).double())
    task = replace(TASK, class_weights=(1.0, 2.0, 3.0))
    with mode(networks, dropout=False, statistics=True):
        result = method.loss(networks, task, batch, feeds, CLOCK)
        features = networks.classifier.forward_features(batch.x)
    head, last = networks.heads, networks.classifier.get_submodule("head.1")
    assert isinstance(head, nn.Linear)
    assert isinstance(last, nn.Linear)
    joint = F.linear(
        features, torch.cat([last.weight, head.weight]), torch.cat([last.bias, head.bias])
    )
    p = joint.softmax(dim=1)
    losses = -(p[torch.arange(12), batch.y] + p[:, -1] / 2.2).log()
    assert batch.weight is not None
    expected = (losses * batch.weight * (batch.y + 1)).mean()
    torch.testing.assert_close(result.loss, expected)
    torch.testing.assert_close(result.logits, joint[:, :3])


@pytest.mark.parametrize(
    ("field", "value"),
    [("payoff", 1.0), ("payoff", math.inf), ("pretrain", 1.0), ("pretrain_epochs", -1)],
)
def test_bad_fields_are_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"Gamblers: {field} is"):
        Gamblers(**{field: value})  # type: ignore[arg-type]


def test_a_run_that_never_bets_is_refused() -> None:
    Gamblers().check(PLAN)
    with pytest.raises(InputError, match="lower pretrain"):
        Gamblers(pretrain_epochs=10).check(PLAN)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_region_with_random_labels_is_rejected_first(n_classes: int) -> None:
    """One cluster of n+1 is labelled by chance, over all classes."""
    x, y = blobs(600, n_classes + 1)
    random = np.random.default_rng(0).integers(0, n_classes, len(y))
    model = fit("gamblers", Source(Part(x, np.where(y == n_classes, random, y))), epochs=8)
    x_test, region = blobs(600, n_classes + 1, seed=1)
    own = model.uncertainty(model.predict(x_test), "own")
    assert failure_auroc(own, region != n_classes) > 0.95
    # Not only ranked: more is reserved than bet there, and next to nothing elsewhere.
    assert np.median(own[region == n_classes]) > 0
    assert np.median(own[region != n_classes]) < -2

"""Meta-Weight-Net against its equations."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from revar.errors import InputError
from revar.functional import call, mode
from revar.methods.base import Plan
from revar.methods.erm import ERM
from revar.methods.mwn import MetaWeightNet, WeightNet
from revar.scores import available
from revar.stochastic import variance
from revar.types import Batch, Networks
from support.feeds import CLOCK, TASK, small
from support.noise import outcome
from support.problems import fit


def weight_net(networks: Networks) -> WeightNet:
    assert isinstance(networks.scorer, WeightNet)
    return networks.scorer


def constant(networks: Networks, logit: float) -> None:
    """Make V say the same of every loss."""
    last = weight_net(networks).net[-1]
    torch.nn.init.zeros_(last.weight)  # type: ignore[arg-type]
    torch.nn.init.constant_(last.bias, logit)  # type: ignore[arg-type]


def naive_hypergradient(
    method: MetaWeightNet, networks: Networks, batch: Batch, meta: Batch
) -> list[Tensor]:
    """Differentiate the meta-loss through a look-ahead written out, with the graph kept."""
    f, v = networks.classifier, weight_net(networks)
    theta = {k: p.detach().clone().requires_grad_() for k, p in f.named_parameters()}
    with mode(f, dropout=True, statistics=False):
        losses = F.cross_entropy(call(f, theta, batch.x), batch.y, reduction="none")
    weights = v(losses.detach()).sigmoid()
    if method.weight_normalisation == "sum_one":
        inner = (weights / weights.sum() * losses).sum()
    else:
        inner = (weights * losses).mean()
    gradients = torch.autograd.grad(inner, list(theta.values()), create_graph=True)
    ahead = {k: p - CLOCK.lr * g for (k, p), g in zip(theta.items(), gradients, strict=True)}
    with mode(f, dropout=False, statistics=True):
        loss = F.cross_entropy(call(f, ahead, meta.x), meta.y)
    with mode(f, dropout=True, statistics=True):
        samples = torch.stack([call(f, ahead, meta.x) for _ in range(method.passes)])
    loss = loss + method.variance_weight * variance(samples).mean()
    return list(torch.autograd.grad(loss, list(v.parameters())))


@pytest.mark.parametrize("variance_weight", [0.0, 2.0])
@pytest.mark.parametrize("how", ["none", "sum_one"])
def test_the_update_is_the_hypergradient(how: str, variance_weight: float) -> None:
    method = MetaWeightNet(
        weight_normalisation=how,  # type: ignore[arg-type]
        variance_weight=variance_weight,
        passes=3,
    )
    networks, batch, feeds = small(method, "everywhere")
    torch.manual_seed(11)
    result = method.outer_loss(networks, TASK, batch, feeds, CLOCK)
    got = torch.autograd.grad(result.loss, list(weight_net(networks).parameters()))
    torch.manual_seed(11)
    expected = naive_hypergradient(method, networks, batch, feeds.meta(12))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-14)


def test_the_loss_by_hand() -> None:
    """V(l) = sigmoid(1 - l): the loss is mean of sigmoid(1 - l_i) l_i, V is not differentiated."""
    method = MetaWeightNet(width=1)
    networks, batch, feeds = small(method)
    hidden, _, last = weight_net(networks).net
    for layer, factor, bias in ((hidden, 1.0, 0.0), (last, -1.0, 1.0)):
        torch.nn.init.constant_(layer.weight, factor)  # type: ignore[arg-type]
        torch.nn.init.constant_(layer.bias, bias)  # type: ignore[arg-type]
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    losses = F.cross_entropy(result.logits, batch.y, reduction="none")
    weights = 1 / (1 + torch.exp(losses - 1))
    torch.testing.assert_close(result.weights, weights.detach())
    torch.testing.assert_close(result.loss, (weights * losses).mean())
    (slope,) = torch.autograd.grad(result.loss, result.logits)
    residual = result.logits.softmax(1) - F.one_hot(batch.y, 3)
    torch.testing.assert_close(slope, weights[:, None] * residual / len(batch.y))


@pytest.mark.parametrize(("how", "factor"), [("none", 0.5), ("sum_one", 1.0)])
def test_a_constant_network_is_erm_up_to_the_constant(how: str, factor: float) -> None:
    method = MetaWeightNet(weight_normalisation=how)  # type: ignore[arg-type]
    networks, batch, feeds = small(method)
    constant(networks, 0.0)
    learned = list(networks.classifier.parameters())
    with mode(networks, dropout=True, statistics=False):
        torch.manual_seed(0)
        mine = method.loss(networks, TASK, batch, feeds, CLOCK).loss
        torch.manual_seed(0)
        plain = ERM().loss(networks, TASK, batch, feeds, CLOCK).loss
    torch.testing.assert_close(mine, factor * plain)
    for a, b in zip(
        torch.autograd.grad(mine, learned), torch.autograd.grad(plain, learned), strict=True
    ):
        torch.testing.assert_close(a, factor * b)


def test_v_reads_losses_without_class_and_sample_weights() -> None:
    method = MetaWeightNet()
    networks, batch, feeds = small(method, rate=0.0)
    task = replace(TASK, class_weights=(1.0, 5.0, 9.0))
    weighted = replace(batch, weight=torch.linspace(0, 2, 12).double())
    even = method.loss(networks, TASK, batch, feeds, CLOCK)
    result = method.loss(networks, task, weighted, feeds, CLOCK)
    assert even.weights is not None
    torch.testing.assert_close(result.weights, even.weights)
    losses = task.losses(result.logits, weighted)
    torch.testing.assert_close(result.loss, (even.weights * losses).mean())


def test_the_meta_step_weights_the_very_pass_of_the_training_step() -> None:
    """Same masks before and after, and the statistics of batch norm move once, in the step."""
    method = MetaWeightNet(passes=2, variance_weight=1.0)
    networks, batch, feeds = small(method, "everywhere")
    state = {name: value.clone() for name, value in networks.state_dict().items()}
    with mode(networks, dropout=True, statistics=False):
        torch.manual_seed(5)
        method.outer_loss(networks, TASK, batch, feeds, CLOCK)
        assert all(torch.equal(state[k], v) for k, v in networks.state_dict().items())
        after_meta_step = method.loss(networks, TASK, batch, feeds, CLOCK)
        torch.manual_seed(5)
        alone = method.loss(networks, TASK, batch, feeds, CLOCK)
    assert torch.equal(after_meta_step.loss, alone.loss)


def test_meta_steps_and_their_optimiser() -> None:
    every, third = MetaWeightNet(), MetaWeightNet(interval=3)
    steps = [replace(CLOCK, step=step) for step in range(6)]
    assert [every.outer_due(clock) for clock in steps] == [True] * 6
    assert [third.outer_due(clock) for clock in steps] == [True, False, False] * 2
    assert (every.outer.name, every.outer.learning_rate) == ("adam", 1e-3)
    assert every.outer.weight_decay == 1e-4
    assert every.weight_normalisation == "none"
    assert [layer.out_features for layer in WeightNet(100).net[::2]] == [100, 1]


def test_the_meta_batch_is_as_asked_and_at_most_the_meta_set() -> None:
    for size, asked in ((None, 12), (5, 5), (99, 16)):
        method = MetaWeightNet(meta_batch=size)
        networks, batch, feeds = small(method)
        method.outer_loss(networks, TASK, batch, feeds, CLOCK)
        assert feeds.asked == [f"meta {asked}"]


def test_extreme_logits_stay_finite() -> None:
    method = MetaWeightNet()
    networks, batch, feeds = small(method)
    networks, batch = networks.float(), replace(batch, x=batch.x.float())
    feeds.x = feeds.x.float()
    with torch.no_grad():
        for p in networks.classifier.parameters():
            p.mul_(100)
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    assert result.logits.abs().max() > 1e4
    outer = method.outer_loss(networks, TASK, batch, feeds, CLOCK)
    (result.loss + outer.loss).backward()
    for p in networks.parameters():
        assert p.grad is None or p.grad.isfinite().all()
    assert result.loss.isfinite()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"interval": 0}, "interval is 0.*at least 1"),
        ({"width": 0}, "width is 0.*at least 1"),
        ({"passes": 0}, "passes is 0.*at least 1"),
        ({"meta_batch": 0}, "meta_batch is 0.*at least 1"),
        ({"variance_weight": -1.0}, "variance_weight is -1.0.*negative"),
        ({"outer_learning_rate": 0.0}, "outer_learning_rate is 0.0.*positive"),
        ({"weight_normalisation": "max"}, "weight_normalisation is 'max'.*none, sum_one"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        MetaWeightNet(**fields)  # type: ignore[arg-type]


def test_an_empty_meta_set_is_refused() -> None:
    plan = Plan(total=100, steps_per_epoch=10, meta_size=0, unlabelled_size=0)
    with pytest.raises(InputError, match="meta set is empty"):
        MetaWeightNet().check(plan)


def test_dropout_is_needed_for_the_variance_alone() -> None:
    assert not MetaWeightNet().needs_dropout
    assert MetaWeightNet(variance_weight=1.0).needs_dropout
    assert MetaWeightNet().own_score == "mcd"


def test_wrong_labels_are_weighted_down_and_not_memorised(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 % symmetric noise, clean meta set, long enough for ERM to remember every label."""
    plain = outcome("erm", monkeypatch, ERM)
    # Some 200 steps, where the authors take 60,000: V must learn faster than theirs.
    mine = outcome("mwn", monkeypatch, MetaWeightNet, outer_learning_rate=0.003)
    assert plain.memorised > 0.95
    assert mine.auroc > 0.8
    assert mine.accuracy > plain.accuracy + 0.05


def test_without_dropout_it_is_selected_by_softmax() -> None:
    model = fit("mwn", dropout_rate=0.0)
    assert model.fitted.default_score == "softmax"
    assert "mcd" not in available(model.predictions["test"], model.fitted)

"""Learning to reweight against its equations."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import revar.methods.l2r
from revar.bilevel import Alignments
from revar.errors import InputError
from revar.functional import Params, call, keep_statistics, mode
from revar.methods.base import Plan
from revar.methods.erm import ERM
from revar.methods.l2r import L2R, rectified
from revar.randomness import preserved
from revar.stochastic import variance
from revar.types import Batch, Networks, Task
from support.feeds import CLOCK, TASK, small
from support.noise import outcome


def naive_weights(method: L2R, networks: Networks, batch: Batch, meta: Batch) -> Tensor:
    """Ren et al., word by word: perturb weights of zero, look ahead, differentiate, rectify."""
    f = networks.classifier
    theta = {k: p.detach().clone().requires_grad_() for k, p in f.named_parameters()}
    epsilon = torch.zeros(len(batch.y), dtype=batch.x.dtype, requires_grad=True)
    with preserved(batch.x.device), mode(f, dropout=True, statistics=False):
        losses = F.cross_entropy(call(f, theta, batch.x), batch.y, reduction="none")
    gradients = torch.autograd.grad(
        (epsilon * losses).sum(), list(theta.values()), create_graph=True
    )
    ahead = {k: p - 0.3 * g for (k, p), g in zip(theta.items(), gradients, strict=True)}
    with mode(f, dropout=False, statistics=True):
        loss = F.cross_entropy(call(f, ahead, meta.x), meta.y)
    with mode(f, dropout=True, statistics=True):
        samples = torch.stack([call(f, ahead, meta.x) for _ in range(method.passes)])
    loss = loss + method.variance_weight * variance(samples).mean()
    (slope,) = torch.autograd.grad(loss, epsilon)
    raw = (-slope).clamp_min(0)
    return raw / (raw.sum() + float(raw.sum() == 0))


@pytest.mark.parametrize("engine", ["forward_mode", "double_backward", "finite_difference"])
@pytest.mark.parametrize("variance_weight", [0.0, 2.0])
def test_weights_are_the_closed_form_at_zero(variance_weight: float, engine: str) -> None:
    """Against a look-ahead of a size that must not matter; in training mode, as in the loop."""
    method = L2R(variance_weight=variance_weight, passes=3, engine=engine)  # type: ignore[arg-type]
    networks, batch, feeds = small(method, "everywhere")
    torch.manual_seed(11)
    expected = naive_weights(method, networks, batch, feeds.meta(12))
    torch.manual_seed(11)
    with mode(networks, dropout=True, statistics=False):
        result = method.loss(networks, TASK, batch, feeds, CLOCK)
    tolerance = 1e-5 if engine == "finite_difference" else 1e-9
    torch.testing.assert_close(result.weights, expected, rtol=tolerance, atol=tolerance / 100)


def test_weights_are_products_of_gradients() -> None:
    """Example by example, with ordinary gradients and no engine at all."""
    method = L2R(meta_batch=7)
    networks, batch, feeds = small(method, rate=0.0)
    f = networks.classifier
    own: Params = dict(f.named_parameters())

    def gradient(loss: Tensor) -> Tensor:
        parts = torch.autograd.grad(loss, list(own.values()), retain_graph=True)
        return torch.cat([part.flatten() for part in parts])

    with mode(f, dropout=False, statistics=True):
        target = gradient(F.cross_entropy(f(feeds.x[:7]), feeds.y[:7]))
    with mode(f, dropout=True, statistics=False):
        losses = F.cross_entropy(call(f, own, batch.x), batch.y, reduction="none")
    products = torch.stack([gradient(loss) @ target for loss in losses])
    assert (products < 0).any()
    assert (products > 0).any()
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    torch.testing.assert_close(result.weights, products.clamp_min(0) / products.clamp_min(0).sum())


def test_the_loss_is_the_weighted_sum() -> None:
    method = L2R()
    networks, batch, feeds = small(method)
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    assert result.weights is not None
    losses = F.cross_entropy(result.logits, batch.y, reduction="none")
    torch.testing.assert_close(result.loss, (result.weights * losses).sum())
    assert result.weights.sum().item() == pytest.approx(1.0)
    assert not result.weights.requires_grad


def test_rectified_by_hand() -> None:
    values = torch.tensor([1.0, -3.0, 3.0, 0.0]).double()
    one = torch.ones(4).double()
    assert rectified(values, one).tolist() == [0.25, 0.0, 0.75, 0.0]
    assert rectified(values, torch.tensor([5.0, 7.0, 1.0, 1.0])).tolist() == [0.125, 0, 0.375, 0]
    assert rectified(-values.abs(), one).tolist() == [0.0] * 4
    assert rectified(torch.full((3,), 1e-30), torch.ones(3)).tolist() == pytest.approx([1 / 3] * 3)


def test_a_weight_of_two_is_two_examples_and_a_weight_of_zero_is_none() -> None:
    """Of samples and of classes: they count once, not in the weights and in the losses."""
    method = L2R(meta_batch=99)
    networks, batch, feeds = small(method, rate=0.0)
    # Copies would move the statistics of the batch.
    keep_statistics(networks.classifier)
    several = torch.tensor([2, 1, 0, 1, 1, 3, 1, 1, 1, 0, 1, 1])
    per_class = torch.tensor([1, 2, 1])

    def loss(task: Task, batch: Batch) -> Tensor:
        with mode(networks.classifier, dropout=True, statistics=False):
            return method.loss(networks, task, batch, feeds, CLOCK).loss

    task = replace(TASK, class_weights=tuple(per_class.double().tolist()))
    weighted = loss(task, replace(batch, weight=several.double()))
    rows = torch.arange(12).repeat_interleave(several * per_class[batch.y])
    copies = Batch(batch.x[rows], batch.y[rows], batch.index[rows])
    rows = torch.arange(16).repeat_interleave(per_class[feeds.y])
    feeds.x, feeds.y = feeds.x[rows], feeds.y[rows]
    torch.testing.assert_close(weighted, loss(TASK, copies))


def test_a_batch_that_disagrees_altogether_makes_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    method = L2R()
    networks, batch, feeds = small(method)
    against = Alignments(-torch.ones(12).double(), torch.zeros(()))
    monkeypatch.setattr(revar.methods.l2r, "alignments", lambda *_: against)
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    assert result.loss.item() == 0.0
    for gradient in torch.autograd.grad(result.loss, list(networks.classifier.parameters())):
        assert not gradient.any()


def test_the_masks_of_the_training_pass_are_those_of_erm() -> None:
    method = L2R()
    networks, batch, feeds = small(method, "everywhere")
    with mode(networks, dropout=True, statistics=False):
        torch.manual_seed(3)
        mine = method.loss(networks, TASK, batch, feeds, CLOCK).logits
        torch.manual_seed(3)
        assert torch.equal(mine, ERM().loss(networks, TASK, batch, feeds, CLOCK).logits)


def test_the_meta_batch_is_as_asked_and_at_most_the_meta_set() -> None:
    for size, asked in ((None, 12), (5, 5), (99, 16)):
        method = L2R(meta_batch=size)
        networks, batch, feeds = small(method)
        method.loss(networks, TASK, batch, feeds, CLOCK)
        assert feeds.asked == [f"meta {asked}"]


def test_extreme_logits_stay_finite() -> None:
    method = L2R()
    networks, batch, feeds = small(method)
    networks, batch = networks.float(), replace(batch, x=batch.x.float())
    feeds.x = feeds.x.float()
    with torch.no_grad():
        for p in networks.classifier.parameters():
            p.mul_(100)
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    assert result.logits.abs().max() > 1e4
    result.loss.backward()
    assert result.loss.isfinite()
    for p in networks.classifier.parameters():
        assert p.grad is not None
        assert p.grad.isfinite().all()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"meta_batch": 0}, "meta_batch is 0.*at least 1"),
        ({"passes": 0}, "passes is 0.*at least 1"),
        ({"variance_weight": -0.5}, "variance_weight is -0.5.*negative"),
        ({"engine": "exact"}, "engine is 'exact'.*forward_mode"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        L2R(**fields)  # type: ignore[arg-type]


def test_an_empty_meta_set_is_refused() -> None:
    plan = Plan(total=100, steps_per_epoch=10, meta_size=0, unlabelled_size=0)
    with pytest.raises(InputError, match="meta set is empty"):
        L2R().check(plan)


def test_wrong_labels_are_weighted_down_and_not_memorised(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 % symmetric noise, clean meta set; ERM ends near 0.67 here (see test_mwn)."""
    mine = outcome("l2r", monkeypatch, L2R)
    assert mine.auroc > 0.75
    assert mine.accuracy > 0.9
    assert mine.memorised < 0.75

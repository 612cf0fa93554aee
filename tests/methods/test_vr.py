"""Variance reduction in the training loss, against its equation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.fitting import build_networks
from revar.functional import Params, call, mode
from revar.methods.base import Plan
from revar.methods.erm import ERM
from revar.methods.vr import VR
from revar.nets.base import Dropout, DropoutPlacement
from revar.recipe import Recipe
from revar.stochastic import variance
from revar.types import Networks, StepResult
from support.feeds import CLOCK, TASK, FixedFeeds, small
from support.problems import blobs, fit

placements = pytest.mark.parametrize("placement", ["head", "everywhere"])
LATE = replace(CLOCK, step=77)


def step(
    method: VR | ERM, networks: Networks, feeds: FixedFeeds, clock: object = CLOCK
) -> StepResult:
    """A training step as the loop takes it, from a fixed seed."""
    batch = feeds.train_at(torch.arange(12))
    torch.manual_seed(9)
    with mode(networks, dropout=True, statistics=False):
        return method.loss(networks, TASK, batch, feeds, clock)  # type: ignore[arg-type]


def written_out(networks: Networks, x: Tensor, passes: int, shared: bool) -> Tensor:
    """[T, n, C] training passes one after the other, from the same seed."""
    f = networks.classifier
    own: Params = dict(f.named_parameters())
    torch.manual_seed(9)
    with mode(f, dropout=True, statistics=False):
        if not shared:
            return torch.stack([call(f, own, x) for _ in range(passes)])
        features = call(f, own, x, part="forward_features")
        heads = [call(f, own, features, part="forward_head") for _ in range(passes)]
    return torch.stack(heads)


@placements
@pytest.mark.parametrize("prediction", ["single", "dropout_mean"])
def test_the_loss_and_its_gradient_are_the_equation(
    placement: DropoutPlacement, prediction: str
) -> None:
    """Cross-entropy plus lambda times equation 5, through all T passes, nothing recomputed."""
    method = VR(variance_weight=3.0, passes=4, prediction=prediction)  # type: ignore[arg-type]
    networks, batch, feeds = small(method, placement)
    learned = list(networks.classifier.parameters())
    result = step(method, networks, feeds)
    got = torch.autograd.grad(result.loss, learned)
    samples = written_out(networks, batch.x, 4, placement == "head")
    p = samples.softmax(-1)
    p_label = (p[0] if prediction == "single" else p.mean(0)).gather(1, batch.y[:, None])
    spread = (p - p.mean(0)).square().sum(-1).mean(0)
    expected = -p_label.log().mean() + 3.0 * spread.mean()
    torch.testing.assert_close(result.loss, expected)
    for a, b in zip(got, torch.autograd.grad(expected, learned), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-12)


@placements
@pytest.mark.parametrize("fields", [{"variance_weight": 0.0}, {"passes": 1}])
def test_no_variance_is_erm(placement: DropoutPlacement, fields: dict[str, float]) -> None:
    method = VR(**fields)  # type: ignore[arg-type]
    networks, _, feeds = small(method, placement)
    mine, plain = step(method, networks, feeds), step(ERM(), networks, feeds)
    assert torch.equal(mine.loss, plain.loss)
    assert torch.equal(mine.logits, plain.logits)


@placements
def test_the_first_pass_is_that_of_erm_and_statistics_move_once(
    placement: DropoutPlacement,
) -> None:
    method = VR()
    first, _, feeds = small(method, placement)
    second, _, _ = small(ERM(), placement)
    second.load_state_dict(first.state_dict())
    mine, plain = step(method, first, feeds), step(ERM(), second, feeds)
    torch.testing.assert_close(mine.logits, plain.logits)
    for name, value in second.classifier.named_buffers():
        torch.testing.assert_close(dict(first.classifier.named_buffers())[name], value)


def test_pooled_inputs_share_the_mean_of_the_variance() -> None:
    """VR-PV: one mean over 12 training and 12 unlabelled inputs, labels of none of them."""
    method = VR(unlabelled="pooled", variance_weight=2.0, passes=3)
    networks, batch, feeds = small(method)
    before = step(method, networks, feeds)
    plain = step(VR(variance_weight=2.0, passes=3), networks, feeds)
    assert torch.equal(before.loss, plain.loss), "before their share of the budget"
    result = step(method, networks, feeds, LATE)
    assert feeds.asked[-1] == "unlabelled 12"
    own = variance(written_out(networks, batch.x, 3, shared=True))
    assert networks.sampler is not None
    # The generator stands where the training passes left it.
    _, others = networks.sampler.run(feeds.x_unlabelled[:12], 3)
    spread = torch.cat([own, variance(others)]).mean()
    expected = F.cross_entropy(result.logits, batch.y) + 2.0 * spread
    torch.testing.assert_close(result.loss, expected)


@placements
def test_only_unlabelled_inputs_leave_the_training_batch_its_cross_entropy(
    placement: DropoutPlacement,
) -> None:
    """VR-DSV; the training batch then needs one pass, that of ERM."""
    method = VR(unlabelled="only", variance_weight=2.0, passes=3)
    networks, batch, feeds = small(method, placement)
    for module in networks.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.momentum = 0.0  # two steps, which are to see the same statistics
    result = step(method, networks, feeds, LATE)
    plain = step(ERM(), networks, feeds)
    torch.testing.assert_close(result.logits, plain.logits)
    assert networks.sampler is not None
    _, others = networks.sampler.run(feeds.x_unlabelled[:12], 3)
    torch.testing.assert_close(result.loss, plain.loss + 2.0 * variance(others).mean())
    gradients = torch.autograd.grad(
        result.loss - F.cross_entropy(result.logits, batch.y),
        list(networks.classifier.parameters()),
    )
    assert any(g.abs().max() > 1e-6 for g in gradients), "the variance is differentiated"


def test_an_example_without_weight_counts_for_nothing() -> None:
    method = VR(passes=3)
    networks, batch, feeds = small(method)
    results = []
    for label in (0, 1):
        y = batch.y.clone()
        y[0] = label
        weight = torch.ones(12).double()
        weight[0] = 0.0
        torch.manual_seed(9)
        with mode(networks, dropout=True, statistics=False):
            changed = replace(batch, y=y, weight=weight)
            results.append(method.loss(networks, TASK, changed, feeds, CLOCK).loss)
    assert torch.equal(*results)
    samples = written_out(networks, batch.x, 3, shared=True)
    losses = F.cross_entropy(samples[0], batch.y, reduction="none") + variance(samples)
    torch.testing.assert_close(results[0], losses[1:].sum() / 12)


@pytest.mark.parametrize("prediction", ["single", "dropout_mean"])
@pytest.mark.parametrize("space", ["softmax", "logits"])
def test_extreme_logits_stay_finite(space: str, prediction: str) -> None:
    method = VR(variance_space=space, prediction=prediction)  # type: ignore[arg-type]
    networks, _, feeds = small(method)
    networks, feeds.x_train = networks.float(), feeds.x_train.float()
    with torch.no_grad():
        for p in networks.classifier.parameters():
            p.mul_(300)
    result = step(method, networks, feeds)
    assert result.logits.abs().max() > (1e4 if prediction == "single" else 10)
    result.loss.backward()
    assert result.loss.isfinite()
    for p in networks.classifier.parameters():
        assert p.grad is not None
        assert p.grad.isfinite().all()


def test_a_net_without_dropout_is_refused_unless_nothing_is_asked_of_it() -> None:
    recipe = Recipe(method=VR(), backbone="mlp", dropout=Dropout(rate=0.0))
    with pytest.raises(InputError, match="no dropout"):
        build_networks(recipe, TASK, torch.zeros(2, 4), None, torch.device("cpu"))
    assert not VR(variance_weight=0.0).needs_dropout
    assert VR(variance_weight=0.0, prediction="dropout_mean").needs_dropout


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"passes": 0}, "passes is 0.*at least 1"),
        ({"variance_weight": -1.0}, "variance_weight is -1.0.*negative"),
        ({"unlabelled_from": 1.0}, r"unlabelled_from is 1.0.*\[0, 1\)"),
        ({"unlabelled_from_epoch": -1}, "unlabelled_from_epoch is -1.*negative"),
        ({"unlabelled": "some"}, "unlabelled is 'some'.*none, pooled, only"),
        ({"unlabelled": "only", "variance_weight": 0.0}, "variance_weight is 0.0.*positive"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        VR(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "unlabelled", "words"),
    [
        (VR(unlabelled="pooled"), 0, "needs unlabelled inputs"),
        (VR(unlabelled="only", unlabelled_from_epoch=10), 5, "begins at step 100 of 100"),
    ],
)
def test_a_phase_that_would_never_start_is_an_error(
    method: VR, unlabelled: int, words: str
) -> None:
    plan = Plan(total=100, steps_per_epoch=10, meta_size=20, unlabelled_size=unlabelled)
    with pytest.raises(InputError, match=words):
        method.check(plan)
    VR().check(plan)


def test_unlabelled_inputs_train_end_to_end() -> None:
    data = Source(Part(*blobs()), unlabelled=Part(blobs(seed=9)[0] + 0.5))
    for how in ("pooled", "only"):
        model = fit("vr", data, unlabelled=how, unlabelled_from=0.5, passes=3)
        assert np.isfinite(model.predictions["tune"].logits).all()


def test_it_has_less_dropout_variance_than_erm_and_is_as_accurate() -> None:
    data = Source(Part(*blobs(spread=1.2)), tests={"test": Part(*blobs(600, seed=1, spread=1.2))})
    mean, accuracy = {}, {}
    for name, fields in (("erm", {}), ("vr", {"variance_weight": 10.0})):
        model = fit(name, data, epochs=8, dropout_rate=0.5, **fields)
        test = model.predictions["test"]
        mean[name] = model.uncertainty(test, "dropout_variance").mean()
        accuracy[name] = test.correct().mean()
    assert mean["vr"] < 0.5 * mean["erm"]
    assert accuracy["vr"] > accuracy["erm"] - 0.03

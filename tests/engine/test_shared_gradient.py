"""A look-ahead that is the training step itself, and alignments of some layers only."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import support.feeds
from revar.bilevel import (
    Losses,
    OneStep,
    Strategy,
    Taken,
    alignments,
    lookahead,
    value_and_gradient,
)
from revar.errors import InputError
from revar.feeds import DataFeeds
from revar.functional import Params, average, call, flat_state, mode, parameters
from revar.methods.revar import ReVaR
from revar.nets.base import Classifier, Dropout
from revar.nets.build import Backbone
from revar.nets.finetuning import freeze_trunk, upper_layers
from revar.nets.scorer import Evidence, FeatureScorer
from revar.optimisers import make_optimiser, make_outer
from revar.randomness import RandomState
from revar.recipe import Budget
from revar.stochastic import DropoutPasses, variance
from revar.totals import Totals
from revar.training import TrainingState, take_step
from revar.types import Batch, Networks
from support.feeds import CLOCK, TASK, FixedFeeds

CPU = torch.device("cpu")
STRATEGIES: tuple[Strategy, ...] = ("forward_mode", "finite_difference")


def problem(
    *, held_out: bool = False, passes: int = 1, rate: float = 0.5
) -> tuple[OneStep, Params]:
    """A net with dropout and batch norm, and its parameters; one pass has no variance."""
    torch.manual_seed(7)
    net = nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(rate), nn.Linear(8, 3)
    ).double()
    x, x_meta, x_other = torch.randn(3, 8, 5).double()
    y, y_meta, y_other = torch.randint(0, 3, (3, 8))

    def losses(params: Params) -> Tensor:
        with mode(net, dropout=True, statistics=False):
            return F.cross_entropy(call(net, params, x), y, reduction="none")

    def candidates(params: Params) -> Tensor:
        with mode(net, dropout=False, statistics=True):
            return F.cross_entropy(call(net, params, x_other), y_other, reduction="none")

    def meta_loss(params: Params) -> Tensor:
        logits, samples = DropoutPasses(net, shared_trunk=False).run(x_meta, passes, params)
        return F.cross_entropy(logits, y_meta) + variance(samples).mean()

    weights = torch.rand(8).double() + 0.5
    found = OneStep(losses=losses, weights=weights, lr=0.1, meta_loss=meta_loss)
    return replace(found, candidates=candidates if held_out else None), parameters(net)


def taken_from(step: OneStep, params: Params) -> Taken:
    """The gradient that the look-ahead would compute itself; the generators go on after it."""
    start, weights = RandomState.capture(CPU), step.weights
    assert weights is not None
    _, gradient = value_and_gradient(lambda at: average(weights * step.losses(at)), params)
    return Taken(gradient, start)


# --- alignments with a gradient that is known


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("held_out", [False, True], ids=["train", "held-out"])
def test_a_known_gradient_gives_the_usual_alignments(held_out: bool, strategy: Strategy) -> None:
    """With several passes too: in both ways the meta-loss draws after the look-ahead."""
    step, params = problem(held_out=held_out, passes=3)
    torch.manual_seed(5)
    expected = alignments(step, params, strategy)
    taken = taken_from(step, params)
    got = alignments(replace(step, weights=None, taken=taken), params, strategy)
    assert torch.equal(got.meta_loss, expected.meta_loss)
    assert torch.equal(got.values, expected.values)


@pytest.mark.parametrize("held_out", [False, True], ids=["train", "held-out"])
def test_the_strategies_agree_about_a_known_gradient(held_out: bool) -> None:
    step, params = problem(held_out=held_out)
    step = replace(step, taken=taken_from(step, params))
    forward, difference = (alignments(step, params, strategy).values for strategy in STRATEGIES)
    torch.testing.assert_close(forward, difference, rtol=1e-6, atol=1e-9)


def test_any_gradient_is_taken_for_what_it_is() -> None:
    """Also one that is not of these losses: that of an entropy term, say."""
    step, params = problem(held_out=True)
    gradient = {name: torch.randn_like(p) for name, p in params.items()}
    ahead = {name: p - step.lr * gradient[name] for name, p in params.items()}
    _, v = value_and_gradient(step.meta_loss, ahead)
    taken = Taken(gradient, RandomState.capture(CPU))
    got = alignments(replace(step, taken=taken), params).values
    expected = per_example(step.candidates or step.losses, params, v)
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


def test_the_masks_are_those_of_the_step() -> None:
    """A start from elsewhere aligns with other masks; what the caller drew since changes nothing
    but the meta-loss, and that has one pass."""
    step, params = problem()
    torch.manual_seed(5)
    taken = taken_from(step, params)
    first = alignments(replace(step, taken=taken), params).values
    torch.rand(100)
    assert torch.equal(alignments(replace(step, taken=taken), params).values, first)
    torch.manual_seed(6)
    other = replace(taken, start=RandomState.capture(CPU))
    moved = alignments(replace(step, taken=other), params).values
    assert (moved - first).norm() > 0.01 * first.norm()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_generators_go_on_after_the_meta_loss(strategy: Strategy) -> None:
    """They stand where its passes leave them; the alignment itself leaves no trace."""
    step, params = problem(passes=4)
    taken = taken_from(step, params)
    drawn = RandomState.capture(CPU)
    with torch.no_grad():
        step.meta_loss(params)
    expected = RandomState.capture(CPU)
    assert not drawn.equals(expected)
    drawn.restore()
    alignments(replace(step, taken=taken), params, strategy)
    assert expected.equals(RandomState.capture(CPU))


# --- some layers only


def per_example(
    losses: Losses, params: Params, v: Params, names: frozenset[str] | None = None
) -> Tensor:
    """``sum over names of <grad l_i, v>``, one backward pass per example."""
    at = {name: p.detach().requires_grad_() for name, p in params.items()}
    wanted = [name for name in at if names is None or name in names]
    found = []
    for loss in losses(at):
        gradients = torch.autograd.grad(
            loss, [at[n] for n in wanted], retain_graph=True, materialize_grads=True
        )
        found.append(sum((g * v[n]).sum() for n, g in zip(wanted, gradients, strict=True)))
    return torch.stack([torch.as_tensor(value) for value in found])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("held_out", [False, True], ids=["train", "held-out"])
@pytest.mark.parametrize("names", [{"4.weight", "4.bias"}, {"0.bias", "1.weight", "4.weight"}])
def test_alignments_of_some_parameters(names: set[str], held_out: bool, strategy: Strategy) -> None:
    """The look-ahead moves all of them, gradients are compared in these."""
    step, params = problem(held_out=held_out)
    aligned = frozenset(names)
    torch.manual_seed(5)
    got = alignments(replace(step, aligned=aligned), params, strategy)
    start = RandomState.capture(CPU)
    ahead = lookahead(step.losses, params, step.weights, step.lr)
    meta_loss, v = value_and_gradient(step.meta_loss, ahead)
    start.restore()
    expected = per_example(step.candidates or step.losses, params, v, aligned)
    torch.testing.assert_close(got.values, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(got.meta_loss, meta_loss)
    rest = per_example(step.candidates or step.losses, params, v, frozenset(params) - aligned)
    assert rest.norm() > 0.01 * expected.norm(), "nothing was left out"


@pytest.mark.parametrize("known", [False, True], ids=["", "known gradient"])
def test_all_names_are_the_same_as_none_given(known: bool) -> None:
    step, params = problem()
    torch.manual_seed(5)
    if known:
        step = replace(step, taken=taken_from(step, params))
    whole = alignments(step, params)
    named = alignments(replace(step, aligned=frozenset(params)), params)
    assert torch.equal(whole.values, named.values)
    assert torch.equal(whole.meta_loss, named.meta_loss)


def named(net: Classifier, *prefixes: str) -> set[str]:
    return {name for name, _ in net.named_parameters() if name.startswith(prefixes)}


@pytest.mark.parametrize(
    ("backbone", "shape", "below", "upper"),
    [
        ("linear", (4,), 0, ["head."]),
        ("mlp", (4,), 2, ["head.", "trunk.4.", "trunk.5."]),
        ("resnet20", (3, 16, 16), 10, ["head.", "trunk.8.", "trunk.9.", "trunk.10."]),
        ("resnet10t", (3, 32, 32), 5, ["net.fc.", "net.layer4.", "net.layer3."]),
    ],
)
def test_upper_layers_are_the_head_and_a_quarter_below_it(
    backbone: str, shape: tuple[int, ...], below: int, upper: list[str]
) -> None:
    if backbone == "resnet10t":
        pytest.importorskip("timm")
    net = Backbone(backbone, Dropout()).build(shape, 3)
    found = upper_layers(net)
    assert found == named(net, *upper)
    blocks = len({prefix for prefix in upper if not prefix.startswith(("head", "net.fc"))})
    # A norm of its own counts with the block before it: trunk.5 of the perceptron.
    assert blocks - (backbone == "mlp") == -(-below // 4)


def test_upper_layers_of_a_frozen_net_are_those_that_learn() -> None:
    net = Backbone("resnet20", Dropout()).build((3, 16, 16), 3)
    freeze_trunk(net)
    assert upper_layers(net) == {"head.1.weight", "head.1.bias"}


# --- a training step that shares its gradient


LR = 0.1
PLAIN = Budget(
    learning_rate=LR, momentum=0.0, weight_decay=0.0, gradient_clip=None, batch_size=12, epochs=10
)


def revar(**fields: Any) -> ReVaR:
    """Updates of g by the hypergradient as it is."""
    chosen: dict[str, Any] = {
        "scorer": "features", "update": "linear", "candidates": "train", "meta_batch": 16,
        "passes": 3, "interval": 10, "warmup": 0.0, "outer_optimiser": "sgd", "outer_momentum": 0.0,
        "outer_weight_decay": 0.0, "outer_learning_rate": 1.0, "shares_gradient": True,
    }  # fmt: skip
    return ReVaR(**{**chosen, **fields})


def small(method: ReVaR) -> tuple[Networks, Batch, FixedFeeds]:
    """In float64; g says something about its inputs, and batch norm has seen some."""
    networks, batch, feeds = support.feeds.small(method)
    assert networks.scorer is not None
    with torch.no_grad(), mode(networks.classifier, dropout=False, statistics=False):
        for p in networks.scorer.parameters():
            p.add_(0.3 * torch.randn_like(p))
        networks.classifier(feeds.x)
    return networks, batch, feeds


def stepped(
    method: ReVaR, networks: Networks, batch: Batch, feeds: FixedFeeds, step: int = 50
) -> tuple[Networks, RandomState]:
    """A copy of the networks after one training step from a fixed seed, and the generators."""
    moved = copy.deepcopy(networks)
    classifier, scorer = moved.classifier, moved.scorer
    assert scorer is not None
    state = TrainingState(
        moved,
        make_optimiser(PLAIN, list(classifier.parameters())),
        make_outer(method.outer, list(scorer.parameters())),
        cast(DataFeeds, feeds),
        CPU,
        Totals(CPU),
    )
    torch.manual_seed(11)
    take_step(state, method, TASK, PLAIN, batch, feeds, replace(CLOCK, step=step))
    return moved, RandomState.capture(CPU)


def by_hand(
    method: ReVaR, networks: Networks, batch: Batch, feeds: FixedFeeds
) -> tuple[Params, Params]:
    """The classifier after the step, and ``-(lr / n) sum_i s_i dw_i / dphi``, written out."""
    f, g = (net := copy.deepcopy(networks)).classifier, net.scorer
    assert isinstance(g, FeatureScorer)
    assert net.sampler is not None
    meta, held_out = feeds.meta(16), None
    if method.candidates != "train":
        meta, held_out = meta.part(slice(8)), meta.part(slice(8, 16))

    def weights(features: Tensor) -> Tensor:
        raw: Tensor = g(Evidence(batch.x, features.detach(), features)).logit.sigmoid()
        return raw / raw.mean()

    def training(params: Params) -> Tensor:
        torch.manual_seed(11)
        with mode(f, dropout=True, statistics=False):
            return F.cross_entropy(call(f, params, batch.x), batch.y, reduction="none")

    def deterministic(params: Params) -> Tensor:
        assert held_out is not None
        with mode(f, dropout=False, statistics=True):
            return F.cross_entropy(call(f, params, held_out.x), held_out.y, reduction="none")

    theta = parameters(f)
    torch.manual_seed(11)
    with torch.no_grad(), mode(f, dropout=True, statistics=False):
        # The pass of the step: it moves the running statistics, which the meta-loss then uses.
        features = f.forward_features(batch.x)
        f.forward_head(features)
        drawn = RandomState.capture(CPU)
    if held_out is None:
        # What is differentiated is what g will be asked about.
        with torch.no_grad(), mode(f, dropout=False, statistics=True):
            features = f.forward_features(batch.x)
    w = weights(features)
    _, gradient = value_and_gradient(lambda at: (w.detach() * training(at)).mean(), theta)
    after = {name: p - LR * gradient[name] for name, p in theta.items()}

    def meta_loss(params: Params) -> Tensor:
        drawn.restore()
        logits, samples = net.sampler.run(meta.x, method.passes, params)  # type: ignore[union-attr]
        return F.cross_entropy(logits, meta.y) + variance(samples).mean()

    _, v = value_and_gradient(meta_loss, after)
    if held_out is None:
        of_candidates, s = w, per_example(training, theta, v)
    else:
        with torch.no_grad(), mode(f, dropout=False, statistics=True):
            features = f.forward_features(held_out.x)
        of_candidates, s = weights(features), per_example(deterministic, theta, v)
    surrogate = -(LR / len(s)) * (s * of_candidates).sum()
    names = [name for name, _ in g.named_parameters()]
    return after, dict(
        zip(names, torch.autograd.grad(surrogate, list(g.parameters())), strict=True)
    )


@pytest.mark.parametrize("engine", STRATEGIES)
@pytest.mark.parametrize("candidates", ["train", "held_out"])
def test_the_update_is_the_hypergradient(candidates: str, engine: Strategy) -> None:
    method = revar(candidates=candidates, engine=engine)
    networks, batch, feeds = small(method)
    moved, _ = stepped(method, networks, batch, feeds)
    after, hypergradient = by_hand(method, networks, batch, feeds)
    rtol = 1e-9 if engine == "forward_mode" else 1e-6
    for name, p in moved.classifier.named_parameters():
        torch.testing.assert_close(p.detach(), after[name], rtol=1e-12, atol=1e-14)
    assert networks.scorer is not None
    assert moved.scorer is not None
    before = dict(networks.scorer.named_parameters())
    for name, p in moved.scorer.named_parameters():
        change = (p - before[name]).detach()
        size = float(hypergradient[name].abs().max())
        torch.testing.assert_close(change, -hypergradient[name], rtol=rtol, atol=rtol * size)
        assert size > 1e-6


@pytest.mark.parametrize("candidates", ["train", "held_out"])
def test_where_the_generators_stand_after_a_step(candidates: str) -> None:
    """After the training pass, as ever, and after the passes of the meta-loss; no other draws."""
    method = revar(candidates=candidates)
    networks, batch, feeds = small(method)
    ordinary = replace(method, shares_gradient=False)
    _, after = stepped(ordinary, networks, batch, feeds)
    _, between = stepped(method, networks, batch, feeds, step=51)
    assert after.equals(between), "a step without an outer one is as ever"
    assert networks.sampler is not None
    after.restore()
    with torch.no_grad():
        networks.sampler.run(feeds.x[: 16 if candidates == "train" else 8], method.passes)
    expected = RandomState.capture(CPU)
    assert not expected.equals(after)
    _, shared = stepped(method, networks, batch, feeds)
    assert shared.equals(expected)


def test_the_weights_of_a_step_are_those_before_the_update() -> None:
    """So the classifier takes the step that it takes when no update is due; else it does not."""
    method = revar(candidates="held_out")
    networks, batch, feeds = small(method)
    none_due, _ = stepped(method, networks, batch, feeds, step=51)
    shared, _ = stepped(method, networks, batch, feeds)
    updated_first, _ = stepped(replace(method, shares_gradient=False), networks, batch, feeds)

    def classifier(net: Networks) -> Tensor:
        return flat_state(net.classifier)

    assert torch.equal(classifier(shared), classifier(none_due))
    assert not torch.equal(classifier(shared), classifier(updated_first))


@pytest.mark.parametrize("fields", [{"shares_gradient": True}, {"aligned_layers": "upper"}])
def test_the_reference_engine_takes_every_step_whole(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="double_backward, which takes every step whole") as caught:
        ReVaR(engine="double_backward", **{"shares_gradient": False, **fields})
    assert next(iter(fields)) in str(caught.value)
    assert "\n" not in str(caught.value)

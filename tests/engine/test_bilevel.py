from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from revar.bilevel import (
    OneStep,
    Strategy,
    alignments,
    central_difference,
    directional_derivative,
    lookahead,
    losses_after,
    rounded,
)
from revar.functional import Params, call, mode, parameters
from revar.nets.base import Dropout, convolution_weights
from revar.nets.build import Backbone
from revar.nets.external import from_module
from revar.nets.finetuning import upper_layers
from revar.randomness import RandomState
from revar.stochastic import DropoutPasses, variance
from support.networks import NETWORKS, make

CPU = torch.device("cpu")


def problem_on(net: nn.Module, x: Tensor, *, held_out: bool = False, passes: int = 3) -> OneStep:
    """A training step in training mode and the paper's meta-loss after it."""
    y = torch.randint(0, 3, (len(x),))
    x_meta, y_meta = x.flip(0) + 0.1 * torch.randn_like(x), torch.randint(0, 3, (len(x),))
    x_other, y_other = x.roll(1, 0) * 1.1, torch.randint(0, 3, (len(x),))

    def losses(params: Params) -> Tensor:
        with mode(net, dropout=True, statistics=False):
            return F.cross_entropy(call(net, params, x), y, reduction="none")

    def candidates(params: Params) -> Tensor:
        with mode(net, dropout=False, statistics=True):
            return F.cross_entropy(call(net, params, x_other), y_other, reduction="none")

    def meta_loss(params: Params) -> Tensor:
        sampler = DropoutPasses(net, shared_trunk=False)
        logits, samples = sampler.run(x_meta, passes, params)
        return F.cross_entropy(logits, y_meta) + variance(samples).mean()

    return OneStep(
        losses=losses,
        weights=torch.rand(len(x), dtype=x.dtype) + 0.5,
        lr=0.1,
        meta_loss=meta_loss,
        candidates=candidates if held_out else None,
    )


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("held_out", [False, True], ids=["train", "held-out"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_three_strategies_agree(name: str, held_out: bool) -> None:
    net, x = make(name)
    problem, params = problem_on(net, x, held_out=held_out), parameters(net)
    reference = alignments(problem, params, "double_backward")
    forward = alignments(problem, params, "forward_mode")
    difference = alignments(problem, params, "finite_difference")
    assert relative(forward.values, reference.values) < 1e-12
    # A difference may straddle a kink of ReLU or max-pooling; the derivatives may not.
    assert relative(difference.values, reference.values) < (1e-3 if name == "timm_resnet" else 1e-6)
    torch.testing.assert_close(forward.meta_loss, reference.meta_loss, rtol=1e-12, atol=0)


def test_the_difference_converges_quadratically() -> None:
    net, x = make("convolution")
    problem, params = problem_on(net, x), parameters(net)
    torch.manual_seed(0)
    direction = {name: torch.randn_like(p) for name, p in params.items()}
    torch.manual_seed(1)
    exact = directional_derivative(problem.losses, params, direction)
    errors = []
    for radius in (1e-2, 1e-3):
        torch.manual_seed(1)
        errors.append(
            (central_difference(problem.losses, params, direction, radius) - exact).norm().item()
        )
    assert errors[1] < errors[0] / 50


def test_alignment_is_the_derivative_of_the_meta_loss_by_the_weight() -> None:
    """d meta / d w_i = -(lr / n) alignment_i, against a numerical derivative over w."""
    net, x = make("convolution")
    problem, params = problem_on(net, x), parameters(net)
    got = alignments(problem, params).values * (-problem.lr / len(x))
    assert problem.weights is not None
    for i in range(len(x)):
        values = []
        for sign in (+1, -1):
            weights = problem.weights.clone()
            weights[i] += sign * 1e-5
            values.append(alignments(replace(problem, weights=weights), params).meta_loss)
        torch.testing.assert_close(got[i], (values[0] - values[1]) / 2e-5, rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("strategy", ["forward_mode", "double_backward", "finite_difference"])
def test_no_weights_are_weights_of_zero(strategy: Strategy) -> None:
    """The look-ahead is left out; without randomness in the meta-loss nothing else differs."""
    net, x = make("convolution")
    problem, params = problem_on(net, x, passes=1), parameters(net)  # one pass has no variance
    nothing = alignments(replace(problem, weights=None), params, strategy)
    zero = alignments(replace(problem, weights=torch.zeros(len(x)).double()), params, strategy)
    torch.testing.assert_close(nothing.values, zero.values, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(nothing.meta_loss, zero.meta_loss)


def test_the_strategies_agree_without_weights() -> None:
    net, x = make("mlp")
    problem, params = replace(problem_on(net, x), weights=None), parameters(net)
    torch.manual_seed(3)
    reference = alignments(problem, params, "double_backward")
    assert relative(alignments(problem, params).values, reference.values) < 1e-12
    difference = alignments(problem, params, "finite_difference")
    assert relative(difference.values, reference.values) < 1e-6


@pytest.mark.parametrize("held_out", [False, True], ids=["train", "held-out"])
def test_losses_after_the_look_ahead(held_out: bool) -> None:
    """Under the masks of the step, which the caller's generators still hold afterwards."""
    net, x = make("convolution")
    problem, params = problem_on(net, x, held_out=held_out), parameters(net)
    torch.manual_seed(5)
    before = RandomState.capture(CPU)
    got = losses_after(problem, params)
    assert before.equals(RandomState.capture(CPU))
    ahead = lookahead(problem.losses, params, problem.weights, problem.lr)
    before.restore()
    expected = (problem.candidates or problem.losses)(ahead)
    assert torch.equal(got, expected)
    before.restore()
    still = losses_after(replace(problem, weights=None, candidates=None), params)
    before.restore()
    assert torch.equal(still, problem.losses(params))


def test_closed_form_of_a_linear_model() -> None:
    """f(x) = a'x, squared error: l_i' = 2 (a'x_i - y_i) x_i, all by hand."""
    torch.manual_seed(0)
    x, y = torch.randn(6, 4).double(), torch.randn(6).double()
    x_meta, y_meta = torch.randn(5, 4).double(), torch.randn(5).double()
    a, w, lr = torch.randn(4).double(), torch.rand(6).double(), 0.05
    problem = OneStep(
        losses=lambda p: (x @ p["a"] - y).square(),
        weights=w,
        lr=lr,
        meta_loss=lambda p: (x_meta @ p["a"] - y_meta).square().mean(),
    )
    residual = x @ a - y
    ahead = a - lr * (2 * (w * residual) @ x) / 6
    v = 2 * ((x_meta @ ahead - y_meta) @ x_meta) / 5
    expected = 2 * residual * (x @ v)
    torch.testing.assert_close(lookahead(problem.losses, {"a": a}, w, lr)["a"], ahead)
    for strategy in ("forward_mode", "double_backward", "finite_difference"):
        got = alignments(problem, {"a": a}, strategy)
        torch.testing.assert_close(got.values, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("strategy", ["forward_mode", "double_backward", "finite_difference"])
def test_nothing_of_the_callers_is_touched(strategy: Strategy) -> None:
    net, x = make("convolution")
    net.train()
    net(x).sum().backward()
    gradients = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    state = {name: value.clone() for name, value in net.state_dict().items()}
    flags = {name: m.training for name, m in net.named_modules()}
    problem = problem_on(net, x)
    random = RandomState.capture(CPU)
    alignments(problem, parameters(net), strategy)

    assert random.equals(RandomState.capture(CPU))
    assert gradients.keys() == {n for n, p in net.named_parameters() if p.grad is not None}
    for name, p in net.named_parameters():
        assert p.grad is not None
        assert torch.equal(p.grad, gradients[name])
    for name, value in net.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert flags == {name: m.training for name, m in net.named_modules()}


def test_dropout_masks_are_replayed() -> None:
    """With other masks in the alignment the answer would differ; with p = 1/2 by far."""
    net, x = make("mlp")
    problem, params = problem_on(net, x), parameters(net)
    first = alignments(problem, params).values
    again = alignments(problem, params).values
    assert torch.equal(first, again)
    torch.manual_seed(99)
    other = alignments(problem, params).values
    assert relative(other, first) > 1e-2


def test_the_lookahead_uses_the_masks_of_the_step_to_come() -> None:
    net, x = make("mlp")
    problem, params = problem_on(net, x), parameters(net)
    seen: list[Tensor] = []

    def watched(at: Params) -> Tensor:
        losses = problem.losses(at)
        seen.append(losses.detach())
        return losses

    alignments(replace(problem, losses=watched), params)
    the_step = problem.losses(params)
    assert torch.equal(seen[0], the_step)


def test_a_sample_that_agrees_with_the_meta_set_is_aligned_with_it() -> None:
    """The sign: a training point equal to a meta point helps, the same with a wrong label harms."""
    torch.manual_seed(0)
    x = torch.randn(1, 4).double().repeat(2, 1)
    y = torch.tensor([0, 1])
    params = {"weight": 0.1 * torch.randn(2, 4).double()}
    problem = OneStep(
        losses=lambda p: F.cross_entropy(x @ p["weight"].T, y, reduction="none"),
        weights=torch.ones(2).double(),
        lr=0.1,
        meta_loss=lambda p: F.cross_entropy(x[:1] @ p["weight"].T, y[:1]),
    )
    good, bad = alignments(problem, params).values
    assert good > 0 > bad


@pytest.mark.parametrize("held_out", [False, True], ids=["train", "held-out"])
@pytest.mark.parametrize("name", ["convolution", "attention", "timm_resnet"])
def test_under_autocast_the_alignments_stay_close(name: str, held_out: bool) -> None:
    """bfloat16 moves the look-ahead and the meta-gradient a little, and breaks nothing."""
    net, x = make(name)
    net, x = net.float(), x.float()
    problem, params = problem_on(net, x, held_out=held_out), parameters(net)
    exact = alignments(problem, params).values
    with torch.autocast("cpu", torch.bfloat16):
        low = alignments(problem, params).values
    assert low.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(low, exact, dim=0) > 0.99


class Casts(TorchDispatchMode):
    """Counts roundings to half precision, one tensor at a time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count, and go on."""
        self.count += "_to_copy" in func.name() and (kwargs or {}).get("dtype") == torch.bfloat16
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("aligned", [False, True], ids=["all layers", "some layers"])
@pytest.mark.parametrize("held_out", [False, True], ids=["train", "held-out"])
def test_rounding_weights_together_changes_no_bit_and_takes_fewer_kernels(
    held_out: bool, aligned: bool
) -> None:
    net = Backbone("resnet20", Dropout(rate=0.2)).build((3, 8, 8), 3)
    torch.manual_seed(0)
    alone = problem_on(net, torch.randn(6, 3, 8, 8), held_out=held_out)
    if aligned:
        alone = replace(alone, aligned=upper_layers(net))
    together = replace(alone, halved=convolution_weights(net))
    assert len(together.halved) == 19
    found, counts = [], []
    for problem in (alone, together):
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16), Casts() as casts:
            found.append(alignments(problem, parameters(net)))
        counts.append(casts.count)
    assert torch.equal(found[0].values, found[1].values)
    assert torch.equal(found[0].meta_loss, found[1].meta_loss)
    assert found[0].values.abs().sum() > 0
    # Of values and tangents, in a backward and in a forward-mode pass.
    assert counts[0] - counts[1] >= 2 * 19


def test_without_autocast_nothing_is_rounded() -> None:
    net = Backbone("resnet20", Dropout(rate=0.0)).build((3, 8, 8), 3)
    params, names = parameters(net), convolution_weights(net)
    assert rounded(params, names) is params
    with torch.autocast("cpu", torch.bfloat16):
        low = rounded(params, names)
        assert rounded(params, frozenset()) is params
        assert rounded(low, names) is low
    assert {name for name, p in low.items() if p.dtype == torch.bfloat16} == names


class Precise(nn.Module):
    """A net that computes a convolution precisely, whatever it is trained in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Autocast is off for a while."""
        with torch.autocast(x.device.type, enabled=False):
            found = self.layer(x.float())
        logits: Tensor = self.last(found.mean((2, 3)))
        return logits


def test_weights_of_a_net_of_your_own_are_left_to_it() -> None:
    x = torch.randn(8, 3, 8, 8)
    net = from_module(Precise(), x, 3, Dropout(rate=0.1))
    assert convolution_weights(net) == frozenset()
    problem = replace(problem_on(net, x), halved=convolution_weights(net))
    with torch.autocast("cpu", torch.bfloat16):
        assert alignments(problem, parameters(net)).values.isfinite().all()

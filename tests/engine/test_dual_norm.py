"""Batch norm of the meta step against torch's own, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor, nn

from revar import dual_norm
from revar.bilevel import Losses, directional_derivative, value_and_gradient
from revar.dual_norm import MetaBatchNorm, batch_norm, usual_norm
from revar.functional import Params, at_least_single, call, mode, parameters
from revar.nets.base import Dropout
from revar.nets.build import Backbone
from support.gpu import needs_gpu

Norm = Callable[..., Tensor]
NAMES = ("x", "weight", "bias")
SUBSETS = list(chain.from_iterable(combinations(NAMES, n) for n in (1, 2, 3)))
SHAPES = [(9, 4), (5, 4, 7), (6, 4, 3, 5)]
EPS = 1e-3

by_the = pytest.mark.parametrize("training", [True, False], ids=["batch", "statistics"])


def inputs(shape: tuple[int, ...], *, zero: bool = False) -> tuple[Params, Params, Params]:
    """x, weight and bias, a tangent of each, and running statistics; all in float64."""
    torch.manual_seed(5)
    channels = shape[1]

    def draw() -> Params:
        return {
            "x": torch.randn(shape).double(),
            "weight": torch.randn(channels).double(),
            "bias": torch.randn(channels).double(),
        }

    values, tangents = draw(), draw()
    values["x"] = 2 * values["x"] + 1
    if zero:
        values["weight"][: channels // 2] = 0
    statistics = {"mean": torch.randn(channels).double(), "var": torch.rand(channels).double() + 1}
    return values, tangents, statistics


def dual(
    norm: Norm, values: Params, tangents: Params, statistics: Params, *, training: bool
) -> tuple[Tensor, Tensor]:
    """The value, and its tangent for tangents of some of x, weight and bias."""
    with forward_ad.dual_level():
        at = {
            name: forward_ad.make_dual(value, tangents[name]) if name in tangents else value
            for name, value in values.items()
        }
        y = norm(
            at["x"], statistics["mean"], statistics["var"], at.get("weight"), at.get("bias"),
            training, 0.0, EPS,
        )  # fmt: skip
        primal, tangent = forward_ad.unpack_dual(y)
        assert tangent is not None
        return primal.clone(), tangent.clone()


@by_the
@pytest.mark.parametrize("shape", SHAPES, ids=["2d", "3d", "4d"])
@pytest.mark.parametrize("zero", [False, True], ids=["", "some weights zero"])
def test_value_and_tangents_are_those_of_torch(
    shape: tuple[int, ...], training: bool, zero: bool
) -> None:
    values, tangents, statistics = inputs(shape, zero=zero)
    for names in SUBSETS:
        moved = {name: tangents[name] for name in names}
        expected = dual(F.batch_norm, values, moved, statistics, training=training)
        got = dual(batch_norm, values, moved, statistics, training=training)
        for mine, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11, msg=str(names))


@by_the
def test_without_weight_and_bias(training: bool) -> None:
    values, tangents, statistics = inputs(SHAPES[2])
    x, moved = {"x": values["x"]}, {"x": tangents["x"]}
    expected = dual(F.batch_norm, x, moved, statistics, training=training)
    got = dual(batch_norm, x, moved, statistics, training=training)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


def test_the_tangent_by_hand() -> None:
    """x = (1, 3): h = (-1, 1). A shift of both changes nothing, and so does their spread."""
    x = torch.tensor([[1.0], [3.0]]).double()
    for moved in ([[1.0], [1.0]], [[-1.0], [1.0]]):
        with forward_ad.dual_level():
            y = batch_norm(
                forward_ad.make_dual(x, torch.tensor(moved).double()), None, None, eps=0.0
            )
            primal, tangent = forward_ad.unpack_dual(y)
            assert primal.flatten().tolist() == pytest.approx([-1.0, 1.0])
            assert tangent is not None
            assert tangent.abs().max() < 1e-12


@pytest.mark.parametrize("shape", SHAPES, ids=["2d", "3d", "4d"])
def test_the_gradient_with_fixed_statistics(shape: tuple[int, ...]) -> None:
    values, tangents, statistics = inputs(shape, zero=True)
    mean, var = statistics["mean"], statistics["var"]
    found = []
    for norm in (F.batch_norm, batch_norm):
        leaves = [values[name].clone().requires_grad_() for name in NAMES]
        x, weight, bias = leaves
        y = norm(x, mean, var, weight, bias, False, 0.0, EPS)
        found.append(torch.autograd.grad((y * tangents["x"]).sum(), leaves))
    for theirs, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


def test_both_modes_of_fixed_statistics_against_differences() -> None:
    values, _, statistics = inputs((3, 2, 2, 2))
    leaves = tuple(values[name].requires_grad_() for name in NAMES)

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return batch_norm(x, statistics["mean"], statistics["var"], weight, bias, eps=EPS)

    assert torch.autograd.gradcheck(norm, leaves, check_forward_ad=True)


def test_by_the_batch_there_is_no_gradient_rather_than_a_wrong_one() -> None:
    x = torch.randn(4, 2, requires_grad=True)
    with pytest.raises(NotImplementedError):
        batch_norm(x, None, None).sum().backward()


@by_the
def test_running_statistics_stay_as_they_are(training: bool) -> None:
    values, _, statistics = inputs(SHAPES[2])
    before = {name: value.clone() for name, value in statistics.items()}
    batch_norm(
        values["x"], statistics["mean"], statistics["var"], values["weight"], values["bias"],
        training, 0.5,
    )  # fmt: skip
    for name, value in statistics.items():
        assert torch.equal(value, before[name])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls that reached batch norm of the meta step."""
    seen: list[str] = []

    def spy(*args: Any, **kwargs: Any) -> Tensor:
        seen.append("ours")
        return batch_norm(*args, **kwargs)

    monkeypatch.setattr(dual_norm, "batch_norm", spy)
    return seen


@pytest.mark.parametrize(
    ("by_batch", "training", "tracked", "replaced"),
    [
        (True, True, True, True),
        (True, True, False, True),
        (True, False, True, True),
        (False, True, True, False),
        (False, True, False, False),
        # Such a layer has no statistics, so it goes by the batch in evaluation too.
        (False, False, False, False),
        (False, False, True, True),
    ],
)
def test_which_batch_norm_is_replaced(
    by_batch: bool, training: bool, tracked: bool, replaced: bool, calls: list[str]
) -> None:
    layer = nn.BatchNorm2d(4, track_running_stats=tracked).double().train(training)
    x = inputs(SHAPES[2])[0]["x"]
    twin = nn.BatchNorm2d(4, track_running_stats=tracked).double().train(training)
    expected = twin(x)
    with torch.no_grad(), MetaBatchNorm(by_batch=by_batch):
        got = layer(x)
    assert calls == ["ours"] * replaced
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)
    if tracked:
        moved = not torch.equal(layer.running_mean, torch.zeros(4).double())  # type: ignore[arg-type]
        assert moved == (training and not replaced)


def test_arguments_may_come_by_keyword(calls: list[str]) -> None:
    values, _, statistics = inputs(SHAPES[0])
    by_name: dict[str, Any] = {
        "running_mean": statistics["mean"], "running_var": statistics["var"],
    }  # fmt: skip
    expected = F.batch_norm(values["x"], weight=values["weight"], **by_name)
    with MetaBatchNorm(by_batch=False):
        torch.testing.assert_close(
            F.batch_norm(input=values["x"], weight=values["weight"], **by_name), expected
        )
        assert calls == ["ours"]
        F.batch_norm(values["x"], training=True, **by_name)
    assert calls == ["ours"]


def test_everything_else_is_itself(calls: list[str]) -> None:
    x = torch.randn(4, 6, 5, 5)
    layers = [
        nn.GroupNorm(2, 6),
        nn.InstanceNorm2d(6, track_running_stats=True).eval(),
        nn.LayerNorm([6, 5, 5]),
        nn.Conv2d(6, 3, 3),
        nn.Dropout(0.5),
    ]
    for layer in layers:
        torch.manual_seed(0)
        expected = layer(x)
        torch.manual_seed(0)
        with MetaBatchNorm(by_batch=True):
            assert torch.equal(layer(x), expected)
    assert calls == []


def test_a_pause_ends_with_its_block(calls: list[str]) -> None:
    layer, x = nn.BatchNorm1d(4).eval(), torch.randn(3, 4)
    with MetaBatchNorm(by_batch=True):
        with usual_norm():
            with usual_norm():
                layer(x)
            layer(x)
        assert calls == []
        with pytest.raises(KeyError), usual_norm():
            raise KeyError
        layer(x)
    assert calls == ["ours"]
    layer(x)
    assert calls == ["ours"]


def residual(
    device: torch.device, dtype: torch.dtype, *, training: bool
) -> tuple[Losses, Params, Params]:
    """Losses of a residual net, its parameters, and a gradient to differentiate along.

    Without dropout on a GPU, which draws other masks in half precision than in single.
    """
    torch.manual_seed(3)
    net = Backbone("resnet20", Dropout(rate=0.3 if device.type == "cpu" else 0)).build((3, 8, 8), 5)
    x, y = torch.randn(32, 3, 8, 8).to(device, dtype), (torch.arange(32) % 5).to(device)
    net.to(device, dtype)
    with torch.no_grad(), mode(net, dropout=False, statistics=False):
        # So that running statistics are those of such inputs.
        for _ in range(20):
            net(x)

    def losses(params: Params) -> Tensor:
        torch.manual_seed(1)
        with mode(net, dropout=training, statistics=not training):
            logits = at_least_single(call(net, params, x))
            return F.cross_entropy(logits, y, reduction="none")

    params = parameters(net)
    _, direction = value_and_gradient(lambda at: losses(at).mean(), params)
    return losses, params, direction


def agreement(device: torch.device, *, training: bool) -> float:
    """Correlation of directional derivatives in half and in single precision."""
    losses, params, direction = residual(device, torch.float32, training=training)
    found = []
    for low in (False, True):
        with torch.autocast(device.type, torch.bfloat16, enabled=low):
            found.append(directional_derivative(losses, params, direction))
    assert found[1].dtype == torch.float32
    assert not torch.equal(*found), "both were taken in the same precision"
    return float(torch.corrcoef(torch.stack(found))[0, 1])


@by_the
def test_half_precision_keeps_the_directional_derivative(training: bool) -> None:
    assert agreement(torch.device("cpu"), training=training) > 0.98


@by_the
def test_the_derivative_of_a_residual_net_is_that_of_torchs_own_rules(training: bool) -> None:
    losses, params, direction = residual(torch.device("cpu"), torch.float64, training=training)
    got = directional_derivative(losses, params, direction)
    with usual_norm():
        expected = directional_derivative(losses, params, direction)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    assert not torch.equal(got, expected), "both took the same rules"


@pytest.mark.parametrize("zero", [False, True], ids=["any weight", "weights of zero"])
def test_tangents_of_weight_and_bias_go_into_the_sums(zero: bool) -> None:
    """What the kernel of a GPU then computes, in its own words, is the tangent by torch's rule."""
    values, tangents, statistics = inputs((6, 4, 3, 5), zero=zero)
    x, t, weight = values["x"], tangents["x"], values["weight"]
    over, n = (0, 2, 3), x.numel() // x.shape[1]
    mean, inverse = x.mean(over), (x.var(over, unbiased=False) + EPS).rsqrt()

    def wide(by_channel: Tensor) -> Tensor:
        return by_channel.view(1, -1, 1, 1)

    a, b = t.sum(over), (t * (x - wide(mean))).sum(over)
    safe, a, b = dual_norm.moved_sums(
        a, b, weight, inverse, tangents["weight"], tangents["bias"], n
    )
    centred = x - wide(mean)
    moved = t - wide(a) / n - centred * wide(inverse.square() * b) / n
    found = moved * wide(inverse * safe)
    _, expected = dual(F.batch_norm, values, tangents, statistics, training=True)
    # Where a weight is zero, x moves by a millionth of what it moves by elsewhere.
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-5 if zero else 1e-9)


@needs_gpu
@by_the
@pytest.mark.parametrize("zero", [False, True], ids=["", "some weights zero"])
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-4), (torch.bfloat16, 3e-2)], ids=["single", "half"]
)
def test_on_a_gpu(
    training: bool, zero: bool, last: bool, dtype: torch.dtype, tolerance: float
) -> None:
    """Other kernels there; largest error against the largest value, in double precision."""
    layout = torch.channels_last if last else torch.contiguous_format
    values, tangents, statistics = inputs((6, 8, 5, 7), zero=zero)
    for part in (values, tangents):
        part["x"] = part["x"].to(dtype).double()

    def there(part: Params) -> Params:
        moved = {name: value.to("cuda", torch.float32) for name, value in part.items()}
        if "x" in moved:
            moved["x"] = moved["x"].to(dtype, memory_format=layout)
        return moved

    def check(got: tuple[Tensor, ...], expected: tuple[Tensor, ...], what: object) -> None:
        for mine, theirs in zip(got, expected, strict=True):
            error = (mine.double().cpu() - theirs).abs().max() / theirs.abs().max()
            assert error < tolerance, what

    for names in SUBSETS:
        moved = {name: tangents[name] for name in names}
        expected = dual(F.batch_norm, values, moved, statistics, training=training)
        got = dual(batch_norm, there(values), there(moved), there(statistics), training=training)
        check(got, expected, names)
    if training:
        return

    def gradient(norm: Norm, at: Params, fixed: Params, towards: Tensor) -> tuple[Tensor, ...]:
        leaves = [at[name].detach().requires_grad_() for name in NAMES]
        y = norm(leaves[0], fixed["mean"], fixed["var"], *leaves[1:], False, 0.0, EPS)
        return torch.autograd.grad((y.to(towards.dtype) * towards).sum(), leaves)

    theirs = gradient(F.batch_norm, values, statistics, tangents["x"])
    towards = tangents["x"].to("cuda", torch.float32)
    check(gradient(batch_norm, there(values), there(statistics), towards), theirs, "gradient")


@needs_gpu
@by_the
def test_half_precision_keeps_the_directional_derivative_on_a_gpu(training: bool) -> None:
    assert agreement(torch.device("cuda"), training=training) > 0.98

"""Tangents by the graph that a pass left: the same bits as a forward-mode pass, or no trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from revar.bilevel import directional_derivative
from revar.functional import Params, call, keep_statistics, mode, parameters, trainable
from revar.nets.base import Dropout
from revar.nets.build import Backbone
from revar.randomness import preserved
from revar.retraced import traced
from revar.types import Batch, Regression, Task

CPU = torch.device("cpu")


def net_of(*, rate: float = 0.3, affine: bool = True, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(6, 16, bias=bias),
        nn.BatchNorm1d(16, affine=affine),
        nn.ReLU(),
        nn.Dropout(rate),
        nn.Linear(16, 16, bias=bias),
        nn.ReLU(inplace=True),
        nn.Dropout(rate),
        nn.Linear(16, 4),
    )


def directions(net: nn.Module) -> Params:
    torch.manual_seed(1)
    return {name: torch.randn_like(p) for name, p in parameters(net).items()}


def by_forward_mode(net: nn.Module, x: Tensor, direction: Params) -> Tensor:
    """``<grad z_ij, direction>`` of outputs, by a pass of its own."""
    at = {name: p for name, p in parameters(net).items() if name in direction}
    return directional_derivative(lambda params: call(net, params, x), at, direction)


def both(net: nn.Module, x: Tensor, direction: Params) -> tuple[Tensor, Tensor]:
    """By the graph, and by forward mode; with the same masks."""
    with mode(net, dropout=True, statistics=False):
        with preserved(CPU):
            expected = by_forward_mode(net, x, direction)
        output = net(x)
        trace = traced(output, trainable(net))
    assert trace is not None
    output.square().mean().backward()  # which frees what the graph keeps
    tangent = trace.tangent(direction)
    return torch.zeros_like(expected) if tangent is None else tangent, expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("affine", [False, True], ids=["no affine", "affine"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_the_same_bits(dtype: torch.dtype, affine: bool, bias: bool) -> None:
    net = net_of(affine=affine, bias=bias).to(dtype)
    x = torch.randn(12, 6, dtype=dtype)
    got, expected = both(net, x, directions(net))
    assert expected.abs().max() > 0.1
    assert torch.equal(got, expected)


def test_the_same_bits_with_statistics_that_are_kept() -> None:
    net = net_of()
    keep_statistics(net)
    got, expected = both(net, torch.randn(12, 6), directions(net))
    assert torch.equal(got, expected)


@pytest.mark.parametrize(
    "left_out", [{"1.weight"}, {"1.bias"}, {"2.weight"}, {"8.bias"}, {"1.weight", "2.bias"}]
)
@pytest.mark.parametrize("frozen", [False, True], ids=["aligned", "frozen"])
def test_some_parameters_stand_still(left_out: set[str], frozen: bool) -> None:
    net = net_of()
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(not frozen or name not in left_out)
    direction = {n: d for n, d in directions(net).items() if n not in left_out}
    got, expected = both(net, torch.randn(12, 6), direction)
    assert torch.equal(got, expected)


def test_only_a_bias_moves() -> None:
    net = net_of()
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name in ("1.bias", "8.bias"))
    got, expected = both(net, torch.randn(12, 6), directions(net))
    assert torch.equal(got, expected)


def test_nothing_moves() -> None:
    net = net_of()
    output = net(torch.randn(12, 6))
    trace = traced(output, trainable(net))
    assert trace is not None
    assert trace.tangent({}) is None


def test_tied_parameters_and_a_module_used_twice() -> None:
    torch.manual_seed(0)
    layer, norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
    net = nn.Sequential(layer, norm, nn.ReLU(), layer, norm, nn.Linear(6, 6))
    net[-1].weight = layer.weight
    got, expected = both(net, torch.randn(12, 6), directions(net))
    assert torch.equal(got, expected)


def test_a_product_of_two_that_move() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            gated: Tensor = self.a(x) * self.b(x)
            return gated

    net = Gate()
    got, expected = both(net, torch.randn(12, 6), directions(net))
    torch.testing.assert_close(got, expected)


def test_it_is_what_was_computed_that_counts() -> None:
    """A layer that is swapped or hooked between two steps is in the graph of the second."""
    net = net_of()
    both(net, torch.randn(12, 6), directions(net))
    net[5] = nn.Linear(16, 16)
    net[3].register_forward_hook(lambda _, __, output: output * 2)
    got, expected = both(net, torch.randn(12, 6), directions(net))
    assert torch.equal(got, expected)


class Somebodys(nn.Module):
    """Does something in the middle of a small net."""

    def __init__(self, does: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.does = nn.Linear(6, 6), nn.Linear(6, 4), does

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.last(self.does(self.first(x)))
        return output


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return 2 * gradient


@pytest.mark.parametrize(
    "does",
    [
        torch.tanh,
        lambda x: torch.cat([x[:, :3], x[:, 3:]], 1),
        lambda x: x.chunk(2, 1)[1].repeat(1, 2),
        lambda x: x.half().float(),
        lambda x: torch.addmm(x, x, x.new_ones(6, 6), alpha=2),
        Doubled.apply,
        lambda x: checkpoint(F.relu, x, use_reentrant=False),
    ],
    ids=["tanh", "cat", "second output", "half", "alpha", "own rule", "computed again"],
)
def test_what_cannot_be_followed_has_no_trace(does: Callable[[Tensor], Tensor]) -> None:
    net = Somebodys(does)
    output = net(torch.randn(12, 6))
    assert traced(output, trainable(net)) is None
    output.sum().backward()


def test_a_deep_net_has_no_trace() -> None:
    layers = [layer for _ in range(300) for layer in (nn.Linear(2, 2), nn.ReLU())]
    net = nn.Sequential(*layers)
    assert traced(net(torch.randn(3, 2)), trainable(net)) is None


def test_without_a_graph_there_is_no_trace() -> None:
    net = net_of()
    with torch.no_grad():
        assert traced(net(torch.randn(3, 6)), trainable(net)) is None


@pytest.mark.parametrize("name", ["mlp", "perceptron", "linear"])
@pytest.mark.parametrize("placement", ["head", "everywhere"])
def test_our_nets_for_tables_have_one(name: str, placement: str) -> None:
    dropout = Dropout(rate=0.3, placement=placement)  # type: ignore[arg-type]
    net = Backbone(name, dropout).build((6,), 4)
    got, expected = both(net, torch.randn(12, 6), directions(net))
    assert torch.equal(got, expected)


# --- from logits to losses


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_of_losses(weighted: bool) -> None:
    torch.manual_seed(0)
    logits, tangent = 5 * torch.randn(2, 30, 7)
    y = torch.randint(0, 7, (30,))
    task = Task(n_classes=7, input_shape=(1,), class_weights=(1.0, 2.0, 3.0, 0.5, 1, 1, 1))
    batch = Batch(logits, y, y, torch.rand(30))
    if not weighted:
        task, batch = Task(n_classes=7, input_shape=(1,)), Batch(logits, y, y)
    got = task.slopes(logits, tangent, batch)
    expected = directional_derivative(
        lambda at: task.losses(at["z"], batch), {"z": logits}, {"z": tangent}
    )
    assert got is not None
    assert torch.equal(got, expected)


def test_other_losses_have_other_slopes() -> None:
    task = Regression(input_shape=(1,))
    x = torch.randn(5, 1)
    assert task.slopes(x, x, Batch(x, x[:, 0], x[:, 0])) is None

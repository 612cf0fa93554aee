"""Tangents by the graph that a pass left: the same bits as a forward-mode pass, or no trace."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from revar.bilevel import directional_derivative
from revar.functional import Params, call, keep_statistics, mode, parameters, trainable
from revar.in_parts import in_parts
from revar.nets.base import Dropout
from revar.nets.build import Backbone
from revar.nets.finetuning import upper_layers
from revar.randomness import preserved
from revar.recomputed import recomputed
from revar.retraced import traced
from revar.tangent_rules import RULES
from revar.types import Batch, Regression, Task
from support.gpu import GPU, needs_gpu
from support.operations import Operations


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
        with preserved(x.device):
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


class Pair(nn.Module):
    """Two layers, and something of both."""

    def __init__(self, of: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.of = nn.Linear(6, 6), nn.Linear(6, 6), of

    def forward(self, x: Tensor) -> Tensor:
        """[n, 6] to whatever that is."""
        return self.of(self.a(x), self.b(x))


def test_a_product_of_two_that_move() -> None:
    net = Pair(torch.mul)
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
        torch.erf,
        lambda x: torch.cat([x.new_ones(12, 2), x[:, 1:3], x.new_ones(12, 2)], 1),
        lambda x: x.chunk(2, 1)[1].repeat(1, 2),
        lambda x: torch.addmm(x, x, x.new_ones(6, 6), alpha=2),
        lambda x: x.mean(1, keepdim=True).repeat(1, 6).as_strided((12, 6), (6, 1)),
        lambda x: x.unflatten(1, (6, 1)).mean(2).clone().as_strided_((6, 6), (1, 6))[:1],
        Doubled.apply,
        lambda x: checkpoint(F.relu, x, use_reentrant=False),
    ],
    ids=[
        "erf",
        "open parts",
        "second output",
        "alpha",
        "strides",
        "turned",
        "own rule",
        "computed again",
    ],
)
def test_what_cannot_be_followed_has_no_trace(does: Callable[[Tensor], Tensor]) -> None:
    net = Somebodys(does)
    output = net(torch.randn(12, 6))
    assert traced(output, trainable(net)) is None
    output.sum().backward()


class Joined(nn.Module):
    """Parts side by side: of the input, of layers, a parameter, and one that is fixed."""

    def __init__(self, axis: int, *, fixed: bool) -> None:
        super().__init__()
        self.a, self.b, self.axis, self.fixed = nn.Linear(6, 4), nn.Linear(6, 4), axis, fixed
        self.own = nn.Parameter(torch.randn(12, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Each part used, and one twice."""
        a, b = self.a(x), self.b(x).tanh()
        parts = [a, x[:, :4], b, self.own, a] if self.fixed else [a, b, self.own, a]
        joined = torch.cat(parts, self.axis)
        return joined * torch.arange(1.0, 1.0 + joined.numel()).view(joined.shape).cos()


@pytest.mark.parametrize("fixed", [False, True], ids=["all move", "one is fixed"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_parts_side_by_side(axis: int, fixed: bool) -> None:
    net = Joined(axis, fixed=fixed)
    whole = directions(net)
    for left_out in (set(), {"own"}, {"a.weight", "a.bias"}, {"b.weight", "b.bias", "own"}):
        direction = {name: d for name, d in whole.items() if name not in left_out}
        got, expected = both(net, torch.randn(12, 6), direction)
        assert expected.abs().max() > 0.1
        assert torch.equal(got, expected)


def test_products_of_many() -> None:
    def of(a: Tensor, b: Tensor) -> Tensor:
        found = torch.einsum("nij,njk->nik", a.unflatten(1, (2, 3)), b.unflatten(1, (3, 2)))
        waves = found.clone().sin() + found.cos().permute(0, 2, 1)
        return waves.unsqueeze(-1).flatten(1)

    net = Pair(of)
    for left_out in (set(), {"a.weight", "a.bias"}, {"b.weight", "b.bias"}):
        direction = {name: d for name, d in directions(net).items() if name not in left_out}
        got, expected = both(net, torch.randn(12, 6), direction)
        torch.testing.assert_close(got, expected)


def test_dropout_of_gpus() -> None:
    """An operation of its own, which there is for CPUs, too."""
    net = Somebodys(lambda x: torch.native_dropout(x, 0.4, True)[0])
    got, expected = both(net, torch.randn(12, 6), directions(net))
    torch.testing.assert_close(got, expected)


def test_a_deep_net_has_one() -> None:
    """Deeper than Python's calls go."""
    layers = [layer for _ in range(400) for layer in (nn.Linear(2, 2), nn.Tanh())]
    net = nn.Sequential(*layers)
    got, expected = both(net, torch.randn(3, 2), directions(net))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("kind", ["AddmmBackward0", "NativeBatchNormBackward0", "ReluBackward0"])
def test_a_torch_that_has_other_names_has_no_trace(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = net_of()

    def read(node: object) -> tuple[object, ...]:
        return (node._saved_by_another_name,)  # type: ignore[attr-defined]

    assert traced(net(torch.randn(12, 6)), trainable(net)) is not None
    monkeypatch.setitem(RULES, kind, (read, RULES[kind][1]))
    assert traced(net(torch.randn(12, 6)), trainable(net)) is None


def test_without_a_graph_there_is_no_trace() -> None:
    net = net_of()
    with torch.no_grad():
        assert traced(net(torch.randn(3, 6)), trainable(net)) is None


@pytest.mark.parametrize("name", ["mlp", "perceptron", "linear", "tabular"])
@pytest.mark.parametrize("placement", ["head", "everywhere"])
def test_our_nets_for_tables_have_one(name: str, placement: str) -> None:
    dropout = Dropout(rate=0.3, placement=placement)  # type: ignore[arg-type]
    net = Backbone(name, dropout).build((6,), 4)
    got, expected = both(net, torch.randn(12, 6), directions(net))
    assert torch.equal(got, expected)


SMALL = (3, 32, 32)


class Odd(nn.Module):
    """Layers of all kinds that have a rule and are in none of our nets."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect")
        self.norm = nn.BatchNorm2d(4, affine=False)
        self.second = nn.Conv2d(4, 4, 3, groups=2, dilation=2, padding=2, bias=True)
        self.back = nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1)
        self.shift = nn.Parameter(torch.randn(4, 1, 1))
        self.line = nn.Conv1d(4, 3, 3, stride=2)
        self.last = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        """[n, 3, 32, 32] to [n, 4]; the second convolution is used twice."""
        x = F.max_pool2d(F.silu(self.norm(self.first(x))), 3, stride=2, ceil_mode=True)
        x = torch.relu_(self.second(self.second(x))) - 0.5 * self.shift + 1
        gate = F.hardsigmoid(x.mean((-1, 2), keepdim=True)).sigmoid()
        x = self.back(F.hardswish(x * gate))[:, :, 1:-1:2, -9:]
        x = torch.add(self.shift, F.pad(x, (1, 0, 2, 1)), alpha=0.3)
        logits: Tensor = self.last(torch.tanh(self.line(x.flatten(2))).mean(-1))
        return logits


def image_net(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "odd":
        return Odd()
    name, _, placement = name.partition(", ")
    dropout = Dropout(placement="everywhere" if placement else "head")
    return Backbone(name, dropout).build(SMALL, 4)


IMAGE_NETS = [
    "resnet20", "resnet20, everywhere", "resnet18-cifar", "resnet50-cifar", "vgg16-bn", "resnet18",
    "resnet50", "vgg11", "mobilenetv3_small_050", "odd",
]  # fmt: skip


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", IMAGE_NETS)
def test_nets_for_images_have_one(name: str, layout: torch.memory_format) -> None:
    net = image_net(name).double().to(memory_format=layout)
    x = torch.randn(5, *SMALL).double().contiguous(memory_format=layout)
    got, expected = both(net, x, directions(net))
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["resnet20", "resnet18", "mobilenetv3_small_050"])
def test_half_precision_is_as_precise_as_forward_mode(name: str) -> None:
    net = image_net(name)
    x = torch.randn(16, *SMALL)
    precise, _ = both(net, x, directions(net))
    with torch.autocast("cpu", torch.bfloat16):
        got, expected = both(net, x, directions(net))

    def error(found: Tensor) -> float:
        return float((found.float() - precise).norm() / precise.norm())

    assert 0 < error(got) < 1.3 * error(expected)
    assert error(expected) < 0.3


@needs_gpu
@pytest.mark.parametrize("name", ["resnet20, everywhere", "resnet18", "mobilenetv3_small_050"])
@pytest.mark.parametrize("precision", ["single", "half"])
def test_on_a_gpu_it_is_forward_mode(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch norm, dropout and pooling are other operations than a CPU's."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    net = image_net(name).to(GPU).to(memory_format=torch.channels_last)
    x = torch.randn(16, *SMALL, device=GPU).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "half"):
        got, expected = both(net, x, directions(net))
    difference = float((got.float() - expected.float()).norm() / expected.float().norm())
    # Sums are taken in another order, and half precision rounds to a part in 256.
    assert difference < (0.1 if precision == "half" else 1e-3)


def test_upper_layers_are_all_that_is_followed() -> None:
    """Nothing is computed below the first layer that moves."""
    net = image_net("resnet20")
    x = torch.randn(5, *SMALL)
    names = upper_layers(net)  # type: ignore[arg-type]
    direction = {name: d for name, d in directions(net).items() if name in names}
    got, expected = both(net, x, direction)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    with mode(net, dropout=True, statistics=False):
        trace = traced(net(x), trainable(net))
    assert trace is not None
    with Operations() as operations:
        trace.tangent(direction)
    convolutions = sum(name in names for name in direction if direction[name].ndim == 4)
    assert 0 < convolutions < 10
    assert operations.counts["aten::convolution"] == 2 * convolutions - 1


def test_what_is_computed_is_tangents() -> None:
    """Two products of each convolution instead of three, and no pass of batch norm over values."""
    net = image_net("resnet20")
    with mode(net, dropout=True, statistics=False):
        trace = traced(net(torch.randn(5, *SMALL)), trainable(net))
    assert trace is not None
    with Operations() as operations:
        trace.tangent(directions(net))
    # The images have no tangent.
    assert operations.counts["aten::convolution"] == 2 * 19 - 1
    assert operations.counts["aten::native_batch_norm"] == 0
    assert operations.counts["aten::native_batch_norm_backward"] == 19


def test_it_lets_go_of_what_it_has_used() -> None:
    net = image_net("resnet20")
    x = torch.randn(5, *SMALL)
    with mode(net, dropout=True, statistics=False):
        output = net(x)
        trace = traced(output, trainable(net))
    assert trace is not None
    held = [weakref.ref(part) for one in trace._operations if isinstance(one, tuple)
            for part in one[1] if isinstance(part, Tensor) and part is not x]  # fmt: skip
    output.sum().backward()
    own = {id(p) for p in net.parameters()}
    assert len([1 for ref in held if ref() is not None and id(ref()) not in own]) > 40
    trace.tangent(directions(net))
    gc.collect()
    assert [ref for ref in held if ref() is not None and id(ref()) not in own] == []


@pytest.mark.parametrize("sparing", ["recompute", "micro_batch"])
def test_a_pass_that_spares_memory_has_none(sparing: str) -> None:
    net = image_net("resnet20")
    with (
        in_parts(net, 3 if sparing == "micro_batch" else None),
        recomputed(net, wanted=sparing == "recompute"),
        mode(net, dropout=True, statistics=False),
    ):
        output = net(torch.randn(6, *SMALL))
        assert traced(output, trainable(net)) is None
        output.sum().backward()


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

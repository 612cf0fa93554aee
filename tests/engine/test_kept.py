"""What a training pass keeps for forward mode changes nothing but what is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from revar.bilevel import OneStep, alignments, directional_derivative
from revar.functional import Params, call, mode, norms_by_batch, parameters
from revar.in_parts import in_parts
from revar.kept import Kept
from revar.nets.base import Dropout
from revar.nets.build import Backbone
from revar.nets.finetuning import upper_layers
from revar.recomputed import recomputed
from revar.stochastic import DropoutPasses, variance


class Odd(nn.Module):
    """Convolutions with biases, in groups, dilated, padded otherwise; a norm without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect")
        self.norm = nn.BatchNorm2d(4, affine=False)
        self.second = nn.Conv2d(4, 4, 3, groups=2, dilation=2, padding=2)
        self.line = nn.Conv1d(4, 3, 3, stride=2)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        """[n, 3, 12, 12] to [n, 4]; the second convolution is used twice."""
        x = F.relu(self.norm(self.first(x)))
        x = torch.relu_(self.second(self.second(x)))
        logits: Tensor = self.last(self.drop(F.gelu(self.line(x.flatten(2))).mean(-1)))
        return logits


def net_of(name: str) -> nn.Module:
    """In double precision."""
    torch.manual_seed(0)
    if name == "odd":
        return Odd().double()
    name, _, placement = name.partition(", ")
    dropout = Dropout(placement="everywhere" if placement else "head")
    return Backbone(name, dropout).build((3, 32, 32), 4).double()


def problem(net: nn.Module, size: int = 32) -> tuple[OneStep, Params]:
    """A step of a net that draws masks, and its parameters."""
    torch.manual_seed(1)
    x, x_meta = torch.randn(2, 6, 3, size, size).double()
    y, y_meta = torch.randint(0, 4, (2, 6))
    sampler = DropoutPasses.of(net, x)

    def losses(params: Params) -> Tensor:
        with mode(net, dropout=True, statistics=False):
            return F.cross_entropy(call(net, params, x), y, reduction="none")

    def meta_loss(params: Params) -> Tensor:
        logits, samples = sampler.run(x_meta, 3, params)
        return F.cross_entropy(logits, y_meta) + variance(samples).mean()

    weights = torch.rand(6).double()
    return OneStep(losses=losses, weights=weights, lr=0.1, meta_loss=meta_loss), parameters(net)


class Convolutions(TorchDispatchMode):
    """Counts those that are computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.counts[func.name().partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def aligned(step: OneStep, params: Params) -> tuple[Tensor, Counter[str]]:
    """Alignments from one seed, and the operations they took."""
    torch.manual_seed(2)
    with Convolutions() as operations:
        values = alignments(step, params).values
    return values, operations.counts


NETS = ["resnet20", "resnet20, everywhere", "vgg16-bn", "resnet18", "vgg11", "odd"]


@pytest.mark.parametrize("name", NETS)
def test_alignments_are_the_same(name: str) -> None:
    step, params = problem(net_of(name), 12 if name == "odd" else 32)
    expected, before = aligned(step, params)
    got, after = aligned(replace(step, keeps=True), params)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    assert expected.norm() > 0.01
    saved = before["aten::convolution"] - after["aten::convolution"]
    # What was written into is not there: all convolutions of a VGG without batch norm, one of the
    # odd net.
    layers = {"resnet20": 19, "resnet20, everywhere": 19, "vgg16-bn": 13, "resnet18": 20, "odd": 3}
    assert saved == layers.get(name, 0)


def test_what_is_saved_is_a_third_of_the_convolutions_of_forward_mode() -> None:
    """And the statistics of batch norm, all of which a whole pass would take once more."""
    net = net_of("resnet20")
    step, params = problem(net)
    kept = Kept()
    torch.manual_seed(2)
    with kept:
        step.losses({name: p.requires_grad_() for name, p in params.items()})
    direction = {name: torch.randn_like(p) for name, p in params.items()}
    found = []
    for known in (None, kept):
        torch.manual_seed(2)
        with Convolutions() as operations:
            found.append(directional_derivative(step.losses, params, direction, known))
        counts = operations.counts
        # The images have no tangent, so that the first convolution has one product less.
        assert counts["aten::convolution"] == (3 if known is None else 2) * 19 - 1
        assert counts["aten::native_batch_norm"] == (19 if known is None else 0)
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)


def test_the_lower_layers_are_not_computed_where_only_upper_ones_are_compared() -> None:
    net = net_of("resnet20")
    step, params = problem(net)
    step = replace(step, aligned=upper_layers(net))  # type: ignore[arg-type]
    expected, before = aligned(step, params)
    got, after = aligned(replace(step, keeps=True), params)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    assert before["aten::convolution"] - after["aten::convolution"] == 19


@pytest.mark.parametrize("sparing", ["recompute", "micro_batch"])
def test_a_pass_that_spares_memory_keeps_nothing(sparing: str) -> None:
    net = net_of("resnet20, everywhere")
    step, params = problem(net)
    kept = Kept()
    with (
        in_parts(net, 3 if sparing == "micro_batch" else None),
        recomputed(net, wanted=sparing == "recompute"),
    ):
        aligned(step, params)  # the first pass tries whether blocks write into their inputs
        expected, before = aligned(step, params)
        got, after = aligned(replace(step, keeps=True), params)
        with kept:
            step.losses({name: p.requires_grad_() for name, p in params.items()})
    assert torch.equal(got, expected)
    assert after == before
    assert kept.of_next(F.conv2d, torch.zeros(1)) == ()


def test_everything_is_used_once_and_let_go() -> None:
    step, params = problem(net_of("resnet20"))
    kept = Kept()
    torch.manual_seed(2)
    with kept:
        step.losses({name: p.requires_grad_() for name, p in params.items()})
    assert kept._found is not None
    assert len(kept._found) == 38
    torch.manual_seed(2)
    directional_derivative(step.losses, params, params, kept)
    assert not kept._found


@pytest.mark.parametrize(
    "other",
    [
        lambda net, x: net(x[:3]),
        lambda net, x: net.trunk[0][1](x.repeat(1, 6, 1, 1)[:, :16]),
        lambda net, x: net(net.trunk[0](x)[:, :3]),
    ],
    ids=["fewer rows", "another layer", "one layer more"],
)
def test_another_order_of_layers_is_told(other: Callable[[Any, Tensor], Tensor]) -> None:
    net = net_of("resnet20")
    x = torch.randn(4, 3, 32, 32).double()
    kept = Kept()
    with kept, mode(net, dropout=True, statistics=False):
        net(x)

    def losses(params: Params) -> Tensor:
        with mode(net, dropout=True, statistics=False):
            return other(net, x).flatten(1).mean(1)

    params = parameters(net)
    with pytest.raises(RuntimeError, match="comes in another order than in the training pass"):
        directional_derivative(losses, params, params, kept)


def test_statistics_that_are_fixed_are_not_kept() -> None:
    net = net_of("resnet20")
    with mode(net, dropout=True, statistics=True):
        assert not norms_by_batch(net)
        with Kept() as kept:
            net(torch.randn(4, 3, 32, 32).double())
    with mode(net, dropout=True, statistics=False):
        assert norms_by_batch(net)
    assert kept._found is not None
    assert {found.function for found in kept._found} == {F.conv2d}

"""Fused optimisers, which move all parameters in one kernel, against the ordinary ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from revar import optimisers
from revar.checkpoint import _load_optimiser, _optimiser_tensors
from revar.methods.base import OuterOptimiser
from revar.recipe import Budget


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU; the kernel is there for the CPU too."""
    monkeypatch.setattr(optimisers, "_fused", lambda parameters: True)


def _parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(3, 3, generator=generator)) for _ in range(3)]


def _step(optimiser: Optimizer, parameters: list[nn.Parameter], with_gradient: int) -> None:
    generator = torch.Generator().manual_seed(with_gradient)
    optimiser.zero_grad()
    for parameter in parameters[:with_gradient]:
        parameter.grad = torch.randn(3, 3, generator=generator)
    optimiser.step()


def _plain(parameters: list[nn.Parameter], **more: Any) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-2, **more)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("outer", [False, True])
def test_a_parameter_may_have_its_first_gradient_later(outer: bool) -> None:
    """As a head that is left out in the first epochs."""
    ours, theirs = _parameters(), _parameters()
    if outer:
        spec = OuterOptimiser(name="sgd", learning_rate=0.1, momentum=0.9, weight_decay=1e-2)
        fused, plain = optimisers.make_outer(spec, ours), _plain(theirs)
    else:
        budget = Budget(optimiser="sgd", learning_rate=0.1, momentum=0.9, weight_decay=1e-2)
        fused, plain = optimisers.make_optimiser(budget, ours), _plain(theirs, nesterov=True)
    for with_gradient in (1, 2, 2, 3, 1, 3):
        _step(fused, ours, with_gradient)
        _step(plain, theirs, with_gradient)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("fused")
def test_a_state_without_velocities_is_taken_up() -> None:
    """Of an ordinary optimiser, which has none of what it never moved."""
    plain, other = _plain(ours := _parameters()), _parameters()
    _step(plain, ours, 1)
    spec = OuterOptimiser(name="sgd", learning_rate=0.1, momentum=0.9, weight_decay=1e-2)
    resumed = optimisers.make_outer(spec, other)
    with torch.no_grad():
        other[0].copy_(ours[0])
    kept = {name: value.clone() for name, value in _optimiser_tensors(plain, "outer").items()}
    _load_optimiser(resumed, kept, "outer")
    _step(plain, ours, 3)
    _step(resumed, other, 3)
    for one, same in zip(ours, other, strict=True):
        torch.testing.assert_close(one, same, rtol=1e-6, atol=1e-7)


def _trained(fused: bool, layout: torch.memory_format) -> list[torch.Tensor]:
    """Parameters of a net after some steps on a CPU."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(80, 7)
    ).to(memory_format=layout)
    budget = Budget(optimiser="sgd", learning_rate=0.1, momentum=0.9, weight_decay=5e-4)
    optimiser: Optimizer = optimisers.make_optimiser(budget, list(net.parameters()))
    assert all(group["fused"] for group in optimiser.param_groups)
    if not fused:
        groups = [
            {name: group[name] for name in ("params", "lr", "weight_decay")}
            for group in optimiser.param_groups
        ]
        optimiser = SGD(groups, momentum=0.9, nesterov=True, fused=False, foreach=False)
    for step in range(8):
        for group in optimiser.param_groups:
            group["lr"] = 0.1 / (1 + step)
        optimiser.zero_grad()
        x = torch.randn(16, 3, 6, 6).contiguous(memory_format=layout)
        net(x).square().mean().backward()
        optimiser.step()
    return [parameter.detach() for parameter in net.parameters()]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_on_a_cpu_a_group_of_parameters_moves_in_one_call(layout: torch.memory_format) -> None:
    """As one by one, whatever order weights lie in; sums may round otherwise at their ends."""
    for one, other in zip(_trained(True, layout), _trained(False, layout), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "odd",
    [
        nn.Parameter(torch.ones(3, dtype=torch.complex64)),
        nn.Parameter(torch.ones(3, dtype=torch.bfloat16)),
        nn.Parameter(torch.zeros(8, 10)[:, :5]),
        nn.Parameter(torch.zeros(8, 10)[:, ::2]),
        nn.Parameter(torch.zeros(1).expand(4)),
    ],
    ids=["complex", "half", "part", "gaps", "shared"],
)
def test_what_the_kernel_does_not_know_moves_as_ever(odd: nn.Parameter) -> None:
    budget = Budget(optimiser="sgd", learning_rate=0.1, momentum=0.9, weight_decay=1e-2)
    spec = OuterOptimiser(name="sgd", learning_rate=0.1, momentum=0.9, weight_decay=1e-2)
    for optimiser in (
        optimisers.make_optimiser(budget, [*_parameters(), odd]),
        optimisers.make_outer(spec, [*_parameters(), odd]),
    ):
        assert not any(group["fused"] for group in optimiser.param_groups)


def test_nothing_beside_a_part_of_a_tensor_is_written() -> None:
    whole = torch.zeros(8, 10)
    part = nn.Parameter(whole[:, :5])
    optimiser = optimisers.make_optimiser(Budget(optimiser="sgd", learning_rate=0.1), [part])
    part.grad = torch.ones(8, 5)
    optimiser.step()
    assert (whole[:, :5] != 0).all()
    assert (whole[:, 5:] == 0).all()

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
    """As a head that is left out in the first epochs; the first steps come to the same bits."""
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

"""Parameters put in a network's place, and modes: what comes back, what is copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor, nn

from revar.bilevel import directional_derivative
from revar.functional import (
    Params,
    call,
    flat_state,
    follow_flat_state,
    load_flat_state,
    mode,
    parameters,
    placed,
    trainable,
)


class _Tied(nn.Module):
    """A layer that is used twice under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.third = self.first

    def forward(self, x: Tensor) -> Tensor:
        third: Tensor = self.third(self.second(self.first(x)))
        return third


def test_a_tied_parameter_is_replaced_everywhere_and_comes_back() -> None:
    net = _Tied()
    own, double = net.first.weight, 2 * torch.eye(3)
    x = torch.randn(4, 3)
    assert torch.equal(call(net, {"first.weight": double}, x), 8 * x)
    assert net.first.weight is own
    assert net.second.weight is own


def test_parameters_are_found_as_torch_finds_them() -> None:
    net = nn.Sequential(_Tied(), nn.BatchNorm1d(3), nn.Linear(3, 2, bias=False), _Tied())
    net[2].weight.requires_grad_(False)
    wanted = [(name, id(p)) for name, p in net.named_parameters() if p.requires_grad]
    assert [(name, id(p)) for name, p in trainable(net).items()] == wanted
    assert list(parameters(net)) == [name for name, _ in wanted]


def test_parameters_come_back_after_an_error() -> None:
    net = nn.Linear(2, 2)
    weight = net.weight
    with pytest.raises(RuntimeError, match="shape"):
        call(net, {"weight": torch.zeros(2, 5)}, torch.ones(1, 2))
    assert net.weight is weight


def test_a_name_that_the_network_does_not_have_is_refused() -> None:
    with (
        pytest.raises(KeyError, match="wieght"),
        placed(nn.Linear(2, 2), {"wieght": torch.zeros(2, 2)}),
    ):
        pass


@pytest.mark.parametrize("statistics", [True, False])
def test_statistics_stay_whatever_a_pass_at_other_parameters_does(statistics: bool) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in net.named_buffers()}
    x = torch.randn(8, 3) + 1
    with mode(net, dropout=True, statistics=statistics):
        call(net, parameters(net), x)
    after = dict(net.named_buffers())
    assert all(torch.equal(after[name], value) for name, value in before.items())


class _Counting(nn.Module):
    """Writes a buffer in every mode, as a layer of the user's may."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.weight * x


def test_buffers_of_unknown_layers_are_always_copies() -> None:
    net = _Counting()
    with mode(net, dropout=False, statistics=True):
        call(net, parameters(net), torch.ones(1))
    assert net.calls == 0


def test_modes_of_a_layer_that_is_used_twice_come_back() -> None:
    net = _Tied()
    net.first.training = False
    with mode(net, dropout=True, statistics=True):
        assert net.third.training
    assert [module.training for module in net.modules()] == [True, False, True]


@pytest.mark.parametrize("drop", [F.dropout, F.dropout2d])
def test_dropout_in_forward_mode_has_the_masks_of_any_pass(drop: Callable[..., Tensor]) -> None:
    net = nn.Conv2d(2, 3, 3)
    x = torch.randn(5, 2, 6, 6)

    def losses(params: Params) -> Tensor:
        dropped: Tensor = drop(call(net, params, x), 0.4, True)
        return dropped.flatten(1).square().sum(1)

    at = parameters(net)
    direction = {name: torch.randn_like(p) for name, p in at.items()}
    torch.manual_seed(3)
    found = directional_derivative(losses, at, direction)
    drawn = torch.rand(())
    torch.manual_seed(3)
    with torch.no_grad(), forward_ad.dual_level():
        dual = {name: forward_ad.make_dual(p, direction[name]) for name, p in at.items()}
        expected = forward_ad.unpack_dual(losses(dual)).tangent
    assert expected is not None
    torch.testing.assert_close(found, expected)
    assert torch.equal(drawn, torch.rand(()))


# --- all numbers of a network


class Remembering(nn.Module):
    """A buffer that is not kept, and an empty place for one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passing", torch.ones(3), persistent=False)
        self.register_buffer("none", None)
        self.register_buffer("kept", torch.full((2,), 5.0))


class OwnState(nn.Linear):
    """Writes another state than torch would."""

    def _save_to_state_dict(self, destination: Params, prefix: str, keep_vars: bool) -> None:
        destination[prefix + "all"] = self.weight.detach().flatten()


@pytest.mark.parametrize("case", ["plain", "own state", "hook"])
def test_a_flat_state_goes_where_it_came_from(case: str) -> None:
    """Tied parameters are in it twice, as in ``state_dict``."""
    first = OwnState(4, 4) if case == "own state" else nn.Linear(4, 4)
    net = nn.Sequential(first, nn.BatchNorm1d(4), Remembering(), nn.Linear(4, 4))
    last = net[3]
    assert isinstance(last, nn.Linear)
    last.weight = first.weight
    if case == "hook":
        net.register_state_dict_post_hook(lambda _, state, __, ___: state.__delitem__("3.bias"))
    flat = flat_state(net)
    moved = flat.clone()
    with torch.no_grad():
        for value in net.state_dict().values():
            if value.is_floating_point():
                value.mul_(3)
    expected = torch.lerp(flat, flat_state(net), 0.25)
    follow_flat_state(net, moved, 0.25)
    assert torch.equal(moved, expected)
    load_flat_state(net, flat)
    assert torch.equal(flat_state(net), flat)
    assert all(p.requires_grad and p.grad_fn is None for p in net.parameters())

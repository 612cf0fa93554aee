"""Networks of the user's own that cannot be trained, or whose scores would promise too much."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar import InputError, SelectiveClassifier
from revar.nets.base import Classifier, Dropout
from revar.nets.build import Backbone


class Between(nn.Module):
    """A small classifier of rows of five with a function between its layers."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 2)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.function(self.first(x)))
        return logits


def build(module: nn.Module) -> Classifier:
    return Backbone("custom", Dropout(), module).build((5,), 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - x.mean(0),
        lambda x: x.cumsum(0),
        lambda x: x.flip(0).cumsum(0).flip(0),
        nn.BatchNorm1d(8, track_running_stats=False),
        lambda x: x * len(x),
    ],
    ids=["centred", "sums", "sums from behind", "batch norm", "by their number"],
)
def test_rows_that_depend_on_each_other_are_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InputError, match="gives a row other outputs where other rows come") as no:
        build(Between(function))
    assert "\n" not in str(no.value)


def test_chance_in_evaluation_mode_is_refused_and_the_generator_left_alone() -> None:
    torch.manual_seed(3)
    module = Between(lambda x: F.dropout(x, 0.5, training=True))
    torch.manual_seed(5)
    with pytest.raises(InputError, match="other outputs each time, also in evaluation mode"):
        build(module)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    module(torch.zeros(2, 5))
    assert torch.equal(drawn, torch.rand(1)), "as after one pass"


def test_a_network_that_fails_on_one_row_is_refused() -> None:
    with pytest.raises(InputError, match="Between fails on one row alone: "):
        build(Between(lambda x: x.view(2, 8)))


@pytest.mark.parametrize(
    "module",
    [
        Between(nn.BatchNorm1d(8)),
        Between(lambda x: x.sub_(1.0)),
        nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 2)),
        Between(lambda x: (x.bfloat16() * 3).float()),
        Between(lambda x: 1000 + x),
    ],
    ids=["batch norm", "in place", "in its input", "half precision", "far from zero"],
)
def test_rows_that_do_not_are_taken(module: nn.Module) -> None:
    build(module)


def test_networks_that_torch_cannot_copy_or_train_say_so() -> None:
    lazy = nn.Sequential(nn.Linear(5, 8), nn.LazyBatchNorm1d(), nn.Linear(8, 2))
    with pytest.raises(InputError, match=r"lazy layers .* run it on a batch first"):
        build(lazy)
    lazy(torch.zeros(2, 5))
    build(lazy)
    with pytest.raises(InputError, match="AdaptiveAvgPool1d has no parameters"):
        build(nn.AdaptiveAvgPool1d(2))
    with pytest.raises(InputError, match=r"returns \(2, 0\), which holds nothing"):
        build(_Nothing())


class _Nothing(nn.Linear):
    """Of no outputs."""

    def __init__(self) -> None:
        super().__init__(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, :0]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_networks_of_torch_jit_are_refused() -> None:
    for module in (
        torch.jit.script(nn.Linear(5, 2)),
        torch.jit.trace(nn.Linear(5, 2), torch.ones(2, 5)),
    ):
        with pytest.raises(InputError, match=r"compiled by torch\.jit: give the nn\.Module"):
            build(module)


def test_a_network_that_is_frozen_whole_says_so() -> None:
    x = np.random.default_rng(0).standard_normal((40, 5))
    frozen = nn.Linear(5, 2).requires_grad_(False)
    with pytest.raises(InputError, match="all parameters of the network are frozen: unfreeze"):
        SelectiveClassifier("erm", frozen, epochs=1).fit(x, x[:, 0] > 0)

"""A batch in parts: the same gradients and alignments, less memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from revar.bilevel import Strategy
from revar.errors import InputError
from revar.fitting import fit_model
from revar.functional import call, mode, parameters
from revar.in_parts import in_parts
from revar.nets.base import Classifier, Dropout
from revar.nets.build import Backbone
from revar.progress import Silent
from revar.recipe import Budget
from support.hypergradients import aligned
from support.problems import CPU, recipe, source
from support.threads import one_thread

SHAPES = {"mlp": (8,), "convnet": (3, 12, 12)}


def _net(name: str) -> tuple[Classifier, Tensor, Tensor]:
    torch.manual_seed(0)
    net = Backbone(name, Dropout(rate=0.3)).build(SHAPES[name], 4).double()
    return net, torch.randn(13, *SHAPES[name], dtype=torch.float64), torch.arange(13) % 4


def _losses(net: Classifier, x: Tensor, y: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
    def losses(params: dict[str, Tensor]) -> Tensor:
        with mode(net, dropout=True, statistics=True):
            return nn.functional.cross_entropy(call(net, params, x), y, reduction="none")

    return losses


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("rows", [4, 5, 13, 100])
def test_gradients_are_those_of_the_whole_batch(name: str, rows: int) -> None:
    net, x, y = _net(name)
    # Coupled over the batch, as normalised weights are.
    losses = _losses(net, x, y)

    def gradient() -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        at = {k: p.clone().requires_grad_() for k, p in parameters(net).items()}
        found = losses(at)
        return torch.autograd.grad((found.softmax(0) * found).sum(), list(at.values()))

    whole = gradient()
    with in_parts(net, rows):
        parted = gradient()
    for one, other in zip(whole, parted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
    assert "forward_features" not in vars(net)


@pytest.mark.parametrize("strategy", ["forward_mode", "double_backward", "finite_difference"])
def test_the_hypergradient_is_that_of_the_whole_batch(strategy: Strategy) -> None:
    net, x, y = _net("convnet")
    losses = _losses(net, x, y)
    whole = aligned(net, x, y, losses, strategy)
    with in_parts(net, 4):
        parted = aligned(net, x, y, losses, strategy)
    torch.testing.assert_close(whole, parted, rtol=1e-6, atol=1e-9)
    if strategy != "finite_difference":
        torch.testing.assert_close(whole, parted, rtol=1e-10, atol=1e-13)


def test_batch_norm_counts_every_row_once() -> None:
    net, x, y = _net("convnet")
    before = {k: b.clone() for k, b in net.named_buffers() if "tracked" in k}
    with in_parts(net, 7), mode(net, dropout=True, statistics=False):
        nn.functional.cross_entropy(net(x), y).backward()
    after = {k: b for k, b in net.named_buffers() if "tracked" in k}
    # Two parts, and the second run of each leaves the statistics alone.
    assert {k: int(after[k] - before[k]) for k in before} == dict.fromkeys(before, 2)


def test_less_is_kept() -> None:
    net, _, _ = _net("convnet")
    x = torch.randn(64, 3, 12, 12, dtype=torch.float64)

    def kept(rows: int | None) -> int:
        sizes: list[int] = []

        def note(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
        with in_parts(net, rows), mode(net, dropout=True, statistics=True), hooks:
            net(x)
        return sum(sizes)

    assert kept(8) < 0.2 * kept(None)


@pytest.mark.parametrize("method", ["erm", "revar", "revar-paper", "sat"])
def test_training_gives_the_same_model(method: str) -> None:
    found, net = [], _Plain()
    for rows in ({}, {"micro_batch": 8}):
        chosen = replace(recipe(method, epochs=12, **rows), backbone="custom")
        with one_thread():
            model = fit_model(chosen, source(120), device=CPU, observer=Silent(), module=net)
        found.append(torch.from_numpy(model.predictions["test"].logits))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


class _Plain(nn.Module):
    """Without batch norm, whose statistics are those of the parts."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.last = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.trunk(x))
        return logits


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="micro_batch is 3"):
        Budget(micro_batch=3)

"""What a GPU run has and a CPU run has not: channels last, and one kernel for all parameters.

Both can be had on a CPU, whose fused kernel takes tensors of another layout for what they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from revar import fitting, optimisers
from revar.data.source import Part, Source
from revar.fitting import fit_prepared
from revar.functional import flat_state, follow_flat_state, load_flat_state
from revar.nets.base import Dropout
from revar.nets.build import Backbone
from revar.optimisers import average_gradients, make_optimiser
from revar.parallel import World
from revar.preparation import prepare
from revar.progress import Silent
from revar.recipe import Budget
from revar.training import InterruptedRun
from support.gpu import GPU, needs_gpu
from support.keepers import FolderKeeper
from support.problems import CPU, recipe


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_device(networks: nn.Module, device: torch.device) -> None:
        networks.to(device).to(memory_format=torch.channels_last)

    monkeypatch.setattr(fitting, "to_device", to_device)
    monkeypatch.setattr(optimisers, "_fused", lambda parameters: True)


def _images() -> Source:
    y = np.arange(96) % 3
    x = np.random.default_rng(0).integers(0, 100, (96, 8, 8, 3)).astype(np.uint8)
    x[np.arange(96), :, :, y] += 100
    return Source(Part(x, y))


def _stopped_and_resumed(method: str, device: torch.device, folder: Path) -> tuple[Tensor, Tensor]:
    """[P] weights of a run, and of one that was stopped twice."""
    often = {"interval": 2} if method == "revar" else {}
    chosen = replace(recipe(method, epochs=3, deterministic=True, **often), backbone="resnet20")
    data = prepare(chosen, _images())
    whole = fit_prepared(data, device=device, observer=Silent())
    keeper = FolderKeeper(folder)
    for steps in (4, 2):
        stop = iter([False] * (steps - 1) + [True]).__next__
        with pytest.raises(InterruptedRun):
            fit_prepared(data, device=device, observer=Silent(), keeper=keeper, stop=stop)
        keeper.folder.end()
    resumed = fit_prepared(data, device=device, observer=Silent(), keeper=keeper)
    return flat_state(whole.networks), flat_state(resumed.networks)


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("method", ["erm", "sat", "trajectory", "revar"])
def test_a_resumed_run_ends_with_the_same_bits(method: str, tmp_path: Path) -> None:
    whole, resumed = _stopped_and_resumed(method, CPU, tmp_path / "run")
    assert whole.equal(resumed)


@needs_gpu
@pytest.mark.parametrize("method", ["erm", "sat", "trajectory", "revar"])
def test_a_resumed_run_ends_with_the_same_bits_on_a_gpu(method: str, tmp_path: Path) -> None:
    whole, resumed = _stopped_and_resumed(method, GPU, tmp_path / "run")
    assert whole.equal(resumed)


class _Two(World):
    """Of which the other has gradients of zero; what comes back is laid out as it travelled."""

    def average(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [0.5 * x.contiguous() for x in tensors]


def test_gradients_of_all_are_laid_out_as_their_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimisers, "world", lambda: _Two(0, 2))
    net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimiser = make_optimiser(Budget(learning_rate=0.1), list(net.parameters()))
    net(torch.randn(2, 3, 5, 5)).square().sum().backward()
    before = {p: 0.5 * p.grad for p in net.parameters() if p.grad is not None}
    average_gradients(optimiser)
    for p, half in before.items():
        assert p.grad is not None
        assert p.grad.equal(half)
        assert p.grad.stride() == p.stride()
    for p in net.parameters():
        p.grad = None
    average_gradients(optimiser)


def test_mean_weights_do_not_depend_on_the_layout() -> None:
    torch.manual_seed(0)
    net = Backbone("resnet20", Dropout()).build((3, 8, 8), 3)
    other = Backbone("resnet20", Dropout()).build((3, 8, 8), 3)
    start = flat_state(other)
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        flat = start.clone()
        follow_flat_state(net.to(memory_format=layout), flat, 0.25)
        load_flat_state(other.to(memory_format=layout), flat)
        assert flat_state(other).equal(flat)
        found.append(flat)
    torch.testing.assert_close(found[0], start.lerp(flat_state(net), 0.25))
    assert found[0].equal(found[1])

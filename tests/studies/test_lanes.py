"""Runs side by side end as they would alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from revar.data.synthetic import SCENARIOS, draw
from revar.methods.base import Bilevel
from revar.nets.base import Dropout
from revar.recipe import Budget, Recipe
from revar.studies.controlled import ENTRANTS
from revar.studies.lanes import Dropouts, stacked
from revar.studies.regression import fit_weights, fit_weights_side_by_side

BUDGET = Budget(
    epochs=2, batch_size=64, learning_rate=0.1, momentum=0.0, weight_decay=0.0,
    schedule="constant", lr_warmup=0.0, gradient_clip=None,
)  # fmt: skip


def recipes(method: Bilevel, backbone: str = "linear", seeds: int = 3) -> list[Recipe]:
    return [
        Recipe(
            method=method, backbone=backbone, dropout=Dropout(rate=0.1), budget=BUDGET, seed=seed
        )
        for seed in range(seeds)
    ]


PROBLEMS = [draw(SCENARIOS["2"], 500, 400, seed).standardised() for seed in range(3)]


@pytest.mark.parametrize("name", ENTRANTS)
def test_every_method_seed_by_seed(name: str) -> None:
    """The same weights of all training points to rounding, after every kind of random draw."""
    method = replace(ENTRANTS[name].method, passes=3)  # type: ignore[call-arg]
    chosen = recipes(method)
    together = fit_weights_side_by_side(chosen, PROBLEMS, torch.float64)
    alone = [fit_weights(*pair, torch.float64) for pair in zip(chosen, PROBLEMS, strict=True)]
    np.testing.assert_allclose(together, np.stack(alone, 1), rtol=1e-9)
    # Different runs, and trained ones: no two agree.
    assert np.abs(together[:, 0] - together[:, 1]).max() > 1e-3


@pytest.mark.parametrize("backbone", ["perceptron", "mlp"])
def test_every_kind_of_layer(backbone: str) -> None:
    chosen = recipes(replace(ENTRANTS["revar-paper"].method, passes=2), backbone)  # type: ignore[call-arg]
    together = fit_weights_side_by_side(chosen, PROBLEMS, torch.float64)
    alone = fit_weights(chosen[1], PROBLEMS[1], torch.float64)
    np.testing.assert_allclose(together[:, 1], alone, rtol=1e-9)


def test_a_run_does_not_feel_its_neighbours() -> None:
    chosen = recipes(ENTRANTS["ibr"].method)
    three = fit_weights_side_by_side(chosen, PROBLEMS, torch.float64)
    one = fit_weights_side_by_side(chosen[2:], PROBLEMS[2:], torch.float64)
    np.testing.assert_allclose(three[:, 2:], one, rtol=1e-9)


def test_masks_are_those_of_ordinary_dropout() -> None:
    x = torch.randn(7, 2, 5)
    generators = [torch.Generator().manual_seed(seed) for seed in (3, 4)]
    masked = Dropouts(0.4, generators)(x)
    for run, seed in enumerate((3, 4)):
        torch.manual_seed(seed)
        assert torch.equal(masked[:, run], nn.functional.dropout(x[:, run], 0.4))


def test_a_layer_without_a_stacked_form_is_refused() -> None:
    with pytest.raises(TypeError, match="LayerNorm"):
        stacked([nn.LayerNorm(3), nn.LayerNorm(3)], [])

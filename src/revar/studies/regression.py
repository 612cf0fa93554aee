"""Numbers to predict, through the ordinary loop: one run, or many side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revar import training
from revar.data.augment import resolve
from revar.data.synthetic import Problem
from revar.feeds import DataFeeds
from revar.fitting import build_networks
from revar.methods.base import Bilevel
from revar.progress import Silent
from revar.randomness import beside, derive, seeded
from revar.recipe import Recipe
from revar.stochastic import DropoutPasses, placement
from revar.studies.lanes import Lanes, stack_networks
from revar.types import Batch, Networks, Regression

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class _Examples:
    """What `DataFeeds` reads."""

    x: Tensor
    y: NDArray[np.floating[Any]]
    weights: NDArray[np.float32] | None = None


def _feeds(recipe: Recipe, problem: Problem, dtype: torch.dtype) -> DataFeeds:
    assert recipe.budget.batch_size is not None
    real = torch.empty(0, dtype=dtype).numpy().dtype
    x, x_meta = (torch.from_numpy(part).to(dtype) for part in (problem.x, problem.x_meta))
    return DataFeeds(
        _Examples(x, problem.y.astype(real)),
        _Examples(x_meta, problem.y_meta.astype(real)),
        x[:0],
        normalise=nn.Identity(),
        augment=resolve("none", problem.x.shape[1:]),
        batch_size=recipe.budget.batch_size,
        seed=recipe.seed,
        device=CPU,
    )


def _networks(recipe: Recipe, task: Regression, problem: Problem, dtype: torch.dtype) -> Networks:
    example = torch.from_numpy(problem.x[:2]).float()
    return build_networks(recipe, task, example, None, CPU).to(dtype)


def fit_weights(
    recipe: Recipe, problem: Problem, dtype: torch.dtype = torch.float32
) -> NDArray[np.float64]:
    """Train on a problem and weigh its training points, [n].

    Args:
        recipe: with a bilevel method and a budget that leaves nothing open.
        problem: standardised.
        dtype: of all arithmetic.
    """
    task = Regression(input_shape=problem.x.shape[1:])
    feeds = _feeds(recipe, problem, dtype)
    networks = _networks(recipe, task, problem, dtype)
    with seeded(derive(recipe.seed, "training"), CPU):
        everything = feeds.train_at(torch.arange(feeds.train_size))
        return _trained(recipe, task, networks, feeds, everything)


def fit_weights_side_by_side(
    recipes: Sequence[Recipe], problems: Sequence[Problem], dtype: torch.dtype = torch.float32
) -> NDArray[np.float64]:
    """The same for several runs at once, [n, runs]; each ends as it would alone.

    Args:
        recipes: that differ in their seeds alone.
        problems: of equal sizes.
        dtype: of all arithmetic.
    """
    first = recipes[0]
    task = Regression(input_shape=problems[0].x.shape[1:])
    generators = [torch.Generator() for _ in recipes]
    with beside(generators):
        pairs = list(zip(recipes, problems, strict=True))
        networks = stack_networks(
            [_networks(recipe, task, problem, dtype) for recipe, problem in pairs], generators
        )
        feeds = Lanes([_feeds(recipe, problem, dtype) for recipe, problem in pairs])
        everything = feeds.everything()
        if first.method.needs_dropout or placement(networks.classifier, everything.x[:2]) != "none":
            networks.sampler = DropoutPasses.of(networks.classifier, everything.x[:2])
        for generator, recipe in zip(generators, recipes, strict=True):
            generator.manual_seed(derive(recipe.seed, "training"))
        return _trained(first, task, networks, feeds, everything)


def _trained(
    recipe: Recipe, task: Regression, networks: Networks, feeds: DataFeeds, everything: Batch
) -> NDArray[np.float64]:
    method, budget = recipe.method, recipe.budget
    assert isinstance(method, Bilevel)
    state = training.new_state(method, budget, networks, feeds, CPU)
    training.fit(state, method, task, budget, Silent())
    weights: NDArray[np.float64] = method.weigh(networks, task, everything).double().numpy()
    return weights

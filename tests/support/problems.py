"""Small problems that train in a second."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from revar.data.source import Part, Source
from revar.fitting import fit_model
from revar.model import Model
from revar.progress import Silent
from revar.recipe import Budget, Recipe, make_method, with_settings

CPU = torch.device("cpu")


def blobs(
    n: int = 240, n_classes: int = 3, seed: int = 0, spread: float = 0.7
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Gaussian clusters on a circle, overlapping a little."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    angle = 2 * np.pi * y / n_classes
    centres = 2.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x = np.concatenate([centres, np.zeros((n, 2))], axis=1)
    return x + spread * generator.standard_normal(x.shape), y


def source(n: int = 240, n_classes: int = 3, *, test: bool = True) -> Source:
    """Clusters as a source, with a test set of fresh draws."""
    tests = {"test": Part(*blobs(n, n_classes, seed=1))} if test else {}
    return Source(Part(*blobs(n, n_classes)), tests=tests)


def recipe(method: str = "revar", *, epochs: int = 4, seed: int = 0, **settings: object) -> Recipe:
    """A short recipe on a small net."""
    chosen = Recipe(
        method=make_method(method),
        backbone="mlp",
        budget=Budget(epochs=epochs, batch_size=32),
        test_passes=5,
        seed=seed,
    )
    return with_settings(chosen, {name: str(value) for name, value in settings.items()})


def fit(method: str = "revar", data: Source | None = None, **settings: object) -> Model:
    """A trained model."""
    epochs, seed = int(str(settings.pop("epochs", 4))), int(str(settings.pop("seed", 0)))
    chosen = recipe(method, epochs=epochs, seed=seed, **settings)
    return fit_model(chosen, data or source(), device=CPU, observer=Silent())

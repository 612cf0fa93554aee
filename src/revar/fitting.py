"""From a recipe and data to a trained model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revar import training
from revar.checkpoint import to_device
from revar.data.augment import resolve as resolve_augment
from revar.data.inputs import Inputs, fit_inputs
from revar.data.labels import Classes
from revar.data.source import Part, Source
from revar.errors import InputError
from revar.feeds import ResidentFeeds
from revar.methods.reweighting import WeightNormalisation, normalise_weights
from revar.model import Model
from revar.nets.base import Classifier, Dropout
from revar.nets.build import Backbone, resolve
from revar.nets.normalise import Normalise
from revar.predictions import Predictions
from revar.randomness import derive, seeded
from revar.recipe import Recipe
from revar.scores.learned import Fitted, fit_scores
from revar.splits import Fingerprint, refuse_reuse, take_off
from revar.stochastic import DropoutPasses, placement
from revar.training import Observer, TrainingState
from revar.types import Networks, Task


@dataclass(frozen=True, slots=True)
class Split:
    """Encoded examples: stored values, class numbers, and where they come from."""

    x: Tensor
    y: NDArray[np.int64]
    index: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Data ready to train on, and a recipe with nothing left open."""

    recipe: Recipe
    task: Task
    classes: Classes
    inputs: Inputs
    splits: dict[str, Split]
    tests: dict[str, Split]
    unlabelled: Tensor
    fingerprints: dict[str, Fingerprint]


class Keeper(Protocol):
    """Whoever keeps checkpoints of a run."""

    def begin(self, data: Prepared, state: TrainingState) -> None:
        """The run is about to start: bring the state to the last checkpoint, if there is one."""

    def save(self, state: TrainingState) -> None:
        """Keep this state."""


def prepare(recipe: Recipe, source: Source) -> Prepared:
    """Encode, split and check.

    Raises:
        InputError: labels, inputs or sizes that cannot be trained on.
    """
    train = source.train
    if train.y is None:
        raise InputError("the training data has no labels")
    _same_length(train)
    classes = Classes.of(train.y)
    y = classes.encode(train.y)
    shares = {"meta": 0.0 if source.meta else recipe.splits.meta, "tune": recipe.splits.tune}
    rows = take_off(y, train.groups, shares, recipe.seed)
    inputs = fit_inputs(train.x, rows["train"])
    x = inputs.encode(train.x)
    splits = {name: Split(x[rows[name]], y[rows[name]], rows[name]) for name in rows}
    if source.meta is not None:
        splits["meta"] = _encoded(source.meta, inputs, classes)
    tests = {name: _encoded(part, inputs, classes) for name, part in source.tests.items()}
    unlabelled = x[:0] if source.unlabelled is None else inputs.encode(source.unlabelled.x)

    fingerprints: dict[str, Fingerprint] = {}
    named = {**splits, **{f"test:{name}": split for name, split in tests.items()}}
    for name, split in named.items():
        fingerprint = Fingerprint.of(split.x)
        if (name == "meta" and source.meta is not None) or name.startswith("test:"):
            refuse_reuse(fingerprint, name, fingerprints)
        fingerprints[name] = fingerprint

    counts = np.bincount(splits["train"].y, minlength=len(classes))
    task = Task(
        n_classes=len(classes),
        input_shape=inputs.shape,
        class_weights=_class_weights(recipe.class_weight, counts),
    )
    resolved = replace(
        recipe,
        budget=recipe.budget.resolved(len(splits["train"].x)),
        backbone=resolve(recipe.backbone, inputs.shape),
    )
    return Prepared(
        recipe=resolved,
        task=task,
        classes=classes,
        inputs=inputs,
        splits=splits,
        tests=tests,
        unlabelled=unlabelled,
        fingerprints=fingerprints,
    )


def _same_length(part: Part) -> None:
    for name, values in (("y", part.y), ("groups", part.groups)):
        if values is not None and len(values) != len(part.x):
            raise InputError(f"X has {len(part.x)} rows, {name} has {len(values)}")


def _encoded(part: Part, inputs: Inputs, classes: Classes) -> Split:
    if part.y is None:
        raise InputError("meta and test sets need labels")
    _same_length(part)
    x = inputs.encode(part.x)
    return Split(x, classes.encode(part.y), np.arange(len(x)))


def _class_weights(wanted: Any, counts: NDArray[np.int64]) -> tuple[float, ...] | None:
    if wanted is None:
        return None
    if wanted == "balanced":
        return tuple((counts.sum() / (len(counts) * counts)).tolist())
    if len(wanted) != len(counts):
        raise InputError(f"{len(wanted)} class weights for {len(counts)} classes")
    return tuple(float(weight) for weight in wanted)


def build_networks(
    recipe: Recipe, task: Task, example: Tensor, module: nn.Module | None, device: torch.device
) -> Networks:
    """New networks, from the recipe's seed.

    Args:
        recipe: with its backbone resolved.
        task: what they are for.
        example: [n, ...] a few stored inputs.
        module: the user's own network, where the backbone is ``custom``.
        device: to build them on.

    Raises:
        InputError: no such backbone, or the method needs dropout and the net has none.
    """
    shape = task.input_shape

    def make(n_outputs: int, name: str | None = None) -> Classifier:
        wanted = name or ("auto" if module is not None else recipe.backbone)
        return Backbone(wanted, Dropout(rate=0.0)).build(shape, n_outputs)

    # Built on the CPU, so that every device starts from the same weights.
    with seeded(derive(recipe.seed, "weights"), torch.device("cpu")):
        backbone = Backbone(recipe.backbone, recipe.dropout, module)
        classifier = backbone.build(shape, task.n_classes)
        scorer = recipe.method.build_scorer(classifier, make)
    networks = Networks(Normalise(shape), classifier, scorer)
    to_device(networks, device)
    inputs = networks.normalise(example.to(device))
    if recipe.method.needs_dropout or placement(classifier, inputs) != "none":
        networks.sampler = DropoutPasses.of(classifier, inputs)
    return networks


def fit_model(
    recipe: Recipe,
    source: Source,
    *,
    device: torch.device,
    observer: Observer,
    module: nn.Module | None = None,
    keeper: Keeper | None = None,
) -> Model:
    """Train, predict on every split, and fit what the tune split decides."""
    return fit_prepared(
        prepare(recipe, source), device=device, observer=observer, module=module, keeper=keeper
    )


def fit_prepared(
    data: Prepared,
    *,
    device: torch.device,
    observer: Observer,
    module: nn.Module | None = None,
    keeper: Keeper | None = None,
) -> Model:
    """The same, for data that is prepared already."""
    recipe, task, splits = data.recipe, data.task, data.splits
    budget = recipe.budget
    assert budget.batch_size is not None
    with seeded(derive(recipe.seed, "training"), device):
        networks = build_networks(recipe, task, splits["train"].x[:2], module, device)
        networks.normalise.load_state_dict(Normalise.fitted(splits["train"].x).state_dict())
        feeds = ResidentFeeds(
            (splits["train"].x, torch.from_numpy(splits["train"].y)),
            (splits["meta"].x, torch.from_numpy(splits["meta"].y)),
            data.unlabelled if recipe.method.uses_unlabelled else data.unlabelled[:0],
            normalise=networks.normalise,
            augment=resolve_augment(budget.augment, task.input_shape),
            batch_size=budget.batch_size,
            seed=recipe.seed,
            device=device,
        )
        state = training.new_state(recipe.method, budget, networks, feeds, device)
        if keeper is not None:
            keeper.begin(data, state)
        training.fit(
            state, recipe.method, task, budget, observer, None if keeper is None else keeper.save
        )
    model = Model(
        recipe=recipe,
        task=task,
        classes=data.classes,
        inputs=data.inputs,
        networks=networks,
        fitted=Fitted(default_score=recipe.method.default_score),
        device=device,
        fingerprints=dict(data.fingerprints),
    )
    for name, split in {**splits, **data.tests}.items():
        if len(split.x):
            model.predictions[name] = model.predict_encoded(split.x, split.y, split.index)
    model.predictions["train"] = _with_weights(model.predictions["train"], recipe)
    model.fitted = fit_scores(
        model.predictions.get("tune"),
        default_score=recipe.method.default_score,
        orientation=recipe.method.orientation,
    )
    return model


def _with_weights(train: Predictions, recipe: Recipe) -> Predictions:
    """Add the weights of the training points, normalised over all of them."""
    if "uscore" not in train.columns:
        return train
    raw = torch.from_numpy(train.columns["uscore"]).double().sigmoid()
    how: WeightNormalisation = getattr(recipe.method, "weight_normalisation", "none")
    weight = normalise_weights(raw, how).numpy()
    return replace(train, columns={**train.columns, "weight": weight})

"""From a recipe and data to a trained model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from revar import training
from revar.checkpoint import progress_of, restore, to_device, weights_of
from revar.data.augment import resolve as resolve_augment
from revar.data.source import Source
from revar.errors import InputError
from revar.feeds import DataFeeds
from revar.functional import as_usual, call, flat_state, keep_statistics, mode, parameters
from revar.in_parts import in_parts
from revar.methods.base import Bilevel, Method, Sizes
from revar.methods.reweighting import Reweighting, WeightNormalisation, normalise_weights
from revar.model import Model
from revar.nets.base import Classifier, Dropout
from revar.nets.build import Backbone
from revar.nets.finetuning import (
    SAMPLE,
    TIMM,
    freeze_trunk,
    has_new_head,
    input_statistics,
    load_start,
    zero_head,
)
from revar.nets.normalise import Normalise
from revar.parallel import world
from revar.predictions import Predictions, together
from revar.preparation import Prepared, prepare
from revar.randomness import RandomState, derive, preserved, repeatable, seeded
from revar.recipe import Recipe
from revar.recomputed import recomputed
from revar.replay import can_replay, replaying
from revar.rows import check_rows, end_sharing, gather_rows, spread_rows
from revar.scores import available
from revar.scores.learned import Fitted, fit_scores
from revar.sharded import joint_outputs, own, sharing
from revar.stochastic import DropoutPasses, placement
from revar.training import Observer, TrainingState
from revar.types import Networks, Task


class Keeper(Protocol):
    """Whoever keeps checkpoints of a run."""

    def begin(self, data: Prepared, state: TrainingState) -> None:
        """The run is about to start: bring the state to the last checkpoint, if there is one."""

    def save(self, state: TrainingState) -> None:
        """Keep this state; the tables that processes share are whole in it."""


def build_networks(
    recipe: Recipe,
    task: Task,
    example: Tensor,
    module: nn.Module | None,
    device: torch.device,
    *,
    pretrained: bool = False,
) -> Networks:
    """New networks, from the recipe's seed.

    Args:
        recipe: with its backbone resolved.
        task: what they are for.
        example: [n, ...] a few stored inputs.
        module: the user's own network, where the backbone is ``custom``.
        device: to build them on.
        pretrained: with the weights the recipe starts from; else new ones, to be replaced.

    Raises:
        InputError: no such backbone, the method needs dropout and the net has none, or the
            weights to start from cannot be had or are of another network.
    """
    shape = task.input_shape

    def make(n_outputs: int, name: str | None = None, reduction: int = 1) -> Classifier:
        wanted = name or ("auto" if module is not None else recipe.backbone)
        smaller = shape if reduction == 1 else _reduced(shape, reduction)
        return Backbone(wanted, Dropout(rate=0.0)).build(smaller, n_outputs)

    # Built on the CPU, so that every device starts from the same weights.
    with seeded(derive(recipe.seed, "weights"), torch.device("cpu")):
        from_timm = pretrained and recipe.start.pretrained == TIMM
        backbone = Backbone(recipe.backbone, recipe.dropout, module, pretrained=from_timm)
        classifier = backbone.build(shape, task.n_classes)
        _check_checkpoints(classifier, recipe.method)
        scorer = recipe.method.build_scorer(classifier, make)
        heads = recipe.method.build_heads(classifier, task.n_classes)
    if pretrained and recipe.start.file is not None:
        load_start(classifier, recipe.start.file)
    elif from_timm and has_new_head(classifier, task.n_classes):
        zero_head(classifier)
    if recipe.start.frozen:
        freeze_trunk(classifier)
    if recipe.start.statistics_are_kept:
        keep_statistics(classifier)
    networks = Networks(Normalise(shape), classifier, scorer, heads=heads)
    to_device(networks, device)
    inputs = networks.normalise(example.to(device))
    if recipe.method.needs_dropout or placement(classifier, inputs) != "none":
        networks.sampler = DropoutPasses.of(classifier, inputs)
    return networks


def _check_checkpoints(classifier: nn.Module, method: Method) -> None:
    """Refuse a network that computes layers again by itself, where that would go wrong.

    It would do so with the parameters of then, which in a look-ahead are others.

    Raises:
        InputError: with the way out.
    """
    flags = ("grad_checkpointing", "gradient_checkpointing")
    own = any(getattr(part, flag, False) is True for part in classifier.modules() for flag in flags)
    if own and isinstance(method, (Bilevel, Reweighting)):
        msg = (
            f"{type(method).__name__} looks ahead, and this network checkpoints its layers itself, "
            "which would compute them again with other parameters: switch that off "
            "(timm: set_grad_checkpointing(False)) and use recompute=true"
        )
        raise InputError(msg)


def _reduced(shape: tuple[int, ...], reduction: int) -> tuple[int, ...]:
    """Of images whose sides are so many times smaller.

    Raises:
        InputError: these are no images, or nothing would be left of them.
    """
    if len(shape) != 3 or min(shape[1:]) < reduction:
        form = " x ".join(map(str, shape))
        msg = f"scorer_reduction is {reduction}, and inputs are {form}: it is for larger images"
        raise InputError(msg)
    return shape[0], shape[1] // reduction, shape[2] // reduction


@as_usual()
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
        prepare(recipe, source, device),
        device=device,
        observer=observer,
        module=module,
        keeper=keeper,
    )


@as_usual()
def fit_prepared(
    data: Prepared,
    *,
    device: torch.device,
    observer: Observer,
    module: nn.Module | None = None,
    keeper: Keeper | None = None,
    stop: Callable[[], bool] | None = None,
) -> Model:
    """The same, for data that is prepared already.

    Where several processes train together all come here; the keeper of the first one is asked,
    and its model has the predictions.

    Raises:
        InterruptedRun: ``stop`` said so after some step; the keeper has the state.
        LostProcess: another process died; the keeper has an earlier state.
    """
    recipe, task, splits = data.recipe, data.task, data.splits
    budget = recipe.budget
    assert budget.batch_size is not None
    with seeded(derive(recipe.seed, "training"), device), repeatable(budget.deterministic):
        first = splits["train"].x[: 2 if recipe.start.pretrained is None else SAMPLE]
        networks = build_networks(recipe, task, first[:2], module, device, pretrained=True)
        networks.normalise.load_state_dict(data.normalise.state_dict())
        if recipe.start.pretrained is not None:
            found = input_statistics(networks.classifier, recipe.start.file, first)
            networks.normalise.load_state_dict(found, strict=False)
        feeds = DataFeeds(
            splits["train"],
            splits["meta"],
            data.unlabelled if recipe.method.uses_unlabelled else data.unlabelled[:0],
            normalise=networks.normalise,
            augment=resolve_augment(budget.augment, task.input_shape),
            batch_size=budget.batch_size,
            workers=budget.workers,
            seed=recipe.seed,
            device=device,
        )
        sizes = Sizes(
            train=feeds.train_size,
            meta=feeds.meta_size,
            unlabelled=feeds.unlabelled_size,
            n_classes=task.n_classes,
            weights=len(flat_state(networks.classifier)),
        )
        memory = recipe.method.build_memory(sizes)
        networks.memory = None if memory is None else memory.to(device)
        state = training.new_state(
            recipe.method, budget, networks, feeds, device, layer_decay=recipe.start.layer_decay
        )
        if keeper is not None:
            world().once(lambda: keeper.begin(data, state))
        _agree(state)
        keep = None if keeper is None else partial(_keep, keeper)
        parts = in_parts(networks.classifier, budget.micro_batch)
        wanted = can_replay(budget, device, known_net=module is None)
        with (
            joint_outputs(networks.classifier),
            parts,
            recomputed(networks.classifier, wanted=budget.recompute),
            replaying(device, wanted=wanted) as step,
        ):
            _check_split(networks, splits["train"].x[: 2 * world().size + 1], device)
            training.fit(
                state, recipe.method, task, budget, observer, checkpoint=keep, stop=stop, step=step
            )
    end_sharing(networks)
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
    if not world().first:
        return model
    for name, split in {**splits, **data.tests}.items():
        if len(split.x):
            predictions = model.predict_encoded(split.x, split.y, split.index)
            model.predictions[name] = _with_recalled(model, replace(predictions, split=name))
    if recipe.method.transductive:
        predictions = replace(model.predict_encoded(data.unlabelled), split="unlabelled")
        model.predictions["unlabelled"] = _with_recalled(model, predictions)
    model.predictions["train"] = _with_weights(model.predictions["train"], recipe)
    held_out = [model.predictions[s] for s in recipe.method.tuned_on if s in model.predictions]
    model.fitted = fit_scores(
        together(held_out, "tune") if held_out else None,
        default_score=recipe.method.default_score,
        orientation=recipe.method.orientation,
        own=recipe.method.own_score,
    )
    if model.fitted.default_score not in available(model.predictions["train"], model.fitted):
        # A method that is selected by dropout passes, on a net without dropout.
        model.fitted = replace(model.fitted, default_score="softmax")
    return model


def _agree(state: TrainingState) -> None:
    """Bring every process to the state of the first, which may have read a checkpoint."""
    everyone = world()
    if everyone.size == 1:
        return

    def read() -> bool:
        if state.tables:
            check_rows(state.networks, state.tables)
        return bool(state.tables)

    if everyone.once(read):
        spread_rows(state.networks, state.tables)
        state.tables = {}
    weights = everyone.same(weights_of(state))
    tensors, plain = progress_of(state)
    tensors, plain = everyone.same(tensors), everyone.once(lambda: plain)
    restore(state, weights, tensors, plain)


def _keep(keeper: Keeper, state: TrainingState) -> None:
    """Let the first process keep the state, once it has the rows of all."""
    state.tables = gather_rows(state.networks)
    if world().first:
        keeper.save(state)
    state.tables = {}


@torch.no_grad()
def _check_split(networks: Networks, stored: Tensor, device: torch.device) -> None:
    """Refuse a network that gives other outputs for a batch once its rows are split.

    Raises:
        InputError: it mixes examples or draws random numbers in a way that cannot be split.
    """
    if world().size == 1 or len(stored) < 2:
        return
    x, classifier = networks.normalise(stored.to(device)), networks.classifier
    outputs, states = [], []
    for split in (False, True):
        # With copies of the parameters the statistics of batch norm are copies, too.
        with preserved(device), mode(classifier, dropout=True, statistics=False):
            if split:
                with sharing(len(x)):
                    outputs.append(call(classifier, parameters(classifier), own(x)))
            else:
                outputs.append(call(classifier, parameters(classifier), x))
            states.append(RandomState.capture(device))
    # Kernels for other sizes round otherwise; another mask changes outputs by their own size.
    apart, largest = (outputs[0] - outputs[1]).abs().max(), outputs[0].abs().max()
    differ = bool(apart > 0.05 * largest) or not states[0].equals(states[1])
    if world().any(differ):
        msg = (
            f"{type(classifier).__name__} cannot be split between processes: a layer of it draws "
            "random numbers of its own or mixes examples (stochastic depth, dropout of attention "
            "weights); train it with one process"
        )
        raise InputError(msg)


def _with_recalled(model: Model, predictions: Predictions) -> Predictions:
    """Add what the method remembers of these very examples."""
    logits = torch.from_numpy(predictions.logits).to(model.device)
    found = model.recipe.method.recall(model.networks, predictions.split, logits)
    scores = {name: values.float().cpu().numpy() for name, values in found.items()}
    return replace(predictions, scores={**predictions.scores, **scores})


def _with_weights(train: Predictions, recipe: Recipe) -> Predictions:
    """Add the weights of the training points, normalised over all of them."""
    if "uscore" not in train.columns or not isinstance(recipe.method, Bilevel):
        return train
    raw = torch.from_numpy(train.columns["uscore"]).double().sigmoid()
    how: WeightNormalisation = getattr(recipe.method, "weight_normalisation", "none")
    weight = normalise_weights(raw, how).numpy()
    return replace(train, columns={**train.columns, "weight": weight})

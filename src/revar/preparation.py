"""From raw data and a recipe to splits that are ready to train on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.data.inputs import Inputs, fit_inputs
from revar.data.labels import Classes
from revar.data.source import Part, Source
from revar.data.stored import Scan, Stored, scan, settle, take
from revar.errors import DataWarning, InputError
from revar.nets.build import resolve
from revar.nets.normalise import Normalise
from revar.recipe import Recipe, method_name
from revar.splits import Fingerprint, refuse_reuse, take_off
from revar.types import Task

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Split:
    """Encoded examples: stored values, class numbers, and where they come from."""

    x: Stored
    y: NDArray[np.int64]
    index: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Data ready to train on, and a recipe with nothing left open."""

    recipe: Recipe
    task: Task
    classes: Classes
    inputs: Inputs
    splits: dict[str, Split]
    tests: dict[str, Split]
    unlabelled: Stored
    normalise: Normalise
    fingerprints: dict[str, Fingerprint]


def prepare(recipe: Recipe, source: Source, device: torch.device = CPU) -> Prepared:
    """Encode, split and check.

    Args:
        recipe: what is chosen.
        source: raw data.
        device: it will be trained on; data that fits is brought into memory.

    Raises:
        InputError: labels, inputs or sizes that cannot be trained on, or no weights to start from.
    """
    start = recipe.start.resolved()
    train = source.train
    if train.y is None:
        raise InputError("the training data has no labels")
    _same_length(train)
    classes = Classes.of(train.y)
    y = classes.encode(train.y)
    shares = {
        "meta": 0.0 if source.meta else recipe.splits.meta,
        "tune": 0.0 if "tune" in source.splits else recipe.splits.tune,
    }
    rows = take_off(y, train.groups, shares, recipe.seed)
    inputs = fit_inputs(train.x, rows["train"])
    loader = recipe.budget.loader
    x = settle(inputs.encode(train.x), loader, device)
    seen = scan(x)
    weights = _weights(train.weights)
    splits = {
        name: Split(
            take(x, rows[name]),
            y[rows[name]],
            rows[name],
            None if weights is None else weights[rows[name]],
        )
        for name in rows
    }
    prints = {name: Fingerprint.of_rows(seen.hashes[rows[name]]) for name in rows}

    given = {f"test:{name}": part for name, part in source.tests.items()}
    if source.meta is not None:
        del prints["meta"]
        given["meta"] = source.meta
    if "tune" in source.splits:
        del prints["tune"]
        given["tune"] = source.splits["tune"]
    encoded = {}
    for name, part in given.items():
        encoded[name] = _encoded(part, inputs, classes)
        print_ = Fingerprint.of(encoded[name].x)
        refuse_reuse(print_, name, prints)
        prints[name] = print_
    if "meta" in encoded:
        # Its batches are drawn again and again, a test set is read once.
        meta = encoded.pop("meta")
        splits["meta"] = replace(meta, x=settle(meta.x, loader, device))
    if "tune" in encoded:
        splits["tune"] = encoded.pop("tune")
    _warn_of_duplicates(prints)
    unlabelled = take(x, rows["train"][:0])
    if source.unlabelled is not None:
        unlabelled = settle(inputs.encode(source.unlabelled.x), loader, device)

    counts = np.bincount(splits["train"].y, minlength=len(classes))
    task = Task(
        n_classes=len(classes),
        input_shape=inputs.shape,
        class_weights=_class_weights(recipe.class_weight, counts),
    )
    resolved = replace(
        recipe,
        budget=recipe.budget.resolved(
            len(splits["train"].x), gentle=start.pretrained is not None and not start.frozen
        ),
        start=start,
        backbone=resolve(recipe.backbone, inputs.shape),
    )
    return Prepared(
        recipe=resolved,
        task=task,
        classes=classes,
        inputs=inputs,
        splits=splits,
        tests={name.removeprefix("test:"): split for name, split in encoded.items()},
        unlabelled=unlabelled,
        normalise=_normalise(splits["train"].x, seen, rows["train"], inputs.shape),
        fingerprints=prints,
    )


def _normalise(x: Stored, seen: Scan, rows: NDArray[np.int64], shape: tuple[int, ...]) -> Normalise:
    if len(shape) == 3:
        return Normalise.of_images(seen.means[rows], seen.squares[rows], shape)
    # Rows of numbers are small enough to be at hand.
    return Normalise.fitted(x if isinstance(x, Tensor) else x[:])


def warn_of_unused(recipe: Recipe, source: Source) -> None:
    """Say that a meta set was brought which nothing is learned from."""
    method = recipe.method
    fitted_on = method.uses_tune and "meta" in method.tuned_on
    if source.meta is not None and not method.uses_meta and not fitted_on:
        name = method_name(method)
        msg = f"{name} learns nothing from a meta set: train on it, or choose a method that does"
        warnings.warn(msg, DataWarning, stacklevel=3)


def _warn_of_duplicates(prints: dict[str, Fingerprint]) -> None:
    """Say how many rows the training split shares with others: copies make figures too good."""
    shared = {
        name.partition(":")[2] or name: other.shared_with(prints["train"])
        for name, other in prints.items()
        if name != "train"
    }
    found = ", ".join(f"{count} of {name}" for name, count in shared.items() if count)
    if found:
        msg = f"rows that are in the training split too: {found}; copies make figures too good"
        warnings.warn(msg, DataWarning, stacklevel=3)


def _same_length(part: Part) -> None:
    named = (("y", part.y), ("groups", part.groups), ("sample_weight", part.weights))
    for name, values in named:
        if values is not None and len(values) != len(part.x):
            raise InputError(f"X has {len(part.x)} rows, {name} has {len(values)}")


def _encoded(part: Part, inputs: Inputs, classes: Classes) -> Split:
    if part.y is None:
        raise InputError("meta and test sets need labels")
    _same_length(part)
    x = inputs.encode(part.x)
    return Split(x, classes.encode(part.y), np.arange(len(x)))


def _weights(given: NDArray[np.float64] | None) -> NDArray[np.float32] | None:
    """Weights of mean one, so that their scale does not rescale the learning rate."""
    if given is None:
        return None
    if not np.isfinite(given).all() or (given < 0).any():
        raise InputError("sample_weight holds negative, missing or infinite weights")
    if not given.any():
        raise InputError("sample_weight is zero for every example: nothing would be learned")
    # By a power of two first, which changes no digit: sums of large weights are infinite.
    moderate = np.ldexp(given, -np.frexp(given.max())[1])
    scaled: NDArray[np.float32] = (moderate / moderate.mean()).astype(np.float32)
    return scaled


def _class_weights(wanted: Any, counts: NDArray[np.int64]) -> tuple[float, ...] | None:
    if wanted is None:
        return None
    if wanted == "balanced":
        return tuple((counts.sum() / (len(counts) * counts)).tolist())
    if len(wanted) != len(counts):
        raise InputError(f"{len(wanted)} class weights for {len(counts)} classes")
    return tuple(float(weight) for weight in wanted)

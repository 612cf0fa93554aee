"""``revar train``"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from revar.commands.checks import check_data, check_unused
from revar.commands.columns import refuse_two_uses, warn_of_names
from revar.commands.reading import CELLS, reading_again, reading_beside
from revar.data.noisy import LabelNoise
from revar.data.source import Reading, Source, load_inputs, load_source
from revar.errors import InputError
from revar.keeping import train_into
from revar.parallel import joined, place, started
from revar.preparation import warn_of_unused
from revar.recipe import Budget, Recipe, Start, make_method, with_settings
from revar.registry import DEFAULT_METHOD
from revar.run import RunFolder
from revar.splits import SplitPlan
from revar.training import Observer


def train(
    data: str,
    out: str | Path,
    *,
    method: str = DEFAULT_METHOD,
    backbone: str = "auto",
    pretrained: str | None = None,
    frozen: bool = False,
    layer_decay: float = 1.0,
    epochs: int = 30,
    seed: int = 0,
    target: str | None = None,
    group: str | None = None,
    image: str | None = None,
    leave_out: Sequence[str] = (),
    meta: str | None = None,
    unlabelled: str | None = None,
    label_noise: str | None = None,
    clean_meta: bool = False,
    skip_unreadable: bool = False,
    settings: Mapping[str, str] | None = None,
    resume: bool = False,
    device: str = "auto",
    observer: Observer | None = None,
    stop: Callable[[], bool] | None = None,
) -> RunFolder:
    """Train a model and write its run folder.

    In a process that ``torchrun`` started it trains together with the others of its job, and the
    first of them writes.

    Args:
        data: a registered name, a folder of class folders, an ``.npz`` or a ``.csv`` file.
        out: the folder to write; it must not hold another run.
        method: a name of ``revar list methods``.
        backbone: a name of ``revar list backbones``, or of timm.
        pretrained: a file of weights to start from, or ``timm`` for those timm has.
        frozen: train the head only.
        layer_decay: factor on the learning rate from each layer to the one below.
        epochs: passes over the training data.
        seed: of everything random.
        target: the column of labels of a CSV file.
        group: the column of a CSV file whose rows must stay together.
        image: the column of a CSV file that names image files.
        leave_out: columns of a CSV file that are no inputs.
        meta: a meta set of its own, as ``data``.
        unlabelled: inputs without labels, as ``data`` or as ``revar predict`` takes them.
        label_noise: flip training labels, ``KIND:RATE``; test sets and ``meta`` stay clean.
        clean_meta: take the meta set off before the noise.
        skip_unreadable: go on without images that cannot be read, and count them.
        settings: further fields by name, as text.
        resume: go on with an unfinished run in ``out``.
        device: ``auto``, ``cpu``, ``cuda``, ...
        observer: is told of every step.
        stop: is asked after every step whether to stop; the state is kept for ``resume``.

    Raises:
        InputError: with one line that says what to change; nothing is left behind.
        InterruptedRun: ``stop`` said so.
        LostProcess: another process of the job died; ``resume`` goes on from what was kept.
    """
    folder = RunFolder(Path(out))
    recipe = Recipe(
        method=make_method(method),
        backbone=backbone,
        start=Start(pretrained=pretrained, frozen=frozen, layer_decay=layer_decay),
        budget=Budget(epochs=epochs),
        seed=seed,
    )
    chosen = dict(settings or {})
    recipe = with_settings(recipe, chosen)
    splits = SplitPlan.chosen(
        recipe.splits.meta if "meta_fraction" in chosen else None,
        recipe.splits.tune if "tune_fraction" in chosen else None,
        uses_meta=recipe.method.uses_meta or clean_meta,
        uses_tune=recipe.method.uses_tune,
    )
    recipe = replace(recipe, splits=splits)
    noise = _noise(label_noise, clean_meta=clean_meta)
    check_data(data)
    # Before the data is read, which may take long.
    recipe = replace(recipe, start=recipe.start.resolved())
    # The first process may have begun to write when another one comes here.
    if not resume and started().first:
        check_unused(folder.path)
    where = place(device)
    reading = Reading(
        target=target, group=group, image=image, skip_unreadable=skip_unreadable,
        leave_out=tuple(leave_out),
    )  # fmt: skip
    refuse_two_uses(reading)
    if resume:
        reading = reading_again(reading, folder)
    source = _source(recipe, data, reading, meta, unlabelled)
    warn_of_unused(recipe, source)
    warn_of_names(source)
    if noise is not None:
        source = noise.added_to(source, meta_share=recipe.splits.meta, seed=recipe.seed)
    given = {
        "spec": data.rstrip("/") or data, "target": target, "group": group, "image": image,
        "leave_out": list(leave_out) or None, "cells": CELLS,
        "added_label_noise": None if noise is None else str(noise),
    }  # fmt: skip
    with joined(where, one_gpu=":" in device):
        train_into(
            folder, recipe, source, given, resume=resume, device=where, observer=observer,
            stop=stop,
        )  # fmt: skip
    return folder


def _noise(text: str | None, *, clean_meta: bool) -> LabelNoise | None:
    if text is not None:
        return LabelNoise.parse(text, clean_meta=clean_meta)
    if clean_meta:
        raise InputError("--clean-meta needs --label-noise: without noise every meta set is clean")
    return None


def _source(
    recipe: Recipe, data: str, reading: Reading, meta: str | None, unlabelled: str | None
) -> Source:
    source = load_source(data, reading)
    meta_part, unlabelled_part = source.meta, source.unlabelled
    others = reading_beside(reading, source)
    if meta is not None:
        meta_part = load_source(meta, others).train
    if unlabelled is not None:
        if not recipe.method.uses_unlabelled:
            msg = (
                "--unlabelled is given but not used: add --set unlabelled=pooled (revar, vr) or "
                "--set register=true (history)"
            )
            raise InputError(msg)
        unlabelled_part = load_inputs(unlabelled, others)
    return replace(source, meta=meta_part, unlabelled=unlabelled_part)

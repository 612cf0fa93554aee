"""One run of the study of the U-Score, from a job to a small file."""

from __future__ import annotations

import functools
import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revar import fields
from revar.data.augment import resolve as augmentation
from revar.data.labels import Classes
from revar.data.readers import joined
from revar.data.source import Part, Source, load_source
from revar.devices import choose
from revar.errors import DataWarning, InputError
from revar.fitting import fit_prepared
from revar.model import Model
from revar.predictions import Predictions
from revar.preparation import prepare
from revar.progress import Silent
from revar.provenance import provenance
from revar.randomness import derive
from revar.recipe import Recipe
from revar.scores import available, correct, uncertainty
from revar.scores.learned import Fitted, fit_fusion, fused
from revar.splits import SplitPlan, take_off
from revar.tables import sources
from revar.tables.cell import Cell
from revar.tables.places import Setting, scale_of
from revar.tables.sources import few, set_name, source_of
from revar.tables.ways import Way as TableWay
from side_by_side import in_one_line, let_go
from uscore_store import Run, Scored, note, write_run
from uscore_tasks import AUGMENTED, COPIES, Job
from where import commit

SCORES = ("softmax", "uscore", "fused", "dropout_entropy")
"""Kept of every run that has them, besides its own; ``mcd`` has the values of the last."""
_FOLDS = 5
read_once = functools.cache(load_source)
"""Data sets by name; nothing changes what was read."""


def cell_of(job: Job) -> Cell:
    """The run as the tables of the paper would have it, without the sets that are not scored."""
    place = job.about.place
    setting = place if isinstance(place, Setting) else scale_of(job.scale).places[place].setting
    way = TableWay(method=job.way.method, settings=job.way.settings)
    cell = setting.cell(way).seeded(job.seed)
    tests = tuple(dict.fromkeys(_own_sets(job).values()))
    return replace(cell, data=replace(cell.data, tests=tests, clean_meta=job.clean_meta))


def sets_of(job: Job) -> dict[str, str]:
    """What a test set is called in the study, and in its data."""
    return {**_own_sets(job), **{name: name for name in job.about.domains}}


def _own_sets(job: Job) -> dict[str, str]:
    """Without other data sets."""
    if isinstance(job.about.place, Setting):
        return dict(job.about.sets)
    places = scale_of(job.scale).places
    return {name: places[place].tests[0] for name, place in job.about.sets.items()}


def asked(job: Job) -> dict[str, Any]:
    """All that decides what a run comes to, as plain JSON values.

    Raises:
        InputError: no such field, or a value it cannot take.
    """
    cell = cell_of(job)
    plain = {"data": fields.to_json(cell.data), "recipe": cell.recipe().to_json()}
    whole: dict[str, Any] = {**plain, "whole": job.way.whole, "member": job.way.member}
    if job.way.with_meta:
        whole["with_meta"] = True
    if job.about.domains:
        whole["domains"] = dict(job.about.domains)
    # As it comes back from a file.
    return dict(json.loads(json.dumps(whole)))


def known_to(kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What is wanted, without fields that are younger than what is kept.

    >>> known_to({"a": 1, "m": {"b": 2}}, {"a": 3, "m": {"b": 2, "new": 5}, "late": 1})
    {'a': 3, 'm': {'b': 2}}
    """
    return {
        name: known_to(kept[name], value)
        if isinstance(value, Mapping) and isinstance(kept[name], Mapping)
        else value
        for name, value in wanted.items()
        if name in kept
    }


def is_finished(job: Job, out: Path) -> bool:
    """Whether the run is there.

    Raises:
        InputError: it is, but was made in another way.
    """
    path = job.file(out)
    if not path.exists():
        return False
    kept, wanted = Run(path).about["asked"], asked(job)
    if kept != {**wanted, "recipe": known_to(kept["recipe"], wanted["recipe"])}:
        msg = f'"{path}" was trained with other settings: rename the way, or remove the file'
        raise InputError(msg)
    return True


def source_for(job: Job, cell: Cell, recipe: Recipe) -> Source:
    """The data of a run.

    Raises:
        InputError: it is not here.
    """
    source = source_of(cell, recipe)
    domains = {name: read_once(data).train for name, data in job.about.domains.items()}
    source = replace(source, tests={**source.tests, **domains}) if domains else source
    if job.clean_meta and cell.data.label_noise is None:
        source = _with_true_labels(cell, source, recipe.splits.meta)
    if job.way.with_meta and source.meta is not None:
        return replace(source, train=joined([source.train, source.meta]), meta=None)
    if not job.way.whole:
        return source
    held = [source.meta, source.splits.get("tune")]
    everything = joined([source.train, *(part for part in held if part is not None)])
    return replace(source, train=everything, meta=None, splits={})


def _with_true_labels(cell: Cell, source: Source, share: float) -> Source:
    """The labels that people gave, and a meta set with those of the data set itself."""
    given = read_once(cell.data.name).train
    true = read_once(cell.data.name.partition("n-")[0]).train
    assert given.y is not None
    assert true.y is not None
    rows: NDArray[np.int64] = np.arange(len(given))
    if cell.data.train is not None:
        # The draw looks at labels and sizes only, so that it can be made on row numbers.
        rows = few(Part(rows, given.y), cell.data.train, cell.seed).x
    labels = Classes.of(given.y[rows]).encode(given.y[rows])
    parts = take_off(labels, None, {"meta": share}, cell.seed)
    train = given.take(rows[parts["train"]])
    meta = rows[parts["meta"]]
    return replace(source, train=train, meta=replace(given.take(meta), y=true.y[meta]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of a job.

    Attributes:
        job: it.
        reason: why it failed, in one line; ``None`` where it is finished.
        seconds: it took.
        figures: AUARC on tune data by score, for those who watch; test sets stay closed.
    """

    job: Job
    reason: str | None = None
    seconds: float = 0.0
    figures: dict[str, float | None] | None = None


def start_worker() -> None:
    """One thread, and every data set is read once: to decode one takes a tenth of a run."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DataWarning)
    sources.load_source = read_once  # type: ignore[attr-defined]


def one_run(job: Job, out: Path, device: str, code: str = "") -> Told:
    """Train, score and write one run; what goes wrong is written beside it in one line.

    Args:
        job: which.
        out: of the study.
        device: as users name it.
        code: its commit, where git cannot tell.
    """
    began = time.perf_counter()
    path = job.file(out)
    try:
        figures = _train(job, path, choose(device), code)
    except Exception as error:
        reason = in_one_line(error)
        write_note(path, reason)
        return Told(job=job, reason=reason, seconds=time.perf_counter() - began)
    finally:
        let_go()
    return Told(job=job, seconds=time.perf_counter() - began, figures=figures)


def write_note(path: Path, reason: str) -> None:
    """Say beside a run why it failed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    note(path).write_text(f"{reason}\n", encoding="utf-8")


def _train(job: Job, path: Path, device: torch.device, code: str) -> dict[str, float | None]:
    began = time.perf_counter()
    cell = cell_of(job)
    recipe = cell.recipe()
    source = source_for(job, cell, recipe)
    if job.way.whole or job.way.with_meta:
        tune = 0.0 if job.way.whole else recipe.splits.tune
        recipe = replace(recipe, splits=SplitPlan(meta=0.0, tune=tune))
    data = prepare(recipe, source, device)
    if job.way.member:
        # After the splits were drawn: the same data, other weights and batches.
        seed = derive(job.seed, "member", job.way.member)
        data = replace(data, recipe=replace(data.recipe, seed=seed))
    model = fit_prepared(data, device=device, observer=Silent())
    fitted_in = time.perf_counter() - began
    sets = {"tune": "tune", **{name: set_name(own) for name, own in sets_of(job).items()}}
    scored = {
        name: _scored(
            model,
            own,
            _groups(source, model, own),
            probabilities=job.way.in_ensemble and name != "tune",
            copied=_augmented(model, source.tests[own])
            if job.way.augmented and name != "tune"
            else None,
        )
        for name, own in sets.items()
        if own in model.predictions
    }
    fusion = model.fitted.fusion
    about = {
        "way": job.way.name, "method": job.way.method, "seed": job.seed, "scale": job.scale,
        "own": model.fitted.own, "default": model.fitted.default_score,
        "fusion": None if fusion is None else fields.to_json(fusion),
        "recipe": data.recipe.to_json(), "digest": data.recipe.digest, "asked": asked(job),
        "seconds": fitted_in, "sizes": {name: len(split.x) for name, split in data.splits.items()},
        "made": {**provenance(), "commit": code or commit()},
    }  # fmt: skip
    write_run(path, about, scored)
    if "tune" not in scored:
        return {}
    return {score: found["auarc"] for score, found in scored["tune"].figures().items()}


def _groups(source: Source, model: Model, name: str) -> NDArray[np.integer] | None:
    """[n] numbers of patients, where a set has them."""
    if name != "tune":
        groups = source.tests[name].groups
    elif "tune" in source.splits:
        groups = source.splits["tune"].groups
    else:
        groups = source.train.groups
        groups = None if groups is None else groups[model.predictions["tune"].index]
    if groups is None:
        return None
    _, numbers = np.unique(groups, return_inverse=True)
    return numbers.astype(np.int32)


def _augmented(model: Model, part: Part) -> Predictions | None:
    """By the mean over copies, as users get it; nothing where training made no copies."""
    how = augmentation(model.recipe.budget.augment, model.task.input_shape)
    if not (how.pad or how.flip):
        return None
    return model.predict_augmented(part.x, part.y, copies=COPIES)


def _scored(
    model: Model,
    name: str,
    groups: NDArray[np.integer] | None,
    *,
    probabilities: bool,
    copied: Predictions | None,
) -> Scored:
    found, fitted = model.predictions[name], model.fitted
    there = available(found, fitted)
    wanted = [score for score in (*SCORES, fitted.own) if score in there and score != "mcd"]
    scores: dict[str, NDArray[np.floating]]
    scores = {score: uncertainty(found, score, fitted) for score in wanted}
    if name == "tune" and "fused" in scores:
        scores["fused"] = crossed(found, fitted, groups)
    if copied is not None:
        scores[AUGMENTED] = copied.scores[AUGMENTED]
    return Scored(
        correct=correct(found, "softmax", fitted),
        scores=scores,
        correct_mcd=correct(found, "mcd", fitted) if "mcd" in there else None,
        correct_augmented=None if copied is None else copied.correct(),
        patients=groups,
        labels=found.labels if probabilities else None,
        log_probabilities=found.log_probabilities if probabilities else None,
    )


def crossed(
    tune: Predictions, fitted: Fitted, groups: NDArray[np.integer] | None
) -> NDArray[np.float64]:
    """[n] the fused score of tune examples by models that were fitted without them.

    The one of the run was fitted on these very examples, which would flatter it against scores
    that were not. Five folds, whole patients where there are any. The models differ in their
    intercepts and slopes, and a model that saw fewer errors is held against a fold with more: so
    each is standardised on all examples, which takes no labels.
    """
    numbers = np.arange(len(tune)) if groups is None else groups
    whole, of_example = np.unique(numbers, return_inverse=True)
    fold = (np.random.default_rng(0).permutation(len(whole)) % _FOLDS)[of_example]
    values = np.empty(len(tune))
    for number in range(min(_FOLDS, len(whole))):
        rest = _rows(tune, np.flatnonzero(fold != number))
        every = fused(tune, replace(fitted, fusion=fit_fusion(rest, fitted)))
        held = fold == number
        values[held] = ((every - every.mean()) / max(every.std(), 1e-12))[held]
    return values


def _rows(found: Predictions, rows: NDArray[np.int64]) -> Predictions:
    names = ("labels", "dropout_mean", "dropout_variance", "dropout_entropy",
             "dropout_expected_entropy")  # fmt: skip
    there = {name: getattr(found, name) for name in names}
    some: dict[str, Any] = {n: values[rows] for n, values in there.items() if values is not None}
    return replace(
        found,
        index=found.index[rows],
        logits=found.logits[rows],
        columns={name: values[rows] for name, values in found.columns.items()},
        scores={name: values[rows] for name, values in found.scores.items()},
        **some,
    )

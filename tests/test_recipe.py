from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revar import fields
from revar.errors import InputError
from revar.methods.base import Method
from revar.methods.erm import ERM
from revar.methods.revar import ReVaR
from revar.nets.base import Dropout
from revar.recipe import (
    Budget,
    Recipe,
    Start,
    make_method,
    method_class,
    method_name,
    with_settings,
)
from revar.registry import BACKBONES, DATASETS, METHODS, OWN_SCORES, SCORES, Entry, find, load
from revar.splits import SplitPlan
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task

NAMES = [entry.name for entry in METHODS]


def through_text(recipe: Recipe) -> Recipe:
    return Recipe.from_json(json.loads(json.dumps(recipe.to_json())))


CHANGED = Recipe(
    method=ReVaR(
        scorer="network",
        scorer_backbone="mlp",
        meta_batch=None,
        warmup_epochs=3,
        variance_weight=0.25,
        orientation="auto",
    ),
    backbone="resnet20",
    dropout=Dropout(rate=0.1, placement="everywhere"),
    budget=Budget(epochs=7, batch_size=32, optimiser="adamw", gradient_clip=None),
    start=Start(pretrained="w.pth", layer_decay=0.5, sha256="0" * 64),
    splits=SplitPlan(meta=0.2, tune=0.0),
    class_weight=(1.0, 2.5),
    test_passes=0,
    seed=2**62,
)


# --- JSON


@pytest.mark.parametrize("name", NAMES)
def test_every_registered_method_comes_back_equal(name: str) -> None:
    method = make_method(name)
    recipe = Recipe(method=method)
    assert through_text(recipe) == recipe
    assert recipe.to_json()["method"]["name"] == name
    assert fields.from_json(type(method), fields.to_json(method)) == method


def test_a_recipe_with_everything_changed_comes_back_equal() -> None:
    assert through_text(CHANGED) == CHANGED
    assert through_text(replace(CHANGED, class_weight="balanced")).class_weight == "balanced"
    default = Recipe(method=ERM())
    assert not any(
        getattr(CHANGED, name) == getattr(default, name) for name in fields.hints(Recipe)
    )


@given(
    epochs=st.integers(1, 500),
    rate=st.floats(0, 0.99),
    variance=st.floats(0, 10),
    seed=st.integers(0, 2**63 - 1),
    weights=st.none() | st.lists(st.floats(0.1, 9), min_size=2, max_size=4).map(tuple),
)
def test_recipes_come_back_equal_and_with_the_same_digest(
    epochs: int, rate: float, variance: float, seed: int, weights: tuple[float, ...] | None
) -> None:
    recipe = Recipe(
        method=ReVaR(variance_weight=variance),
        dropout=Dropout(rate=rate),
        budget=Budget(epochs=epochs),
        class_weight=weights,
        seed=seed,
    )
    again = through_text(recipe)
    assert again == recipe
    assert again.digest == recipe.digest


def without(*path: str) -> dict[str, Any]:
    data: dict[str, Any] = Recipe(method=ReVaR()).to_json()
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return data


def changed(value: Any, *path: str) -> dict[str, Any]:
    data: dict[str, Any] = Recipe(method=ReVaR()).to_json()
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(5, "method", "intervall"), 'field of ReVaR "intervall": did you mean "interval"'),
        (changed(5, "budget", "epoch"), 'field of Budget "epoch": did you mean "epochs"'),
        (changed(0.1, "dropout", "rat"), 'field of Dropout "rat": did you mean "rate"'),
        (changed(0.1, "splits", "tun"), 'field of SplitPlan "tun": did you mean "tune"'),
        (changed("revr", "method", "name"), 'unknown method "revr": did you mean "revar"'),
        (changed("x", "method", "interval"), "ReVaR: interval is 'x', it must be a whole number"),
        (changed(0, "method", "interval"), "ReVaR: interval is 0, it must be at least 1"),
        (changed(0, "budget", "epochs"), "Budget: epochs is 0, it must be at least 1"),
        (changed("x", "seed"), "Recipe: seed is 'x', it must be a whole number"),
        (changed(1, "sead"), "no recipe of ours: .*sead"),
        (changed(None, "budget"), "no recipe of ours"),
        (without("method"), "no recipe of ours: 'method'"),
        (without("method", "name"), "no recipe of ours: 'name'"),
        (without("budget"), "no recipe of ours: 'budget'"),
    ],
)
def test_what_is_no_recipe_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe.from_json(data)


# --- digests


def test_equal_recipes_have_equal_digests_however_they_were_made() -> None:
    one = Recipe(
        method=ReVaR(variance_weight=1),
        dropout=Dropout(rate=0),
        budget=Budget(epochs=np.int64(5), gradient_clip=5, weight_decay=np.float32(0.5)),  # type: ignore[arg-type]
        class_weight=(1, 2),
        test_passes=np.int64(4),  # type: ignore[arg-type]
        seed=np.int64(3),  # type: ignore[arg-type]
    )
    two = Recipe(
        method=ReVaR(variance_weight=1.0),
        dropout=Dropout(rate=0.0),
        budget=Budget(epochs=5, gradient_clip=5.0, weight_decay=0.5),
        class_weight=(1.0, 2.0),
        test_passes=4,
        seed=3,
    )
    assert one == two
    assert one.digest == two.digest == through_text(one).digest


@pytest.mark.parametrize(
    "change",
    [
        lambda r: replace(r, seed=1),
        lambda r: replace(r, backbone="mlp"),
        lambda r: replace(r, test_passes=11),
        lambda r: replace(r, class_weight="balanced"),
        lambda r: replace(r, class_weight=(1.0, 2.0)),
        lambda r: replace(r, method=ERM()),
        lambda r: replace(r, method=ReVaR.paper()),
        lambda r: replace(r, method=ReVaR(interval=6)),
        lambda r: replace(r, budget=Budget(epochs=31)),
        lambda r: replace(r, dropout=Dropout(rate=0.31)),
        lambda r: replace(r, splits=SplitPlan(meta=0.11)),
    ],
)
def test_different_recipes_have_different_digests(change: Callable[[Recipe], Recipe]) -> None:
    recipe = Recipe(method=ReVaR())
    assert change(recipe) != recipe
    assert change(recipe).digest != recipe.digest


# --- names of methods


def test_a_method_goes_by_its_registered_name() -> None:
    assert [method_name(make_method(name)) for name in NAMES] == NAMES
    assert method_name(ReVaR()) == "revar"
    assert method_name(ReVaR.paper()) == "revar-paper"
    assert method_name(ReVaR(interval=7)) == "revar"
    assert method_name(replace(ReVaR.paper(), interval=7)) == "revar"


@dataclass(frozen=True, kw_only=True)
class Stranger(Method):
    """A method that is in no list."""

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        raise NotImplementedError


def test_a_method_that_is_not_registered_goes_by_its_class_and_is_not_read_back() -> None:
    recipe = Recipe(method=Stranger())
    assert method_name(Stranger()) == "Stranger"
    with pytest.raises(InputError, match='unknown method "Stranger"'):
        Recipe.from_json(recipe.to_json())


def test_methods_are_made_by_name_or_handed_through() -> None:
    method = ReVaR(interval=9)
    assert make_method(method) is method
    assert make_method("erm") == ERM()
    assert method_class("revar-paper") is ReVaR
    with pytest.raises(InputError, match='unknown method "revr": did you mean "revar"'):
        make_method("revr")
    with pytest.raises(InputError, match="a name or a Method object is needed"):
        make_method(3)  # type: ignore[arg-type]


# --- settings


def test_settings_go_to_the_part_that_has_the_field() -> None:
    recipe = with_settings(
        Recipe(method=ReVaR()),
        {
            "interval": "9",
            "meta_batch": "none",
            "variance_weight": "0.5",
            "epochs": "4",
            "learning_rate": "1e-2",
            "gradient_clip": "none",
            "optimiser": "adamw",
            "dropout_rate": "0.2",
            "dropout_placement": "everywhere",
            "meta_fraction": "0.25",
            "tune_fraction": "0",
            "test_passes": "5",
        },
    )
    assert recipe == Recipe(
        method=ReVaR(interval=9, meta_batch=None, variance_weight=0.5),
        budget=Budget(epochs=4, learning_rate=0.01, gradient_clip=None, optimiser="adamw"),
        dropout=Dropout(rate=0.2, placement="everywhere"),
        splits=SplitPlan(meta=0.25, tune=0.0),
        test_passes=5,
    )


def test_no_settings_change_nothing() -> None:
    assert with_settings(CHANGED, {}) == CHANGED


def test_every_field_of_the_method_and_the_budget_can_be_set() -> None:
    for part in (ReVaR(), Budget()):
        for name in fields.hints(type(part)):
            text = str(getattr(part, name))
            assert with_settings(Recipe(method=ReVaR()), {name: text}) == Recipe(method=ReVaR())


def test_settings_that_belong_together_may_come_in_any_order() -> None:
    expected = Recipe(method=ReVaR(scorer="network", scorer_backbone="mlp"))
    pairs = [("scorer", "network"), ("scorer_backbone", "mlp")]
    for order in (pairs, pairs[::-1]):
        assert with_settings(Recipe(method=ReVaR()), dict(order)) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("intervall", "5", 'unknown field "intervall": did you mean "interval"'),
        ("droput_rate", "5", 'did you mean "dropout_rate"'),
        ("interval", "five", 'ReVaR: interval="five", it must be a whole number'),
        ("interval", "0", "ReVaR: interval is 0, it must be at least 1"),
        ("epochs", "none", 'Budget: epochs="none", it must be a whole number'),
        ("schedule", "linear", "one of cosine, step, constant"),
        ("dropout_rate", "1.5", r"Dropout: rate is 1\.5, it must be in \[0, 1\)"),
        ("meta_fraction", "0.6", "SplitPlan: meta is 0.6"),
        ("test_passes", "1", "Recipe: test_passes is 1, it must be 0, or 2 and more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_settings(Recipe(method=ReVaR()), {name: text})


def test_fields_of_another_method_are_unknown() -> None:
    with pytest.raises(InputError, match='unknown field "interval"'):
        with_settings(Recipe(method=ERM()), {"interval": "5"})


# --- the recipe and its budget


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_passes": 1}, "test_passes is 1"),
        ({"test_passes": -1}, "test_passes is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is"),
        ({"seed": 1.5}, "seed is 1.5, it must be a whole number"),
        ({"backbone": None}, "backbone is None, it must be text"),
        ({"class_weight": "equal"}, "class_weight is 'equal'"),
        ({"method": "erm"}, "method is 'erm'"),
    ],
)
def test_a_recipe_out_of_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe(**{"method": ERM(), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs is 0, it must be at least 1"),
        ({"batch_size": 1}, "batch_size is 1, it must be >= 2"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0, it must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate is nan, it must be a finite number"),
        ({"gradient_clip": -1.0}, "gradient_clip is -1.0, it must be positive"),
        ({"lr_warmup": 1.0}, r"lr_warmup is 1\.0, it must be in \[0, 1\)"),
        ({"momentum": -0.1}, "momentum is -0.1, it must not be negative"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1, it must not be negative"),
        ({"augment": "flip"}, "augment is 'flip', it must be one of auto, none, shift"),
        ({"epochs": 2.0}, "epochs is 2.0, it must be a whole number"),
    ],
)
def test_a_budget_out_of_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Budget(**changes)


@pytest.mark.parametrize(
    ("n_train", "batch"),
    [(1, 16), (511, 16), (512, 32), (1023, 32), (1024, 64), (2047, 64), (2048, 128), (10**6, 128)],
)
def test_an_open_batch_size_is_a_sixteenth_and_a_power_of_two(n_train: int, batch: int) -> None:
    assert Budget().resolved(n_train).batch_size == batch
    assert Budget(batch_size=48).resolved(n_train).batch_size == 48


def test_an_open_learning_rate_depends_on_the_optimiser() -> None:
    assert Budget().resolved(100).learning_rate == 0.1
    assert Budget(optimiser="adamw").resolved(100).learning_rate == 0.002
    assert Budget(learning_rate=0.7).resolved(100).learning_rate == 0.7


def test_resolving_settles_everything_and_only_once() -> None:
    settled = Budget(epochs=3).resolved(1000)
    assert settled == replace(Budget(epochs=3), batch_size=32, learning_rate=0.1)
    assert settled.resolved(10**6) == settled


# --- the registry


@pytest.mark.parametrize(
    "entry",
    [e for e in (*METHODS, *SCORES, *BACKBONES, *DATASETS) if e.target],
    ids=lambda e: e.name,
)
def test_every_registered_name_stands_for_something(entry: Entry) -> None:
    assert callable(load(entry.target))
    assert entry.summary
    assert "\n" not in entry.summary


def test_names_are_registered_once() -> None:
    for entries in (METHODS, SCORES, BACKBONES, DATASETS):
        names = [entry.name for entry in entries]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("entry", METHODS, ids=lambda e: e.name)
def test_a_method_offers_registered_scores_its_default_first(entry: Any) -> None:
    assert set(entry.scores) <= {score.name for score in (*SCORES, *OWN_SCORES)}
    assert make_method(entry.name).default_score == entry.scores[0]


def test_an_unknown_entry_gets_the_nearest() -> None:
    assert find("score", "uscore", SCORES).name == "uscore"
    with pytest.raises(InputError, match='unknown score "uscor": did you mean "uscore"'):
        find("score", "uscor", SCORES)
    with pytest.raises(InputError, match='unknown score "zzz": known: softmax'):
        find("score", "zzz", SCORES)


@pytest.mark.parametrize("name", ["revar", "revar-paper", "ibr"])
def test_a_recipe_older_than_a_shared_gradient_had_none(name: str) -> None:
    """Whatever the default is now."""
    stored = Recipe(method=make_method(name)).to_json()
    del stored["method"]["shares_gradient"]
    method = Recipe.from_json(stored).method
    assert isinstance(method, ReVaR)
    assert not method.shares_gradient

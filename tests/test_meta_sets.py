"""Who has a meta set: methods that learn from one, those who ask for one, and nobody else."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revar import InputError, ReVaR, SelectiveClassifier
from revar.cli import run
from revar.commands.train import train
from revar.errors import DataWarning
from revar.methods.base import Bilevel
from revar.methods.trajectory import Trajectory
from revar.recipe import make_method
from revar.registry import DEFAULT_METHOD, METHODS
from revar.run import RunFolder
from revar.splits import SplitPlan
from support.problems import CPU, blobs

NAMES = [entry.name for entry in METHODS]
LEARN_FROM_IT = {"adafocal", "ibr", "l2r", "mwn", "revar", "revar-paper"}
QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 32, "test_passes": 0, "random_state": 0}


def quick(method: str, **options: Any) -> SelectiveClassifier:
    return SelectiveClassifier(method, **{**QUICK, **options})


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    x, y = blobs()
    np.savez(path, x=x, y=y)
    return path


def trained(archive: Path, out: Path, method: str, **settings: str) -> RunFolder:
    chosen = {"batch_size": "32", "test_passes": "0", **settings}
    return train(str(archive), out, method=method, epochs=6, settings=chosen, device="cpu")


def splits_of(folder: RunFolder) -> dict[str, float]:
    found: dict[str, float] = folder.store.read_json("recipe.json")["splits"]
    return found


def test_the_default_is_trajectory_in_python_and_on_the_command_line() -> None:
    assert DEFAULT_METHOD == "trajectory"
    assert SelectiveClassifier().method == "trajectory"
    assert isinstance(make_method(SelectiveClassifier().method), Trajectory)
    assert inspect.signature(train).parameters["method"].default == "trajectory"


def test_the_command_line_trains_by_the_default(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--data", str(archive), "--epochs", "2", "--set", "test_passes=0"]) == 0
    (out,) = Path("runs").iterdir()
    assert out.name == "blobs-trajectory-seed0"
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["method"]["name"] == "trajectory"
    assert recipe["splits"] == {"meta": 0.0, "tune": 0.0}


def test_which_methods_hold_labels_back_for_their_score() -> None:
    assert {name for name in NAMES if make_method(name).uses_tune} == {"revar"}
    assert not Trajectory().uses_tune
    assert Trajectory(default_score="fused").uses_tune
    assert not ReVaR(default_score="softmax").uses_tune
    assert ReVaR(default_score="softmax", orientation="auto").uses_tune


@pytest.mark.parametrize("asked", [{"default_score": "fused"}, {"tune_fraction": "0.1"}])
def test_labels_are_held_back_where_it_is_asked_for(
    asked: dict[str, str], archive: Path, tmp_path: Path
) -> None:
    folder = trained(archive, tmp_path / "run", "trajectory", **asked)
    assert splits_of(folder) == {"meta": 0.0, "tune": 0.1}
    fitted = folder.fitted()
    assert fitted.fusion is not None
    assert fitted.default_score == asked.get("default_score", "softmax")


def test_a_meta_set_that_is_not_learned_from_is_told_of(archive: Path, tmp_path: Path) -> None:
    x_meta, y_meta = blobs(60, seed=5)
    given = {"X_meta": x_meta, "y_meta": y_meta}
    for method in ("erm", "trajectory"):
        with pytest.warns(DataWarning, match=f"^{method} learns nothing from a meta set: [^\\n]*$"):
            quick(method).fit(*blobs(), **given)
    np.savez(tmp_path / "meta.npz", x=x_meta, y=y_meta)
    with pytest.warns(DataWarning, match="^erm learns nothing from a meta set"):
        train(
            str(archive), tmp_path / "run", method="erm", epochs=1, device="cpu",
            meta=str(tmp_path / "meta.npz"), settings={"test_passes": "0"},
        )  # fmt: skip
    # A warning would be an error here.
    quick("revar", epochs=6).fit(*blobs(), **given)
    quick("erm").set_params(method=Trajectory(default_score="fused")).fit(*blobs(), **given)


def test_which_methods_learn_from_a_meta_set() -> None:
    assert {name for name in NAMES if make_method(name).uses_meta} == LEARN_FROM_IT
    # An outer level has nothing else to learn from.
    assert all(make_method(n).uses_meta for n in NAMES if isinstance(make_method(n), Bilevel))


@pytest.mark.parametrize("name", sorted(set(NAMES) - LEARN_FROM_IT))
def test_a_method_that_learns_from_none_trains_without_one(name: str) -> None:
    x, y = blobs()
    clf = quick(name).fit(x, y)
    assert {split: len(found) for split, found in clf.model_.predictions.items()} == {
        "train": len(y)
    }
    assert clf.model_.fitted.fusion is None
    again = quick(name, meta_fraction=0.0, tune_fraction=0.0).fit(x, y)
    np.testing.assert_array_equal(clf.predict_proba(x), again.predict_proba(x))
    fewer = quick(name, meta_fraction=0.2, tune_fraction=0.1).fit(x, y).model_
    sizes = {split: len(found) for split, found in fewer.predictions.items()}
    assert sizes == {"train": len(y) - 48 - 24, "meta": 48, "tune": 24}
    assert fewer.fitted.fusion is not None


@pytest.mark.parametrize("name", sorted(LEARN_FROM_IT))
def test_a_method_that_learns_from_one_gets_it_and_refuses_to_be_without(name: str) -> None:
    x, y = blobs()
    clf = quick(name, epochs=6)
    with pytest.raises(InputError, match="meta") as refused:
        clf.set_params(meta_fraction=0.0).fit(x, y)
    assert "\n" not in str(refused.value)
    clf.set_params(meta_fraction=None).fit(x, y)
    assert len(clf.model_.predictions["meta"]) == 24
    # One of one's own is enough.
    x_meta, y_meta = blobs(60, seed=5)
    clf.set_params(meta_fraction=0.0).fit(x, y, X_meta=x_meta, y_meta=y_meta)
    assert len(clf.model_.predictions["meta"]) == 60


@pytest.mark.parametrize("name", ["erm", "trajectory", "revar"])
@pytest.mark.parametrize("fraction", [None, 0.2])
def test_the_command_line_and_the_estimator_choose_the_same_splits(
    name: str, fraction: float | None, archive: Path, tmp_path: Path
) -> None:
    settings = {} if fraction is None else {"meta_fraction": str(fraction)}
    folder = trained(archive, tmp_path / "run", name, **settings)
    clf = quick(name, epochs=6, meta_fraction=fraction).fit(*blobs())
    expected = clf.model_.recipe.splits
    assert splits_of(folder) == {"meta": expected.meta, "tune": expected.tune}
    found = folder.load(device=CPU).predictions
    assert set(found) == set(clf.model_.predictions)
    for split, predictions in clf.model_.predictions.items():
        np.testing.assert_array_equal(found[split].index, predictions.index, err_msg=split)


def test_a_loaded_classifier_says_which_share_it_had(archive: Path, tmp_path: Path) -> None:
    for name, share in (("trajectory", 0.0), ("revar", 0.1)):
        folder = trained(archive, tmp_path / name, name)
        assert SelectiveClassifier.load(folder.path).meta_fraction == share


def test_a_clean_meta_set_is_there_for_every_method(archive: Path, tmp_path: Path) -> None:
    for clean in (True, False):
        folder = train(
            str(archive), tmp_path / f"run-{clean}", method="erm", epochs=1, device="cpu",
            label_noise="symmetric:0.4", clean_meta=clean, settings={"test_passes": "0"},
        )  # fmt: skip
        found = folder.load(device=CPU).predictions
        assert splits_of(folder) == {"meta": 0.1 if clean else 0.0, "tune": 0.0}
        assert {name: len(part) for name, part in found.items()} == (
            {"train": 216, "meta": 24} if clean else {"train": 240}
        )


def test_what_a_user_asks_for() -> None:
    def chosen(meta: float | None, tune: float | None, uses: bool) -> SplitPlan:
        return SplitPlan.chosen(meta, tune, uses_meta=uses, uses_tune=not uses)

    assert chosen(None, 0.2, False) == SplitPlan(meta=0.0, tune=0.2)
    assert chosen(None, 0.2, True) == SplitPlan(meta=0.1, tune=0.2)
    assert chosen(0.2, None, False) == SplitPlan(meta=0.2, tune=0.1)
    assert chosen(0.2, None, True) == SplitPlan(meta=0.2, tune=0.0)
    for uses in (False, True):
        assert chosen(0.0, 0.0, uses) == SplitPlan(meta=0.0, tune=0.0)
        assert chosen(0.3, 0.1, uses) == SplitPlan(meta=0.3, tune=0.1)

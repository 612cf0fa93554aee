"""What `save` leaves behind, also where it fails, and what `load` needs."""

from __future__ import annotations

import os
import pickle  # noqa: TID251  (as users do)
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from revar import SelectiveClassifier
from revar.errors import InputError
from revar.methods.erm import ERM
from revar.methods.vr import VR
from support.problems import blobs


@dataclass(frozen=True, kw_only=True)
class Mine(ERM):
    """A method that nobody has registered."""

    sharpness: float = 1.0


def fitted(**more: Any) -> SelectiveClassifier:
    chosen = {"epochs": 2, "random_state": 0, "device": "cpu", **more}
    return SelectiveClassifier(**chosen).fit(*blobs())


@pytest.fixture(scope="module")
def clf() -> SelectiveClassifier:
    return fitted()


def test_a_method_of_your_own_is_loaded_by_its_class(tmp_path: Path) -> None:
    clf, (x, _) = fitted(method=Mine(sharpness=2.0)), blobs(90, seed=1)
    clf.save(tmp_path / "run")
    with pytest.raises(InputError, match=r"method of your own, Mine: give its class .*method=Mine"):
        SelectiveClassifier.load(tmp_path / "run")
    with pytest.raises(InputError, match="method is VR, but the run was trained with Mine"):
        SelectiveClassifier.load(tmp_path / "run", method=VR)
    with pytest.raises(InputError, match="the class of a Method is needed"):
        SelectiveClassifier.load(tmp_path / "run", method=Mine())  # type: ignore[arg-type]
    loaded = SelectiveClassifier.load(tmp_path / "run", method=Mine)
    assert loaded.method == Mine(sharpness=2.0)
    np.testing.assert_array_equal(loaded.predict_proba(x), clf.predict_proba(x))


def test_the_class_of_a_registered_method_may_be_given(
    clf: SelectiveClassifier, tmp_path: Path
) -> None:
    clf.save(tmp_path / "run")
    own = type(clf.model_.recipe.method)
    assert isinstance(SelectiveClassifier.load(tmp_path / "run", method=own).method, own)
    with pytest.raises(InputError, match="the run was trained with trajectory"):
        SelectiveClassifier.load(tmp_path / "run", method=Mine)


class Tied(nn.Module):
    """Two layers with one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        """[n, 4] to [n, 3]."""
        output: Tensor = self.last(self.second(self.first(x).relu()).relu())
        return output


def test_layers_that_share_weights_are_saved(tmp_path: Path) -> None:
    x, _ = blobs(90, seed=1)
    clf = fitted(backbone=Tied(), method="erm")
    clf.save(tmp_path / "run")
    loaded = SelectiveClassifier.load(tmp_path / "run", backbone=Tied())
    np.testing.assert_array_equal(loaded.predict_proba(x), clf.predict_proba(x))


def test_a_save_that_fails_leaves_room_for_another(
    clf: SelectiveClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        # Somebody else writes there meanwhile.
        (tmp_path / "run" / "thesis.tex").write_text("years of work")
        raise InputError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("revar.run.RunFolder.write_metrics", fail)
        with pytest.raises(InputError, match="the disk is full"):
            clf.save(tmp_path / "run")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left - {".lock"} == {"thesis.tex"}
    (tmp_path / "run" / "thesis.tex").unlink()
    clf.save(tmp_path / "run")
    SelectiveClassifier.load(tmp_path / "run")


def test_what_was_there_before_is_not_touched(clf: SelectiveClassifier, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not empty"):
        clf.save(tmp_path / "run")
    (tmp_path / "file").write_text("and more")
    for place in ("file", "file/below"):
        with pytest.raises(InputError, match="cannot make the folder"):
            clf.save(tmp_path / place)
    assert (tmp_path / "run" / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "and more"


def test_a_save_that_was_killed_is_told_as_one(clf: SelectiveClassifier, tmp_path: Path) -> None:
    clf.save(tmp_path / "run")
    from revar.store import Store

    store = Store(tmp_path / "run")
    manifest = {name: files for name, files in store._manifest().items() if name != "metrics.csv"}
    store._write_manifest(manifest)
    with pytest.raises(InputError, match="its save was interrupted, save it again to another"):
        SelectiveClassifier.load(tmp_path / "run")


def test_a_loaded_classifier_may_move(
    clf: SelectiveClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clf.save("run")
    loaded = SelectiveClassifier.load("run")
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    loaded.save("again")
    pickled = pickle.dumps(loaded)
    shutil.rmtree(tmp_path / "run")
    copied = pickle.loads(pickled)  # noqa: S301
    copied.save("and again")
    for name in ("again", "and again"):
        assert list(SelectiveClassifier.load(name).model_.predictions) == list(
            clf.model_.predictions
        )
    # What is gone cannot be saved; nothing half-written stays.
    with pytest.raises(InputError, match="is missing"):
        loaded.save("too late")
    assert {path.name for path in Path("too late").iterdir()} <= {".lock"}


def test_a_second_fit_leaves_nothing_of_the_first(clf: SelectiveClassifier) -> None:
    import pandas as pd

    x, y = blobs()
    again = fitted()
    again.fit(pd.DataFrame(x, columns=list("abcd")), y)
    assert list(again.feature_names_in_) == list("abcd")
    again.fit(x, y)
    assert not hasattr(again, "feature_names_in_")
    assert again.n_features_in_ == 4
    again.fit(np.tile(x[:, :, None], (1, 1, 2)), y)
    assert not hasattr(again, "n_features_in_")
    seed = again.set_params(random_state=5, epochs=-1).seed_
    with pytest.raises(InputError):
        again.fit(x, y)
    assert again.seed_ == seed == again.model_.recipe.seed


@pytest.mark.parametrize(
    "around",
    [torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)],
    ids=["no_grad", "inference_mode", "autocast"],
)
@pytest.mark.parametrize("method", ["trajectory", "revar"])
def test_what_surrounds_a_call_does_not_change_it(around: Any, method: str) -> None:
    x, _ = blobs(90, seed=1)
    wanted = fitted(method=method).predict_proba(x)
    with around:
        clf = fitted(method=method)
        np.testing.assert_array_equal(clf.predict_proba(x), wanted)
    np.testing.assert_array_equal(clf.predict_proba(x), wanted)


def test_calibration_labels_are_one_for_each_row(clf: SelectiveClassifier, tmp_path: Path) -> None:
    x, y = blobs(90, seed=1)
    for labels in (y[:1], y[:-1], np.concatenate([y, y[:1]])):
        said = f"X has 90 rows, y has {len(labels)}"
        wishes: tuple[dict[str, Any], ...] = ({"max_risk": 0.3}, {"coverage": 0.5})
        for wish in wishes:
            with pytest.raises(InputError, match=said):
                clf.set_threshold(x, labels, **wish)
        with pytest.raises(InputError, match=said):
            clf.model_.predict(x, labels)
    assert clf.model_.threshold is None


@pytest.mark.parametrize("seed", ["a", 1.5, float("nan"), True, [1]])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises(InputError, match=r"random_state is .*whole number"):
        fitted(random_state=seed)


def test_seeds_of_numpy() -> None:
    assert fitted(random_state=np.int64(3)).seed_ == 3
    found = {fitted(random_state=np.random.default_rng(1)).seed_ for _ in range(2)}
    assert len(found) == 1


@pytest.mark.parametrize("device", [None, "meta", "abacus"])
def test_a_device_that_cannot_compute_is_refused(device: Any) -> None:
    with pytest.raises(InputError, match="is not here: use auto or cpu"):
        fitted(device=device)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"coverage": "x"}, "coverage is 'x', it must be a number"),
        ({"max_risk": "0.1"}, "max_risk is '0.1', it must be a number"),
        ({"max_risk": 0.1, "confidence": "x"}, "confidence is 'x', it must be a number"),
    ],
)
def test_wishes_are_numbers(clf: SelectiveClassifier, wish: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        clf.set_threshold(*blobs(90, seed=1), **wish)

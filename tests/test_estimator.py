from __future__ import annotations

import pickle  # noqa: TID251  (scikit-learn's users pickle estimators)
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import TensorDataset

from revar import ERM, InputError, ReVaR, SelectiveClassifier
from revar.commands.predict import predict
from revar.errors import DataWarning
from revar.scores import correct
from revar.serving.deciding import Decider
from support.problems import blobs


def quick(**options: Any) -> SelectiveClassifier:
    chosen = {"epochs": 4, "batch_size": 32, "test_passes": 4, "random_state": 0, **options}
    return SelectiveClassifier(**chosen)


@pytest.fixture(scope="module")
def fitted() -> SelectiveClassifier:
    return quick(epochs=8).fit(*blobs())


def test_the_readme_in_small(fitted: SelectiveClassifier) -> None:
    x, y = blobs(300, seed=1)
    assert fitted.score(x, y) > 0.9
    probabilities = fitted.predict_proba(x)
    assert probabilities.shape == (300, 3)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(300))
    assert np.array_equal(fitted.classes_[probabilities.argmax(axis=1)], fitted.predict(x))


def test_accepted_iff_the_uncertainty_is_at_most_the_threshold() -> None:
    clf = quick(epochs=8).fit(*blobs())
    x_cal, y_cal = blobs(200, seed=2)
    threshold = clf.set_threshold(x_cal, y_cal, coverage=0.9)
    assert threshold.coverage == pytest.approx(0.9)
    decision = clf.predict_or_abstain(x_cal)
    assert decision.accepted.sum() == 180
    assert np.array_equal(decision.accepted, threshold.accept(decision.uncertainty))
    assert np.array_equal(decision.labels, clf.predict(x_cal))
    x, y = blobs(600, seed=3)
    fresh = clf.predict_or_abstain(x)
    right = fresh.labels == y
    assert right[fresh.accepted].mean() > right.mean()


def test_labels_given_are_those_whose_errors_were_counted(tmp_path: Path) -> None:
    """With ``mcd`` those of the mean of the passes, by every way to ask."""
    x, y = blobs(160)
    y = np.where(np.random.default_rng(0).random(len(y)) < 0.3, (y + 1) % 3, y)
    clf = quick(method="erm", epochs=1, dropout_rate=0.8).fit(x, y)
    x_cal, y_cal = blobs(300, seed=2)
    clf.set_threshold(x_cal, y_cal, coverage=0.6, score="own")
    model, threshold = clf.model_, clf.model_.threshold
    assert threshold is not None
    assert threshold.score == "softmax", "by its name, not as own"
    threshold = clf.set_threshold(x_cal, y_cal, coverage=0.6, score="mcd")
    counted = correct(model.predictions["calibration"], "mcd", model.fitted)
    decision = clf.predict_or_abstain(x_cal)
    assert np.array_equal(decision.labels == y_cal, counted)
    assert not np.array_equal(decision.labels, clf.predict(x_cal)), "or nothing is tested"
    clf.save(tmp_path / "run")
    np.savez(tmp_path / "new.npz", x=x_cal)
    table = predict(tmp_path / "run", str(tmp_path / "new.npz"))
    assert [int(row[1]) for row in table.rows] == decision.labels.tolist()
    for row in table.rows:
        assert np.argmax([float(p) for p in row[4:]]) == int(row[1])
    served = Decider.of(tmp_path / "run").decide(torch.from_numpy(x_cal).float())
    assert served.predicted.tolist() == decision.labels.tolist()
    assert served.accepted.tolist() == decision.accepted.tolist()


@pytest.mark.parametrize("factor", [-1.0, float("nan"), 0.0])
def test_class_weights_that_cannot_be_are_refused(factor: float) -> None:
    with pytest.raises(InputError, match="class_weight"):
        quick(class_weight=dict.fromkeys(range(3), factor)).fit(*blobs())


def test_an_odd_number_of_examples_in_batches_of_two() -> None:
    """No batch is left with one, of which batch norm has no moments."""
    x, y = blobs(41)
    assert quick(method="erm", epochs=1, batch_size=2).fit(x, y).predict(x).shape == (41,)


def test_abstaining_without_a_threshold_says_what_to_call() -> None:
    clf = quick(method="erm").fit(*blobs())
    with pytest.raises(InputError, match=r"call set_threshold\(X_cal, y_cal, max_risk=0.05\)"):
        clf.predict_or_abstain(blobs()[0])


def test_the_threshold_keeps_its_score() -> None:
    clf = quick(method="erm").fit(*blobs())
    x, y = blobs(100, seed=2)
    clf.set_threshold(x, y, coverage=0.5, score="dropout_variance")
    decision = clf.predict_or_abstain(x)
    assert np.array_equal(decision.uncertainty, clf.uncertainty(x, score="dropout_variance"))


def test_training_data_cannot_calibrate() -> None:
    x, y = blobs()
    clf = quick(method="revar", epochs=8).fit(x, y)
    with pytest.raises(InputError, match="in the train, meta and tune splits and cannot serve"):
        clf.set_threshold(x, y, coverage=0.9)
    for name in ("meta", "tune"):
        rows = clf.model_.predictions[name].index
        with pytest.raises(InputError, match=f"in the {name} split and cannot serve as cal"):
            clf.set_threshold(x[rows], y[rows], coverage=0.9)


def test_half_new_data_may_calibrate() -> None:
    """More than half of the rows equal is refused, exactly half is not."""
    clf = quick(method="erm").fit(*blobs())
    x, y = blobs()
    index = clf.model_.predictions["train"].index[:20]
    x_new, y_new = blobs(20, seed=5)
    mixed, labels = np.concatenate([x[index], x_new]), np.concatenate([y[index], y_new])
    with pytest.warns(DataWarning, match="50% of these rows are in the train split: a threshold"):
        clf.set_threshold(mixed, labels, coverage=0.9)
    with pytest.raises(InputError, match="51% of these rows"):
        clf.set_threshold(mixed[:-1], labels[:-1], coverage=0.9)


def test_save_and_load_give_the_same_bits_threshold_included(tmp_path: Path) -> None:
    clf = quick().fit(*blobs())
    x, y = blobs(100, seed=2)
    clf.set_threshold(x, y, coverage=0.7)
    clf.save(tmp_path / "run")
    loaded = SelectiveClassifier.load(tmp_path / "run")
    before, after = clf.predict_or_abstain(x), loaded.predict_or_abstain(x)
    assert np.array_equal(before.uncertainty, after.uncertainty)
    assert np.array_equal(before.accepted, after.accepted)
    assert loaded.get_params()["epochs"] == 4
    with pytest.raises(InputError, match="holds a run already: choose another folder"):
        clf.save(tmp_path / "run")


def test_ways_to_save_memory(tmp_path: Path) -> None:
    """Blocks that are computed again give the same bits, and both are kept with the run."""
    x = np.random.default_rng(0).integers(0, 256, (48, 3, 8, 8)).astype(np.uint8)
    y = np.arange(48) % 3
    plain, again, parts = (
        quick(backbone="resnet20", epochs=1, **given).fit(x, y)
        for given in ({}, {"recompute": True}, {"micro_batch": 8})
    )
    assert np.array_equal(plain.predict_proba(x), again.predict_proba(x))
    assert not np.array_equal(plain.predict_proba(x), parts.predict_proba(x)), "by batch norm"
    again.save(tmp_path / "again")
    parts.save(tmp_path / "parts")
    found = [SelectiveClassifier.load(tmp_path / name).get_params() for name in ("again", "parts")]
    assert [(one["recompute"], one["micro_batch"]) for one in found] == [(True, None), (False, 8)]


def test_pickled_it_is_the_same() -> None:
    clf = quick(method="erm").fit(*blobs())
    x, _ = blobs(20, seed=2)
    copy = pickle.loads(pickle.dumps(clf))  # noqa: S301
    assert np.array_equal(copy.uncertainty(x), clf.uncertainty(x))


def test_the_seed_is_recorded_when_none_is_given() -> None:
    x, y = blobs()
    first = quick(method="erm", random_state=None).fit(x, y)
    again = quick(method="erm", random_state=first.seed_).fit(x, y)
    assert np.array_equal(first.predict_proba(x), again.predict_proba(x))


def test_the_uncertainty_of_a_row_does_not_depend_on_the_others(
    fitted: SelectiveClassifier,
) -> None:
    x, _ = blobs(50, seed=2)
    for score in ("softmax", "dropout_variance", "uscore"):
        whole = fitted.uncertainty(x, score)
        alone = np.concatenate([fitted.uncertainty(x[i : i + 1], score) for i in range(50)])
        assert alone == pytest.approx(whole, rel=1e-4, abs=1e-6)


# Inputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["nhw", "nhwc", "nchw", "float", "torch", "dataset"])
def test_images_of_any_kind(layout: str) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(80) % 2
    images = generator.integers(0, 100, (80, 10, 10, 3)).astype(np.uint8)
    images[y == 1, :5] += 100
    forms: dict[str, Any] = {
        "nhw": images[..., 0],
        "nhwc": images,
        "nchw": np.moveaxis(images, -1, 1),
        "float": images / 255.0,
        "torch": torch.from_numpy(np.moveaxis(images, -1, 1).copy()),
    }
    if layout == "dataset":
        data = TensorDataset(torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(y))
        clf = quick(method="erm", epochs=10).fit(data)
        assert (clf.predict(data) == y).mean() > 0.9
        return
    clf = quick(method="erm", epochs=10).fit(forms[layout], y)
    assert clf.score(forms[layout], y) > 0.9


def test_the_layout_of_images_does_not_change_the_model() -> None:
    generator = np.random.default_rng(0)
    images, y = generator.integers(0, 255, (40, 9, 9, 3)).astype(np.uint8), np.arange(40) % 2
    last = quick(method="erm").fit(images, y).predict_proba(images)
    first = quick(method="erm").fit(np.moveaxis(images, -1, 1), y)
    assert np.array_equal(first.predict_proba(np.moveaxis(images, -1, 1)), last)


def test_frames_with_categories_and_gaps() -> None:
    generator = np.random.default_rng(0)
    n = 300
    colour = generator.choice(["red", "green", "blue"], n)
    size = generator.normal(0, 1, n)
    y = np.where((colour == "red") ^ (size > 0), "yes", "no")
    frame = pd.DataFrame({"colour": colour, "size": size, "tall": size > 1})
    frame.loc[::10, "size"] = np.nan
    frame.loc[5::10, "colour"] = None
    clf = quick(epochs=20).fit(frame, y)
    assert clf.score(frame, y) > 0.85
    assert set(clf.predict(frame)) == {"yes", "no"}
    shuffled = frame[["tall", "size", "colour"]].assign(extra=1)
    assert np.array_equal(clf.predict_proba(shuffled), clf.predict_proba(frame))
    with pytest.raises(InputError, match='column "size" is missing'):
        clf.predict(frame.drop(columns="size"))


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["cat", "dog", "emu"]),
        np.array([10, -3, 700]),
        np.array([2.0, 5.0, 7.0]),
        pd.Series(["x", "y", "z"]).to_numpy(),
    ],
    ids=["text", "numbers", "floats", "pandas"],
)
def test_labels_of_any_kind_come_back_as_they_were(labels: Any) -> None:
    x, y = blobs()
    clf = quick(method="erm", epochs=6).fit(x, labels[y])
    assert clf.score(x, labels[y]) > 0.9
    assert clf.predict(x).dtype.kind == np.asarray(labels.tolist()).dtype.kind


def test_class_weight_by_label() -> None:
    x, y = blobs()
    named = np.array(["a", "b", "c"])[y]
    clf = quick(method="erm", class_weight={"b": 2.0}).fit(x, named)
    assert clf.model_.task.class_weights == (1.0, 2.0, 1.0)
    balanced = quick(method="erm", class_weight="balanced").fit(x, named)
    assert balanced.model_.task.class_weights == pytest.approx((1.0, 1.0, 1.0))
    with pytest.raises(InputError, match="'q' was not among"):
        quick(class_weight={"q": 2.0}).fit(x, named)


def test_groups_stay_together() -> None:
    x, y = blobs(300)
    patients = np.repeat(np.arange(60), 5)
    y = y[::5].repeat(5)
    clf = quick(method="erm", meta_fraction=0.1, tune_fraction=0.1).fit(x, y, groups=patients)
    rows = {name: clf.model_.predictions[name].index for name in ("train", "meta", "tune")}
    homes = [set(patients[index]) for index in rows.values()]
    assert not homes[0] & homes[1]
    assert not homes[0] & homes[2]
    assert not homes[1] & homes[2]
    assert sum(map(len, homes)) == 60


def test_own_modules_and_methods() -> None:
    x, y = blobs()
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
    before = [p.clone() for p in net.parameters()]
    clf = quick(method=ReVaR(interval=3), backbone=net, epochs=8).fit(x, y)
    assert clf.score(x, y) > 0.85
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_a_run_with_an_own_module_asks_for_it_when_loaded(tmp_path: Path) -> None:
    x, y = blobs()
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    clf = quick(method=ERM(), backbone=net).fit(x, y)
    clf.save(tmp_path / "run")
    with pytest.raises(InputError, match="network of your own: give it as backbone="):
        SelectiveClassifier.load(tmp_path / "run")
    loaded = SelectiveClassifier.load(tmp_path / "run", backbone=net)
    assert np.array_equal(loaded.predict_proba(x), clf.predict_proba(x))


def test_unlabelled_inputs_go_with_a_method_that_uses_them() -> None:
    x, y = blobs()
    with pytest.raises(InputError, match="does not use it"):
        quick().fit(x, y, X_unlabelled=x + 1)
    method = ReVaR(unlabelled="pooled", unlabelled_from=0.5)
    assert quick(method=method).fit(x, y, X_unlabelled=x + 1).score(x, y) > 0.5


# scikit-learn ----------------------------------------------------------------------------------


def test_it_can_be_cloned_and_keeps_its_parameters() -> None:
    clf = quick(method="erm", dropout_rate=0.2)
    assert clone(clf).get_params() == clf.get_params()


def test_unfitted_it_says_so() -> None:
    with pytest.raises(NotFittedError):
        quick().predict(blobs()[0])


def test_pipelines_searches_and_cross_validation() -> None:
    x, y = blobs()
    assert make_pipeline(StandardScaler(), quick(method="erm")).fit(x, y).score(x, y) > 0.8
    assert cross_val_score(quick(method="erm"), x, y, cv=2).mean() > 0.7
    search = GridSearchCV(quick(method="erm"), {"epochs": [1, 4]}, cv=2).fit(x, y)
    assert search.best_params_["epochs"] in (1, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "revr"}, 'unknown method "revr": did you mean "revar"'),
        ({"backbone": "convmet"}, 'unknown backbone "convmet": did you mean "convnet"'),
        ({"epochs": 0}, "epochs is 0"),
        ({"epochs": "ten"}, "epochs is 'ten', it must be a whole number"),
        ({"optimiser": "lion"}, "optimiser is 'lion', it must be one of sgd, adamw"),
        ({"meta_fraction": 0.7}, "meta is 0.7"),
        ({"class_weight": 3}, "class_weight is 3"),
        ({"device": "tpu"}, 'device "tpu" is not here'),
        ({"backbone": "resnet20"}, "reads images"),
        ({"method": 7}, "method is 7"),
    ],
)
def test_bad_options_are_named_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        quick(**options).fit(*blobs())
    assert "\n" not in str(caught.value)

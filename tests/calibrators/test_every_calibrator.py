"""What holds for every calibrator."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from revar import calibrators, fields, scores
from revar.calibrators import CALIBRATORS
from revar.errors import InputError
from revar.evaluation import evaluate
from revar.predictions import Predictions
from revar.registry import SCORES, load
from revar.scores.learned import Fitted
from support.synthetic import of_logits, of_passes

NAMES = [entry.name for entry in CALIBRATORS]
LOGIT_MAPS = ["temperature", "vector", "matrix", "platt", "isotonic"]
SETS = ["lac", "aps", "raps"]
every = pytest.mark.parametrize("name", NAMES)
PLAIN = Fitted(default_score="softmax")


def drawn(
    n: int = 300, n_classes: int = 2, *, seed: int = 0, sharp: float = 2.5, split: str = "tune"
) -> Predictions:
    """Labels drawn from softmax(z); the logits are `sharp` times z, so too sure by that factor."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (n, n_classes))
    chances = softmax(z, axis=1)
    labels = (chances.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=n_classes - 1)
    return of_logits((sharp * z).astype(np.float32), labels=labels, split=split)


def nll(predictions: Predictions) -> float:
    assert predictions.labels is not None
    rows = np.arange(len(predictions))
    return -float(predictions.log_probabilities[rows, predictions.labels].mean())


def same(one: Predictions, other: Predictions) -> bool:
    return one.to_bytes() == other.to_bytes()


@every
def test_its_name_is_its_entrys(name: str) -> None:
    entry = next(entry for entry in CALIBRATORS if entry.name == name)
    assert load(entry.target).name == name
    assert entry.summary
    assert entry.citation


@every
def test_it_goes_through_json_to_the_bit(name: str) -> None:
    fitted = calibrators.fit(name, drawn())
    text = json.dumps(calibrators.to_json(fitted), allow_nan=False)
    loaded = calibrators.from_json(json.loads(text))
    assert loaded == fitted
    assert type(loaded) is type(fitted)
    test = drawn(40, seed=1, split="test")
    assert same(loaded.apply(test), fitted.apply(test))


@every
@pytest.mark.parametrize("split", ["train", "meta", "calibration", "test", "on-clinic", "shifted"])
def test_another_split_is_refused(name: str, split: str) -> None:
    message = rf"^these are the {split} split and cannot fit a calibrator too: use the tune split$"
    with pytest.raises(InputError, match=message):
        calibrators.fit(name, drawn(split=split))


@every
def test_arrays_of_ones_own_are_allowed(name: str) -> None:
    assert calibrators.fit(name, drawn(split="")) == calibrators.fit(name, drawn())


@every
def test_labels_are_needed_to_fit_and_not_to_apply(name: str) -> None:
    data = drawn()
    with pytest.raises(InputError, match="no labels"):
        calibrators.fit(name, replace(data, labels=None))
    fitted = calibrators.fit(name, data)
    bare, labelled = fitted.apply(replace(data, labels=None)), fitted.apply(data)
    assert bare.labels is None
    assert same(replace(bare, labels=data.labels), labelled)


@every
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_refused_by_row(name: str, value: float) -> None:
    data = drawn()
    logits = data.logits.copy()
    logits[[3, 7], 1] = value
    broken = replace(data, logits=logits)
    with pytest.raises(InputError, match="not finite in 2 rows, first in row 3"):
        calibrators.fit(name, broken)
    with pytest.raises(InputError, match="not finite in 2 rows, first in row 3"):
        calibrators.fit(name, data).apply(broken)


@every
def test_other_bad_input_is_one_line(name: str) -> None:
    with pytest.raises(InputError, match="no rows"):
        calibrators.fit(name, of_logits(np.zeros((0, 2)), labels=np.zeros(0, dtype=np.int64)))
    with pytest.raises(InputError, match=r"C >= 2"):
        calibrators.fit(name, of_logits(np.zeros((3, 1)), labels=np.zeros(3, dtype=np.int64)))
    for labels in ([0, 1, 2], [0, -1, 1], [0, 1]):
        with pytest.raises(InputError, match="labels must be 3 class numbers from 0 to 1"):
            calibrators.fit(name, of_logits(np.eye(3)[:, :2], labels=np.array(labels)))


@pytest.mark.parametrize("name", ["vector", "matrix", "platt", "isotonic"])
def test_another_number_of_classes_is_refused(name: str) -> None:
    fitted = calibrators.fit(name, drawn())
    with pytest.raises(InputError, match="of 3 classes, the calibrator is for 2"):
        fitted.apply(drawn(5, 3))


@every
def test_it_changes_logits_or_adds_scores_and_keeps_the_rest(name: str) -> None:
    rng = np.random.default_rng(0)
    test = of_passes(
        rng.normal(size=(4, 30, 2)),
        labels=rng.integers(0, 2, 30),
        columns={"uscore": rng.normal(size=30)},
        scores={"given": rng.random(30)},
        split="test",
    )
    fitted = calibrators.fit(name, drawn())
    before = test.to_bytes()
    after = fitted.apply(test)
    assert test.to_bytes() == before
    added = {key: value for key, value in after.scores.items() if key != "given"}
    assert same(replace(after, logits=test.logits, scores=test.scores), test)
    np.testing.assert_array_equal(after.scores["given"], test.scores["given"])
    if name in LOGIT_MAPS:
        assert not added
        assert not np.array_equal(after.logits, test.logits)
    else:
        assert same(replace(after, scores=test.scores), test)
        suffixes = ("_size", "_confidence", "_credibility") if name in SETS else ("",)
        assert set(added) == {name + suffix for suffix in suffixes}
        for values in added.values():
            assert values.shape == (30,)
            assert values.dtype == np.float64
    # Scores of passes and of g are those of before, whatever was calibrated.
    for score in ("dropout_entropy", "dropout_variance", "mutual_information", "mcd", "uscore"):
        np.testing.assert_array_equal(
            scores.uncertainty(after, score, PLAIN), scores.uncertainty(test, score, PLAIN)
        )
    figures = evaluate(after, PLAIN)
    assert set(added) <= set(figures["scores"])


@every
def test_names_of_added_scores_are_free(name: str) -> None:
    fitted = calibrators.fit(name, drawn())
    assert not set(fitted.apply(drawn(5)).scores) & {entry.name for entry in SCORES}


@every
@pytest.mark.parametrize("kind", ["huge", "one row", "one class", "equal logits", "all wrong"])
def test_odd_tune_splits_give_finite_answers(name: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    logits: NDArray[np.float64] = rng.normal(0, 2, (60, 2))
    labels = rng.integers(0, 2, 60)
    if kind == "huge":
        logits = rng.choice([-1e4, 1e4], (60, 2))
    elif kind == "one row":
        logits, labels = logits[:1], labels[:1]
    elif kind == "one class":
        labels = np.ones(60, dtype=np.int64)
    elif kind == "equal logits":
        logits = np.full((60, 2), 3.0)
    else:
        labels = 1 - logits.argmax(axis=1)
    fitted = calibrators.fit(name, of_logits(logits, labels=labels))
    json.dumps(calibrators.to_json(fitted), allow_nan=False)
    test = of_logits(np.array([[1e4, -1e4], [-1e4, 1e4], [0.0, 0.0], [1.0, -2.0]]))
    after = fitted.apply(test)
    assert np.isfinite(after.logits).all()
    assert np.isfinite(after.log_probabilities).all()
    for values in after.scores.values():
        assert np.isfinite(values).all()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "platt"])
def test_a_hundred_classes(name: str) -> None:
    fitted = calibrators.fit(name, drawn(400, 100))
    after = fitted.apply(drawn(50, 100, seed=1, split="test"))
    assert np.isfinite(after.log_probabilities).all()
    for values in after.scores.values():
        assert np.isfinite(values).all()


@pytest.mark.parametrize("name", LOGIT_MAPS)
def test_overconfident_logits_are_mended(name: str) -> None:
    fitted = calibrators.fit(name, drawn(2000, seed=2))
    test = drawn(2000, seed=3, split="test")
    truth = nll(replace(test, logits=test.logits / 2.5))
    assert nll(test) > truth + 0.1
    assert nll(fitted.apply(test)) < truth + 0.02


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match='unknown calibrator "temprature": did you mean "temper'):
        calibrators.fit("temprature", drawn())
    with pytest.raises(InputError, match='unknown calibrator ""'):
        calibrators.from_json({"temperature": 1.0})
    with pytest.raises(InputError, match='unknown field of Temperature "temp"'):
        calibrators.from_json({"name": "temperature", "temp": 1.0})
    with pytest.raises(InputError, match="strangeness"):
        calibrators.from_json({"name": "lac", "alpha": 0.1})
    assert "name" not in fields.to_json(calibrators.fit("temperature", drawn()))


def test_the_list_of_calibrators_loads_no_arrays() -> None:
    script = (
        "import sys\nfrom revar.calibrators import CALIBRATORS\nassert CALIBRATORS\n"
        "assert not {'numpy', 'scipy', 'sklearn', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_fitting_and_applying_loads_no_torch() -> None:
    script = (
        "import sys, numpy as np\nfrom revar import calibrators\n"
        "from revar.predictions import Predictions\n"
        "z = np.random.default_rng(0).normal(size=(30, 2))\n"
        "p = Predictions(index=np.arange(30), logits=z, labels=np.arange(30) % 2)\n"
        "for entry in calibrators.CALIBRATORS:\n"
        "    calibrators.fit(entry.name, p).apply(p)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)

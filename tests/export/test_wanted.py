"""A score costs what it reads, and says the same as before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from revar import SelectiveClassifier
from revar.errors import InputError
from revar.model import Model
from revar.scores import available
from revar.scores.learned import Fusion
from revar.scoring import NOTHING, Wanted
from support.problems import blobs, fit


@pytest.fixture(scope="module")
def trained() -> Model:
    return fit("revar", epochs=1)


@pytest.fixture(scope="module")
def abstaining() -> Model:
    return fit("sat", epochs=1)


def _heads(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every pass through the head from now on."""
    seen: list[int] = []
    original = model.networks.classifier.forward_head

    def counted(features: Tensor) -> Tensor:
        seen.append(len(features))
        return original(features)

    monkeypatch.setattr(model.networks.classifier, "forward_head", counted)
    return seen


@pytest.mark.parametrize("name", ["trained", "abstaining"])
def test_every_score_is_the_same_to_the_last_bit(name: str, request: pytest.FixtureRequest) -> None:
    model: Model = request.getfixturevalue(name)
    x = blobs(70, seed=3)[0]
    everything = model.predict(x)
    names = available(everything, model.fitted)
    assert {"softmax", "dropout_variance", "own"} <= set(names)
    for score in names:
        alone = model.predict(x, wanted=model.needs(score))
        expected = model.uncertainty(everything, score)
        np.testing.assert_array_equal(model.uncertainty(alone, score), expected)
        np.testing.assert_array_equal(alone.logits, everything.logits)


def test_passes_are_taken_for_scores_that_read_them(
    trained: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _heads(trained, monkeypatch)
    x = blobs(20, seed=3)[0]
    for score, passes in (("softmax", 0), ("uscore", 0), ("mcd", 5), ("dropout_variance", 5)):
        seen.clear()
        found = trained.predict(x, wanted=trained.needs(score))
        assert len(seen) == 1 + passes
        assert ("uscore" in found.columns) == (score == "uscore")


def test_a_coefficient_of_zero_reads_nothing(
    trained: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion = Fusion(
        features=("softmax", "dropout_variance", "uscore"), coefficients=(1.0, 0.0, 0.5),
        intercept=0.3, fitted_on=50, errors=12,
    )  # fmt: skip
    model = replace(trained, fitted=replace(trained.fitted, fusion=fusion))
    x = blobs(20, seed=3)[0]
    whole = model.uncertainty(model.predict(x), "fused")
    seen = _heads(model, monkeypatch)
    alone = model.predict(x, wanted=model.needs("fused"))
    assert len(seen) == 1
    np.testing.assert_array_equal(model.uncertainty(alone, "fused"), whole)
    assert model.needs("fused") == Wanted(columns=True, scores=False, dropout=False)
    used = replace(fusion, coefficients=(1.0, 0.1, 0.0))
    both = replace(trained.fitted, fusion=used)
    assert Wanted.by("fused", both) == Wanted(columns=False, scores=False, dropout=True)


def test_the_estimator_computes_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs(90)
    clf = SelectiveClassifier(
        "revar", "mlp", epochs=1, batch_size=32, test_passes=4, device="cpu", random_state=0
    ).fit(x, y)
    clf.set_threshold(*blobs(60, seed=1), coverage=0.5, score="uscore")
    assert clf.model_.predictions["calibration"].dropout_mean is not None
    seen = _heads(clf.model_, monkeypatch)
    calls: list[tuple[Any, int]] = [
        (lambda: clf.predict(x), 1),
        (lambda: clf.predict_proba(x), 1),
        (lambda: clf.predict_or_abstain(x), 1),
        (lambda: clf.uncertainty(x, "softmax"), 1),
        (lambda: clf.uncertainty(x, "mutual_information"), 5),
    ]
    for call, passes in calls:
        seen.clear()
        call()
        assert len(seen) == passes


def test_an_unknown_score_is_named_with_those_there_are(abstaining: Model) -> None:
    found = abstaining.predict(blobs(5)[0], wanted=abstaining.needs("abstentoin"))
    with pytest.raises(InputError, match=r"abstentoin.*abstention"):
        abstaining.uncertainty(found, "abstentoin")


def test_nothing_but_logits() -> None:
    model = fit("revar", epochs=1)
    found = model.predict(blobs(5)[0], wanted=NOTHING)
    assert found.dropout_mean is None
    assert not found.columns
    assert found.logits.shape == (5, 3)

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from revar.calibrators.correctness import CorrectnessLogistic
from revar.metrics import auarc, failure_auroc
from revar.predictions import Predictions
from revar.scores.softmax import softmax
from support.properties import Floats
from support.synthetic import of_logits


def mistaken(seed: int, n: int = 800, n_classes: int = 4, size: float = 1.0) -> Predictions:
    """Logit of P(wrong) is 1 - 0.5 top - 0.8 margin, on logits before they are made larger."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (n, n_classes))
    ordered = np.sort(logits, axis=1)
    chance = expit(1.0 - 0.5 * ordered[:, -1] - 0.8 * (ordered[:, -1] - ordered[:, -2]))
    wrong = rng.random(n) < chance
    labels = (logits.argmax(axis=1) + wrong * rng.integers(1, n_classes, n)) % n_classes
    return of_logits(logits * size, labels=labels)


def features(predictions: Predictions) -> Floats:
    ordered = np.sort(predictions.logits, axis=1)
    result: Floats = np.stack([ordered[:, -1], ordered[:, -1] - ordered[:, -2]], axis=1)
    return result


def score(fitted: CorrectnessLogistic, predictions: Predictions) -> Floats:
    return fitted.apply(predictions).scores["correctness_logistic"].astype(np.float64)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_it_is_ridge_logistic_regression_on_standardised_features(size: float) -> None:
    data, test = mistaken(0, size=size), mistaken(1, 100, size=size)
    oracle = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, tol=1e-10, max_iter=1000))
    oracle.fit(features(data), ~data.correct())
    fitted = CorrectnessLogistic.fit(data)
    expected = oracle.decision_function(features(test))
    np.testing.assert_allclose(score(fitted, test), expected, atol=1e-5)
    assert fitted.fitted_on == 800
    assert fitted.errors == (~data.correct()).sum()
    assert fitted.note == ""


def test_it_recovers_the_chance_it_was_drawn_from() -> None:
    fitted = CorrectnessLogistic.fit(mistaken(2, 40_000))
    assert fitted.intercept == pytest.approx(1.0, abs=0.1)
    assert fitted.top == pytest.approx(-0.5, abs=0.1)
    assert fitted.margin == pytest.approx(-0.8, abs=0.1)


def test_by_hand() -> None:
    fitted = CorrectnessLogistic(intercept=1.0, top=-0.5, margin=-2.0, fitted_on=9, errors=3)
    # Top 3, margin 1; then top 2, margin 0.
    got = score(fitted, of_logits([[3.0, 2.0, -1.0], [2.0, 0.0, 2.0]]))
    assert got.tolist() == [1 - 1.5 - 2, 1 - 1]


def test_errors_are_more_uncertain() -> None:
    fitted, test = CorrectnessLogistic.fit(mistaken(3)), mistaken(4, 2000)
    assert failure_auroc(score(fitted, test), test.correct()) > 0.7


@pytest.mark.parametrize(("right", "errors"), [(True, 0), (False, 20)])
def test_without_errors_or_hits_it_is_the_negative_margin_and_says_so(
    right: bool, errors: int
) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20, 2))
    top = logits.argmax(axis=1)
    fitted = CorrectnessLogistic.fit(of_logits(logits, labels=top if right else 1 - top))
    assert fitted.note == (
        f"negative margin: {errors} errors among 20 examples leave nothing to learn"
    )
    test = mistaken(0, 300, 2)
    # With two classes the margin is the log-odds.
    np.testing.assert_allclose(score(fitted, test), softmax(test), atol=1e-14)
    assert auarc(score(fitted, test), test.correct()) == auarc(softmax(test), test.correct())


def test_a_feature_that_does_not_vary_is_left_out() -> None:
    rng = np.random.default_rng(0)
    logits = np.stack([np.full(50, 0.1), 0.1 - rng.random(50)], axis=1)
    fitted = CorrectnessLogistic.fit(of_logits(logits, labels=rng.integers(0, 2, 50)))
    assert fitted.top == 0.0
    assert fitted.margin != 0.0


def test_features_that_tell_every_error_keep_the_model_finite() -> None:
    logits = np.array([[5.0, 0.0]] * 10 + [[1.0, 0.0]] * 10)
    fitted = CorrectnessLogistic.fit(of_logits(logits, labels=np.repeat([0, 1], 10)))
    sure, unsure = score(fitted, of_logits([[5.0, 0.0], [1.0, 0.0]]))
    assert -10 < sure < 0 < unsure < 10

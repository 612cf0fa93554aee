from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import check_grad, minimize, minimize_scalar
from scipy.special import expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from revar.calibrators.scaling import Matrix, Platt, Temperature, Vector, platt_targets
from revar.errors import InputError
from revar.metrics import auarc
from revar.predictions import Predictions
from revar.scores.softmax import softmax as softmax_response
from support.properties import FEW, Floats
from support.synthetic import of_logits


def noisy(
    seed: int, n: int = 400, n_classes: int = 3, *, sharp: float = 2.0, offset: float = 0.0
) -> Predictions:
    """Labels from softmax(z); logits ``sharp * z`` with the last class raised by ``offset``."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (n, n_classes))
    draws = rng.random((n, 1))
    labels = (softmax(z, axis=1).cumsum(axis=1) < draws).sum(axis=1).clip(max=n_classes - 1)
    logits = sharp * z
    logits[:, -1] += offset
    return of_logits(logits, labels=labels)


def loss(logits: NDArray[np.floating], labels: NDArray[np.int64] | None) -> float:
    assert labels is not None
    return -float(log_softmax(logits, axis=1)[np.arange(len(labels)), labels].sum())


def nll(predictions: Predictions) -> float:
    return loss(predictions.logits, predictions.labels) / len(predictions)


# Temperature ----------------------------------------------------------------------------------


@FEW
@given(st.integers(0, 10_000), st.floats(0.1, 20), st.integers(2, 6))
def test_temperature_is_the_minimum_a_bounded_search_finds(
    seed: int, sharp: float, n_classes: int
) -> None:
    data = noisy(seed, 300, n_classes, sharp=sharp)
    got = Temperature.fit(data).temperature
    found = minimize_scalar(
        lambda t: loss(data.logits / np.exp(t), data.labels),
        bounds=(np.log(sharp) - 4, np.log(sharp) + 4),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert np.log(got) == pytest.approx(found.x, abs=1e-5)


def test_temperature_by_hand() -> None:
    # Three rights and a wrong, all with a logit difference of 2: sigma(2 / T) = 3/4, so
    # 2 / T = log 3.
    data = of_logits([[2.0, 0.0]] * 4, labels=np.array([0, 0, 0, 1]))
    fitted = Temperature.fit(data)
    assert fitted.temperature == pytest.approx(2 / np.log(3), rel=1e-10)
    assert fitted.fitted_on == 4
    assert fitted.note == ""
    np.testing.assert_allclose(fitted.apply(data).probabilities[:, 0], 0.75, rtol=1e-10)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_temperature_scales_with_the_logits(size: float) -> None:
    data = noisy(0)
    scaled = replace(data, logits=data.logits * size)
    expected = Temperature.fit(data).temperature * size
    assert Temperature.fit(scaled).temperature == pytest.approx(expected, rel=1e-8)


def test_temperature_does_not_read_what_the_rows_are_shifted_by() -> None:
    data = noisy(0)
    shift = np.random.default_rng(1).normal(0, 50, (len(data), 1))
    got = Temperature.fit(replace(data, logits=data.logits + shift)).temperature
    assert got == pytest.approx(Temperature.fit(data).temperature, rel=1e-9)


def test_all_right_stops_at_the_lower_bound() -> None:
    # Row-centred logits are +-1, so their root mean square is 1.
    data = of_logits([[2.0, 0.0], [0.0, 2.0]], labels=np.array([0, 1]))
    fitted = Temperature.fit(data)
    assert fitted.temperature == pytest.approx(1e-3)
    assert "lower bound" in fitted.note


def test_misleading_logits_stop_at_the_upper_bound() -> None:
    data = of_logits([[2.0, 0.0], [0.0, 2.0]], labels=np.array([1, 0]))
    fitted = Temperature.fit(data)
    assert fitted.temperature == pytest.approx(1e3)
    assert "upper bound" in fitted.note
    np.testing.assert_allclose(fitted.apply(data).probabilities, 0.5, atol=1e-3)


@pytest.mark.parametrize("size", [1e-5, 1e5])
@pytest.mark.parametrize("right", [True, False])
def test_one_is_among_the_temperatures_tried(size: float, right: bool) -> None:
    data = of_logits([[size, 0.0], [0.0, size]], labels=np.array([0, 1] if right else [1, 0]))
    assert nll(Temperature.fit(data).apply(data)) <= nll(data)


def test_one_huge_row_does_not_keep_the_temperature_from_the_rest() -> None:
    # As by hand above; the first row is right at any temperature.
    data = of_logits([[1e6, 0.0]] + [[2.0, 0.0]] * 4, labels=np.array([0, 0, 0, 0, 1]))
    assert Temperature.fit(data).temperature == pytest.approx(2 / np.log(3), rel=1e-8)


def test_logits_that_are_equal_leave_the_temperature_at_one() -> None:
    data = of_logits(np.full((4, 3), 2.0), labels=np.array([0, 1, 2, 0]))
    assert Temperature.fit(data).temperature == 1.0


def test_temperature_keeps_the_class_and_with_two_classes_the_ranking() -> None:
    for seed in range(5):
        data = noisy(seed, 500, 2, sharp=3.0)
        # As networks give them. Ties among the differences are ties afterwards.
        data = replace(data, logits=np.round(data.logits, 1).astype(np.float32))
        after = Temperature.fit(data).apply(data)
        np.testing.assert_array_equal(after.predicted, data.predicted)
        assert auarc(softmax_response(after), after.correct()) == auarc(
            softmax_response(data), data.correct()
        )
    many = noisy(0, 500, 10, sharp=3.0)
    after = Temperature.fit(many).apply(many)
    np.testing.assert_array_equal(after.predicted, many.predicted)


# Vector and matrix ----------------------------------------------------------------------------


def test_vector_scaling_finds_the_minimum_of_its_objective() -> None:
    data = noisy(1, 200, sharp=3.0, offset=2.0)
    fitted = Vector.fit(data, penalty=2.0)

    def objective(x: Floats) -> float:
        a, b = x[:3], x[3:]
        return loss(data.logits * a + b, data.labels) + float(((a - 1) ** 2).sum() + (b**2).sum())

    found = minimize(objective, np.r_[np.ones(3), np.zeros(3)], method="BFGS", tol=1e-9)
    np.testing.assert_allclose([*fitted.factors, *fitted.offsets], found.x, atol=1e-4)


def test_matrix_scaling_finds_the_minimum_of_its_objective() -> None:
    data = noisy(1, 200, sharp=3.0, offset=2.0)
    fitted = Matrix.fit(data, penalty=2.0)

    def objective(x: Floats) -> float:
        a, b = x[:9].reshape(3, 3), x[9:]
        away = a - np.eye(3)
        return loss(data.logits @ a.T + b, data.labels) + float((away**2).sum() + (b**2).sum())

    found = minimize(objective, np.r_[np.eye(3).ravel(), np.zeros(3)], method="BFGS", tol=1e-9)
    np.testing.assert_allclose([*np.ravel(fitted.rows), *fitted.offsets], found.x, atol=1e-4)


def test_matrix_scaling_without_a_penalty_is_logistic_regression_on_logits() -> None:
    data, test = noisy(2, 600, sharp=3.0, offset=2.0), noisy(3, 100, sharp=3.0, offset=2.0)
    oracle = LogisticRegression(C=1e8, tol=1e-10, max_iter=10_000).fit(data.logits, data.labels)
    got = Matrix.fit(data, penalty=1e-8).apply(test).probabilities
    np.testing.assert_allclose(got, oracle.predict_proba(test.logits), atol=2e-5)


@pytest.mark.parametrize("kind", [Temperature, Vector, Matrix])
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("sharp", [1e-2, 1.0, 30.0])
def test_the_loss_on_the_fitting_data_is_never_worse(
    kind: type[Temperature | Vector | Matrix], n_classes: int, sharp: float
) -> None:
    for seed in range(5):
        data = noisy(seed, 40, n_classes, sharp=sharp, offset=sharp)
        assert nll(kind.fit(data).apply(data)) <= nll(data)


@pytest.mark.parametrize("kind", [Temperature, Vector, Matrix])
def test_huge_logits_are_never_worse_either(kind: type[Temperature | Vector | Matrix]) -> None:
    rng = np.random.default_rng(0)
    data = of_logits(rng.uniform(-1e4, 1e4, (100, 4)), labels=rng.integers(0, 4, 100))
    after = kind.fit(data).apply(data)
    assert np.isfinite(after.logits).all()
    # Random labels: close to knowing nothing is the best there is.
    assert nll(after) < np.log(4) + 0.01 < nll(data)


def test_a_large_penalty_keeps_the_logits() -> None:
    data = noisy(0)
    for kind in (Vector, Matrix):
        after = kind.fit(data, penalty=1e9).apply(data)
        np.testing.assert_allclose(after.logits, data.logits, atol=1e-4)
        with pytest.raises(InputError, match="penalty is -1"):
            kind.fit(data, penalty=-1.0)


def test_vector_and_matrix_scaling_take_back_a_raised_class() -> None:
    data, test = noisy(0, 1500, offset=3.0), noisy(1, 1500, offset=3.0)
    for kind in (Vector, Matrix):
        after = kind.fit(data).apply(test)
        assert after.correct().mean() > test.correct().mean() + 0.05


def test_the_gradient_of_the_affine_search_is_its_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def checked(fun, start, **options):  # type: ignore[no-untyped-def]
        at = np.random.default_rng(0).normal(0, 0.3, len(start))
        seen.append(check_grad(lambda x: fun(x)[0], lambda x: fun(x)[1], at))
        return minimize(fun, start, **options)

    monkeypatch.setattr("scipy.optimize.minimize", checked)
    data = noisy(0, 50)
    Vector.fit(data)
    Matrix.fit(data)
    assert len(seen) == 2
    assert max(seen) < 1e-6


# Platt ----------------------------------------------------------------------------------------


def test_platt_targets_by_hand() -> None:
    assert platt_targets(3, 1) == (4 / 5, 1 / 3)
    assert platt_targets(8, 98) == (0.9, 0.01)


def test_platt_by_hand() -> None:
    # Two values of s, so the sigmoid meets the mean target of each: at s = 1 two positives and a
    # negative, at s = -1 three negatives and a positive. N+ = 3, N- = 4: targets 4/5 and 1/6.
    s = np.array([1.0, 1, 1, -1, -1, -1, -1])
    labels = np.array([1, 1, 0, 0, 0, 0, 1])
    logits = np.stack([np.full(7, 5.0), 5.0 + s], axis=1)
    fitted = Platt.fit(of_logits(logits, labels=labels))
    high, low = (4 / 5 + 4 / 5 + 1 / 6) / 3, (3 / 6 + 4 / 5) / 4
    chances = fitted.apply(of_logits([[0.0, 1.0], [0.0, -1.0]])).probabilities[:, 1]
    np.testing.assert_allclose(chances, [high, low], rtol=1e-7)
    up, down = np.log(high / (1 - high)), np.log(low / (1 - low))
    assert fitted.slope == pytest.approx((up - down) / 2, rel=1e-6)
    assert fitted.offset == pytest.approx((up + down) / 2, rel=1e-6)


@pytest.mark.parametrize("sharp", [1e-3, 1.0, 1e3])
def test_platt_is_weighted_logistic_regression_on_both_labels(sharp: float) -> None:
    data = noisy(0, 300, 2, sharp=sharp, offset=sharp)
    assert data.labels is not None
    s = data.logits[:, 1] - data.logits[:, 0]
    positives = int(data.labels.sum())
    high, low = platt_targets(positives, 300 - positives)
    target = np.where(data.labels == 1, high, low)
    # A target t is t of a positive and 1 - t of a negative.
    oracle = LogisticRegression(C=1e10, tol=1e-12, max_iter=10_000).fit(
        np.r_[s, s][:, None] / sharp, np.r_[np.ones(300), np.zeros(300)],
        sample_weight=np.r_[target, 1 - target],
    )  # fmt: skip
    fitted = Platt.fit(data)
    assert fitted.slope * sharp == pytest.approx(oracle.coef_[0, 0], rel=1e-4)
    assert fitted.offset == pytest.approx(oracle.intercept_[0], rel=1e-3, abs=1e-4)


def test_platt_stays_finite_where_the_classes_are_apart() -> None:
    data = of_logits([[1.0, 0.0]] * 5 + [[0.0, 1.0]] * 5, labels=np.repeat([0, 1], 5))
    fitted = Platt.fit(data)
    # N+ = N- = 5: sigma(a) = 6/7, so a = log 6.
    assert fitted.slope == pytest.approx(np.log(6), rel=1e-7)
    assert fitted.offset == pytest.approx(0, abs=1e-7)
    assert expit(fitted.slope) == pytest.approx(6 / 7)


@pytest.mark.parametrize("label", [0, 1])
def test_platt_of_one_class_changes_nothing_and_says_so(label: int) -> None:
    rng = np.random.default_rng(0)
    data = of_logits(rng.normal(size=(9, 2)), labels=np.full(9, label))
    fitted = Platt.fit(data)
    assert "one class" in fitted.note
    np.testing.assert_allclose(fitted.apply(data).probabilities, data.probabilities, atol=1e-15)


def test_platt_is_for_two_classes() -> None:
    with pytest.raises(InputError, match="platt is for 2 classes, these logits are of 3: use vec"):
        Platt.fit(noisy(0))

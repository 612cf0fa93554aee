from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import sem, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from revar.metrics import auarc, failure_auroc
from revar.predictions import Predictions
from revar.scores import learned
from revar.scores.learned import (
    Fitted,
    Fusion,
    fit_fusion,
    fit_orientation,
    fit_scores,
    fused,
    fusion_features,
    rising_logistic,
)
from revar.scores.softmax import softmax
from support.properties import Floats
from support.synthetic import of_logits, of_passes, with_errors
from support.threads import one_thread

PLAIN = Fitted(default_score="fused")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


# The fit --------------------------------------------------------------------------------------


def logistic_case(seed: int, slopes: list[float], n: int = 400) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(slopes)))
    x[:, 1:] += 0.4 * x[:, :1]  # correlated, as scores are
    y = (rng.random(n) < expit(x @ np.array(slopes) - 1)).astype(np.float64)
    return x, y


def objective(x: Floats, y: Floats, strength: float, weights: Floats) -> float:
    z = weights[0] + x @ weights[1:]
    loss = np.logaddexp(0, z).sum() - y @ z
    return float(loss + weights[1:] @ weights[1:] / (2 * strength))


def gradient(x: Floats, y: Floats, strength: float, weights: Floats) -> Floats:
    residual = expit(weights[0] + x @ weights[1:]) - y
    slopes: Floats = np.r_[residual.sum(), x.T @ residual + weights[1:] / strength]
    return slopes


def unconstrained(x: Floats, y: Floats, strength: float) -> Floats:
    model = LogisticRegression(C=strength, tol=1e-10, max_iter=20_000).fit(x, y)
    weights: Floats = np.r_[model.intercept_, model.coef_[0]]
    return weights


def best_of_all_supports(x: Floats, y: Floats, strength: float) -> Floats:
    """The constrained optimum is the free one on its own support; so try every support."""
    d = x.shape[1]
    share = y.mean()
    candidates = [np.r_[np.log(share / (1 - share)), np.zeros(d)]]
    for support in chain.from_iterable(combinations(range(d), k) for k in range(1, d + 1)):
        columns = list(support)
        free = unconstrained(x[:, columns], y, strength)
        weights = np.zeros(1 + d)
        weights[0] = free[0]
        weights[[1 + column for column in columns]] = free[1:]
        if (weights[1:] >= 0).all():
            candidates.append(weights)
    return min(candidates, key=lambda weights: objective(x, y, strength, weights))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strength", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("stretch", [1.0, 100.0])
def test_rising_logistic_is_scikit_learns_where_every_slope_rises(
    seed: int, strength: float, stretch: float
) -> None:
    x, y = logistic_case(seed, [1.0, 0.5, 0.8])
    x[:, 0] *= stretch
    expected = unconstrained(x, y, strength)
    assert (expected[1:] > 0).all()
    np.testing.assert_allclose(rising_logistic(x, y, strength), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strength", [1e-2, 1.0, 10.0])
@pytest.mark.parametrize("slopes", [[1.0, -0.8, 0.5], [-1.0, 0.7, -0.3], [-1.0, -1.0, -1.0]])
def test_a_slope_that_would_fall_is_held_at_zero(
    seed: int, strength: float, slopes: list[float]
) -> None:
    x, y = logistic_case(seed, slopes)
    assert (unconstrained(x, y, strength)[1:] < 0).any()
    got = rising_logistic(x, y, strength)
    assert (got[1:] >= 0).all()
    assert (got[1:] == 0).any()
    expected = best_of_all_supports(x, y, strength)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strength", [1e-4, 1e-2, 1.0, 10.0])
@pytest.mark.parametrize("stretch", [1.0, 100.0])
@pytest.mark.parametrize("slopes", [[1.0, 0.5, 0.8], [1.0, -0.8, 0.5], [-1.0, -1.0, -1.0]])
def test_rising_logistic_meets_the_conditions_of_an_optimum(
    seed: int, strength: float, stretch: float, slopes: list[float]
) -> None:
    """Karush, Kuhn and Tucker: no slope where free, none inwards where held at zero."""
    x, y = logistic_case(seed, slopes)
    x[:, 0] *= stretch
    weights = rising_logistic(x, y, strength)
    # In units of the features, and per example.
    slope = gradient(x, y, strength, weights) / np.r_[1.0, x.std(axis=0)] / len(y)
    held = np.r_[False, weights[1:] == 0]
    assert (weights[1:] >= 0).all()
    np.testing.assert_allclose(slope[~held], 0, atol=1e-5)
    assert (slope[held] >= -1e-5).all()


def test_less_strength_shrinks() -> None:
    x, y = logistic_case(0, [1.0, 0.5, 0.8])
    sizes = [
        float(np.linalg.norm(rising_logistic(x, y, strength)[1:]))
        for strength in (1e-6, 1e-3, 1e-1, 1.0, 10.0)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < 1e-3


def cross_validated(x: Floats, y: Floats, strength: float) -> Floats:
    """[5] mean log-loss of each held-out fold, by scikit-learn's own metric."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(x, y)
    losses = []
    for fit, held in folds:
        weights = rising_logistic(x[fit], y[fit], strength)
        losses.append(log_loss(y[held], expit(weights[0] + x[held] @ weights[1:])))
    return np.array(losses)


def test_the_most_shrunken_strength_within_one_standard_error_of_the_best_is_chosen() -> None:
    cautious = 0
    for seed in range(8):
        x, y = logistic_case(seed, [1.0, 0.1, 0.0], n=200)
        x[:, 0] *= 100
        losses = {s: cross_validated(x, y, s) for s in (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)}
        best = min(losses, key=lambda strength: losses[strength].mean())
        excess = {strength: values - losses[best] for strength, values in losses.items()}
        # The best is one of them: its excess and the error of that are zero.
        expected = min(s for s, values in excess.items() if values.mean() <= sem(values))
        assert learned._chosen_strength(x, y) == expected
        cautious += expected < best
    # The rule is not the same as taking the best, nor as shrinking all the way.
    assert cautious >= 2
    x, y = logistic_case(0, [1.0, 1.5, 1.5], n=600)
    assert learned._chosen_strength(x, y) > 1e-4


# Features -------------------------------------------------------------------------------------


def labelled(predictions: Predictions, wrong: NDArray[np.bool_]) -> Predictions:
    return replace(
        predictions, labels=(predictions.predicted + wrong) % predictions.logits.shape[1]
    )


def test_features_are_what_the_predictions_have_and_the_uscore_is_turned() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 3))
    column = {"uscore": np.arange(5.0)}
    assert list(fusion_features(of_logits(logits), PLAIN)) == ["softmax"]
    with_g = of_logits(logits, columns=column)
    assert list(fusion_features(with_g, PLAIN)) == ["softmax", "uscore"]
    everything = of_passes(np.stack([logits, -logits]), columns=column)
    features = fusion_features(everything, replace(PLAIN, orientation=-1))
    assert list(features) == ["softmax", "dropout_entropy", "dropout_variance", "uscore"]
    np.testing.assert_array_equal(features["uscore"], -np.arange(5.0))
    np.testing.assert_array_equal(features["softmax"], softmax(everything))


def test_fused_is_the_sum_it_says() -> None:
    predictions = of_logits([[0.0, 1.0], [3.0, 0.0]], columns={"uscore": np.array([2.0, -4.0])})
    fusion = Fusion(
        features=("uscore", "softmax"),
        coefficients=(0.5, 2.0),
        intercept=0.25,
        fitted_on=100,
        errors=30,
    )
    # softmax is minus the gap: -1 and -3. 0.25 + 0.5 * 2 - 2 and 0.25 - 0.5 * 4 - 6.
    assert fused(predictions, replace(PLAIN, fusion=fusion)).tolist() == [-0.75, -7.75]
    # Turned, the U-Score is -2 and 4.
    turned = replace(PLAIN, fusion=fusion, orientation=-1)
    assert fused(predictions, turned).tolist() == [-2.75, -3.75]


# Too little to learn from ---------------------------------------------------------------------


@pytest.mark.parametrize("few", [0, 1, 9])
@pytest.mark.parametrize("kind", ["errors", "hits"])
def test_fewer_than_ten_of_either_kind_fall_back_to_softmax_and_say_so(
    few: int, kind: Literal["errors", "hits"]
) -> None:
    wrong = np.arange(300) < (few if kind == "errors" else 300 - few)
    tune = labelled(with_errors(0, 300, evidence=2.0), wrong)
    fusion = fit_fusion(tune, PLAIN)
    assert fusion.features == ("softmax",)
    assert fusion.coefficients == (1.0,)
    assert fusion.intercept == 0.0
    assert fusion.fitted_on == 300
    assert fusion.errors == wrong.sum()
    assert fusion.note.startswith("softmax response: ")
    assert f"{wrong.sum()} errors among 300 tune examples" in fusion.note
    fresh = with_errors(1, 50, evidence=2.0)
    np.testing.assert_array_equal(fused(fresh, replace(PLAIN, fusion=fusion)), softmax(fresh))


def test_ten_errors_are_enough() -> None:
    tune = labelled(with_errors(0, 300, evidence=2.0), np.arange(300) < 10)
    fusion = fit_fusion(tune, PLAIN)
    assert fusion.note == ""
    assert fusion.features == ("softmax", "uscore")
    assert fusion.errors == 10


def test_errors_that_contradict_every_score_fall_back_to_softmax_and_say_so() -> None:
    tune = with_errors(0, 400, evidence=0.0)
    certain = softmax(tune) < np.median(softmax(tune))
    tune = labelled(replace(tune, columns={}), certain)
    fusion = fit_fusion(tune, PLAIN)
    assert fusion.features == ("softmax",)
    assert fusion.coefficients == (1.0,)
    assert "200 errors among 400 tune examples contradict every score" in fusion.note


# What is learned ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_real_evidence_in_the_uscore_beats_softmax_on_fresh_data(seed: int) -> None:
    """AUARC gains in forty seeds: over softmax 0.063 to 0.085, over the U-Score 0.013 to 0.021."""
    tune = with_errors(seed, 600, evidence=1.5)
    fresh = with_errors(1000 + seed, 4000, evidence=1.5)
    fitted = replace(PLAIN, fusion=fit_fusion(tune, PLAIN))
    correct = fresh.correct()
    together = auarc(fused(fresh, fitted), correct)
    assert together > auarc(softmax(fresh), correct) + 0.05
    assert together > auarc(fresh.columns["uscore"], correct) + 0.01


@pytest.mark.parametrize("seed", range(3))
def test_with_many_examples_the_truth_is_found(seed: int) -> None:
    """The logit of P(error) is -0.5 + 0.7 softmax + 1.5 uscore; of 20,000 rows."""
    tune = with_errors(seed, 20_000, evidence=1.5)
    fusion = fit_fusion(tune, PLAIN)
    assert fusion.features == ("softmax", "uscore")
    # Ten seeds gave 0.65 to 0.73, 1.40 to 1.51 and -0.57 to -0.46: noise, and some shrinkage.
    assert fusion.coefficients[0] == pytest.approx(0.7, abs=0.08)
    assert fusion.coefficients[1] == pytest.approx(1.5, abs=0.2)
    assert fusion.intercept == pytest.approx(-0.5, abs=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_pure_noise_beside_softmax_is_left_out(seed: int) -> None:
    """Noise in the U-Score and in both dropout figures: fused ranks as softmax does.

    The least correlation in forty seeds was 0.994.
    """
    tune = with_errors(seed, 2000, evidence=0.0, noisy_dropout=True)
    fresh = with_errors(1000 + seed, 2000, evidence=0.0, noisy_dropout=True)
    fusion = fit_fusion(tune, PLAIN)
    assert fusion.features == ("softmax", "dropout_entropy", "dropout_variance", "uscore")
    assert fusion.coefficients[0] > 0.5
    fitted = replace(PLAIN, fusion=fusion)
    assert spearmanr(fused(fresh, fitted), softmax(fresh))[0] > 0.99


@pytest.mark.parametrize("seed", range(3))
def test_an_inverted_uscore_gets_no_say(seed: int) -> None:
    """Evidence that points the wrong way would need a negative coefficient."""
    tune = with_errors(seed, 600, evidence=-1.5)
    fusion = fit_fusion(tune, PLAIN)
    assert fusion.features == ("softmax", "uscore")
    assert fusion.coefficients[0] > 0
    assert fusion.coefficients[1] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_coefficients_never_fall_and_the_mean_chance_of_error_is_the_error_rate(seed: int) -> None:
    tune = with_errors(seed, 500, evidence=1.0, noisy_dropout=True)
    fusion = fit_fusion(tune, PLAIN)
    assert min(fusion.coefficients) >= 0
    chances = expit(fused(tune, replace(PLAIN, fusion=fusion)))
    # The intercept is not penalised, so at the optimum the residuals sum to zero.
    assert chances.mean() == pytest.approx(1 - tune.correct().mean(), abs=1e-5)
    assert fusion.fitted_on == 500
    assert fusion.errors == (~tune.correct()).sum()


def test_the_unit_of_the_uscore_does_not_matter() -> None:
    tune = with_errors(0, 500, evidence=1.5)
    moved = replace(tune, columns={"uscore": 1000 * tune.columns["uscore"] + 50})
    one = fused(tune, replace(PLAIN, fusion=fit_fusion(tune, PLAIN)))
    other = fused(moved, replace(PLAIN, fusion=fit_fusion(moved, PLAIN)))
    np.testing.assert_allclose(other, one, atol=1e-3)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.3, 1000 / 3])
@pytest.mark.parametrize("seed", [0, 2])
def test_a_constant_uscore_gets_a_coefficient_of_exactly_zero(seed: int, value: float) -> None:
    """The standard deviation of a constant is often 1e-17 and not zero."""
    tune = with_errors(seed, 600, evidence=0.0)
    tune = replace(tune, columns={"uscore": np.full(600, value)})
    fusion = fit_fusion(tune, PLAIN)
    assert fusion.coefficients[0] > 0
    assert fusion.coefficients[1] == 0.0


def test_the_fit_is_the_same_twice_and_numbers_are_plain() -> None:
    tune = with_errors(0, 300, evidence=1.0)
    fusion = fit_fusion(tune, PLAIN)
    assert fusion == fit_fusion(tune, PLAIN)
    assert all(type(value) is float for value in (*fusion.coefficients, fusion.intercept))
    assert type(fusion.errors) is int


# Orientation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("evidence", "side", "way"), [(1.0, 1, "high"), (-1.0, -1, "low")])
def test_auto_turns_an_inverted_uscore(seed: int, evidence: float, side: int, way: str) -> None:
    tune = with_errors(seed, 300, evidence=evidence)
    found, note = fit_orientation(tune, "auto")
    assert found == side
    auroc = failure_auroc(tune.columns["uscore"], tune.correct())
    assert note == f"auto: {way}, failure AUROC of g {auroc:.3f} on 300 tune examples"
    fitted = fit_scores(tune, default_score="uscore", orientation="auto")
    assert fitted.orientation == side
    assert failure_auroc(learned.uscore(tune, fitted), tune.correct()) > 0.5


@pytest.mark.parametrize("seed", range(3))
def test_once_turned_an_inverted_uscore_helps_as_much(seed: int) -> None:
    tune = with_errors(seed, 600, evidence=-1.5)
    fresh = with_errors(1000 + seed, 4000, evidence=-1.5)
    fitted = fit_scores(tune, default_score="fused", orientation="auto")
    assert fitted.orientation == -1
    correct = fresh.correct()
    assert auarc(fused(fresh, fitted), correct) > auarc(softmax(fresh), correct) + 0.05


@pytest.mark.parametrize(("wanted", "side"), [("high", 1), ("low", -1)])
def test_an_orientation_that_is_told_is_kept_whatever_the_data_say(
    wanted: Literal["high", "low"], side: int
) -> None:
    for tune in (None, with_errors(0, 300, evidence=1.0), with_errors(0, 300, evidence=-1.0)):
        assert fit_orientation(tune, wanted) == (side, f"set to {wanted}")


@pytest.mark.parametrize("wrong", [True, False])
def test_auto_without_errors_or_without_hits_is_high_and_says_so(wrong: bool) -> None:
    tune = labelled(with_errors(0, 30, evidence=-2.0), np.full(30, wrong))
    side, note = fit_orientation(tune, "auto")
    assert side == 1
    assert "no errors or nothing right, so high" in note


def test_auto_without_a_tune_split_is_high() -> None:
    assert fit_orientation(None, "auto")[0] == 1


# All together ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default", "used"), [("fused", "softmax"), ("uscore", "uscore"), ("softmax", "softmax")]
)
def test_without_a_tune_split_nothing_is_fused(default: str, used: str) -> None:
    fitted = fit_scores(None, default_score=default, orientation="high")
    assert fitted == Fitted(default_score=used, orientation_note="set to high")


def test_with_a_tune_split_the_default_stays_and_the_fusion_is_of_the_turned_uscore() -> None:
    tune = with_errors(0, 400, evidence=-1.5)
    fitted = fit_scores(tune, default_score="fused", orientation="low")
    assert fitted.default_score == "fused"
    assert fitted.orientation == -1
    assert fitted.orientation_note == "set to low"
    assert fitted.fusion == fit_fusion(tune, Fitted(default_score="softmax", orientation=-1))
    assert fitted.fusion is not None
    assert fitted.fusion.coefficients[1] > 0.5


def test_a_run_without_a_uscore_is_fused_of_what_it_has() -> None:
    tune = replace(with_errors(0, 400, evidence=0.0), columns={})
    fitted = fit_scores(tune, default_score="softmax", orientation="high")
    assert fitted.fusion is not None
    assert fitted.fusion.features == ("softmax",)
    assert spearmanr(fused(tune, fitted), softmax(tune))[0] == pytest.approx(1.0)

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import rel_entr, softmax
from scipy.stats import rankdata

from revar import scores
from revar.errors import InputError
from revar.predictions import Predictions
from revar.registry import SCORES
from revar.scores import dropout as dropout_scores
from revar.scores import softmax as softmax_scores
from revar.scores.learned import Fitted, Fusion
from support.properties import PROPERTY, Floats
from support.synthetic import entropy, log_odds, of_logits, of_passes

DROPOUT = ("dropout_entropy", "dropout_variance", "mutual_information", "mcd")
PLAIN = Fitted(default_score="softmax")
SOFTMAX_FUSION = Fusion(
    features=("softmax",), coefficients=(1.0,), intercept=0.0, fitted_on=100, errors=20
)
logit_arrays = arrays(
    np.float64,
    st.tuples(st.integers(1, 8), st.integers(2, 6)),
    elements=st.floats(-15, 15, allow_nan=False),
)


def full(n: int = 12, seed: int = 0) -> Predictions:
    """Predictions with every part there is."""
    rng = np.random.default_rng(seed)
    return of_passes(
        rng.normal(0, 2, (7, n, 3)),
        labels=rng.integers(0, 3, n),
        columns={"uscore": rng.normal(size=n).astype(np.float32)},
    )


# Softmax response -----------------------------------------------------------------------------


@PROPERTY
@given(logit_arrays)
def test_log_odds_are_those_of_the_top_class(logits: Floats) -> None:
    got = softmax_scores.log_odds(logits)
    np.testing.assert_allclose(got, log_odds(logits), rtol=1e-12, atol=1e-12)
    top = softmax(logits, axis=1).max(axis=1)
    # exp(log-odds) / (1 + exp(log-odds)) is the probability again.
    np.testing.assert_allclose(1 / (1 + np.exp(-got)), top, rtol=1e-12)


@PROPERTY
@given(logit_arrays)
def test_softmax_response_falls_as_the_top_probability_rises(logits: Floats) -> None:
    uncertainty = softmax_scores.softmax(of_logits(logits))
    top = softmax(logits, axis=1).max(axis=1)
    order = np.argsort(top, kind="stable")
    # Probabilities that differ by more than rounding are in the opposite order.
    clear = np.diff(top[order]) > 1e-12
    assert (np.diff(uncertainty[order])[clear] < 0).all()


def test_log_odds_by_hand() -> None:
    # p = (1/2, 1/3, 1/6): odds of the first 1 to 1. p = (3/4, 1/8, 1/8): odds 3. Uniform: 1/2.
    p = np.array([[1 / 2, 1 / 3, 1 / 6], [1 / 8, 3 / 4, 1 / 8], [1 / 3, 1 / 3, 1 / 3]])
    expected = np.log([1, 3, 1 / 2])
    np.testing.assert_allclose(softmax_scores.log_odds(np.log(p)), expected, atol=1e-15)
    np.testing.assert_allclose(softmax_scores.softmax(of_logits(np.log(p))), -expected, atol=1e-15)


def test_softmax_response_tells_huge_logits_apart_where_probabilities_saturate() -> None:
    logits = np.array([[50.0, 0, 0], [100, 0, 0], [1000, 0, 0], [1e4, 0, 0], [1e4, 0, -1e4]])
    predictions = of_logits(logits)
    assert len(np.unique(predictions.probabilities.max(axis=1))) < 3
    uncertainty = softmax_scores.softmax(predictions)
    assert np.isfinite(uncertainty).all()
    assert (np.diff(uncertainty) < 0).all()
    # z - log(exp 0 + exp 0), and z alone where the third class is out of the race.
    expected = -np.array([50, 100, 1000, 1e4, 1e4]) + np.log([2, 2, 2, 2, 1])
    np.testing.assert_allclose(uncertainty, expected, rtol=1e-15)


def test_log_odds_of_a_huge_negative_row_are_finite() -> None:
    logits = np.array([[-1e4, -1e4 - 1, -2e4]])
    np.testing.assert_allclose(softmax_scores.log_odds(logits), [1.0])


def test_a_shift_of_all_logits_changes_nothing() -> None:
    logits = np.random.default_rng(0).integers(-5, 5, (20, 4)).astype(float)
    for score in (softmax_scores.softmax, softmax_scores.softmax_entropy):
        np.testing.assert_allclose(score(of_logits(logits)), score(of_logits(logits + 512.0)))


def test_single_precision_logits_are_scored_in_double() -> None:
    logits = np.random.default_rng(0).normal(0, 9, (20, 4)).astype(np.float32)
    for score in (softmax_scores.softmax, softmax_scores.softmax_entropy):
        got = score(of_logits(logits))
        assert got.dtype == np.float64
        np.testing.assert_array_equal(got, score(of_logits(logits.astype(np.float64))))


def test_scoring_leaves_the_logits_as_they_were() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 3))
    before = logits.copy()
    softmax_scores.log_odds(logits)
    np.testing.assert_array_equal(logits, before)


# Entropy --------------------------------------------------------------------------------------


def test_entropy_by_hand() -> None:
    p = np.array([[1 / 2, 1 / 4, 1 / 4], [1 / 3, 1 / 3, 1 / 3]])
    got = softmax_scores.softmax_entropy(of_logits(np.log(p)))
    # 1/2 log 2 + 2 * 1/4 log 4 = 3/2 log 2, and log 3.
    np.testing.assert_allclose(got, [1.5 * np.log(2), np.log(3)], rtol=1e-15)


@PROPERTY
@given(logit_arrays)
def test_entropy_lies_between_zero_and_the_log_of_the_classes(logits: Floats) -> None:
    got = softmax_scores.softmax_entropy(of_logits(logits))
    np.testing.assert_allclose(got, entropy(softmax(logits, axis=1)), rtol=1e-9, atol=1e-12)
    assert (got >= 0).all()
    assert (got <= np.log(logits.shape[1]) + 1e-12).all()


def test_entropy_of_certainty_is_zero_and_not_nan() -> None:
    assert softmax_scores.softmax_entropy(of_logits([[1e5, 0.0, -1e5]])).tolist() == [0.0]


def test_softmax_and_its_entropy_rank_two_classes_the_same() -> None:
    rng = np.random.default_rng(0)
    # Gaps at least 0.01 apart, of both signs, small enough that entropy does not underflow.
    gaps = rng.permutation(np.linspace(0.01, 20, 500)) * rng.choice([-1, 1], 500)
    predictions = of_logits(np.stack([gaps / 2, -gaps / 2], axis=1))
    np.testing.assert_array_equal(
        rankdata(softmax_scores.softmax(predictions)),
        rankdata(softmax_scores.softmax_entropy(predictions)),
    )
    np.testing.assert_allclose(softmax_scores.softmax(predictions), -np.abs(gaps))


def test_with_three_classes_softmax_and_entropy_may_disagree() -> None:
    # The first is surer of its top class, but spreads the rest over two others.
    predictions = of_logits(np.log([[0.55, 0.225, 0.225], [0.519, 0.48, 0.001]]))
    response = softmax_scores.softmax(predictions)
    spread = softmax_scores.softmax_entropy(predictions)
    assert response[0] < response[1]
    assert spread[0] > spread[1]


# Dropout --------------------------------------------------------------------------------------


def test_dropout_scores_by_hand() -> None:
    # Two passes that are certain of different classes: mean (1/2, 1/2), no entropy within a
    # pass, all of log 2 between them; variance 2 * (1/2)^2.
    samples = np.array([[[1e3, 0.0]], [[0.0, 1e3]]])
    predictions = of_passes(samples)
    assert dropout_scores.dropout_entropy(predictions) == pytest.approx([np.log(2)])
    assert dropout_scores.mutual_information(predictions) == pytest.approx([np.log(2)])
    assert dropout_scores.dropout_variance(predictions) == pytest.approx([0.5])


@PROPERTY
@given(st.integers(0, 10_000), st.floats(0, 20))
def test_mutual_information_is_the_mean_divergence_from_the_mean(seed: int, width: float) -> None:
    samples = np.random.default_rng(seed).normal(0, width, (5, 6, 3))
    got = dropout_scores.mutual_information(of_passes(samples))
    p = softmax(samples, axis=-1)
    divergence = rel_entr(p, p.mean(axis=0)).sum(axis=-1).mean(axis=0)
    np.testing.assert_allclose(got, divergence, atol=1e-12)
    assert (got >= 0).all()
    assert (got <= np.log(3) + 1e-12).all()


def test_passes_that_agree_have_no_mutual_information_and_no_variance() -> None:
    one = np.random.default_rng(0).normal(0, 3, (1, 50, 4))
    predictions = of_passes(np.repeat(one, 8, axis=0))
    np.testing.assert_allclose(dropout_scores.mutual_information(predictions), 0, atol=1e-14)
    np.testing.assert_allclose(dropout_scores.dropout_variance(predictions), 0, atol=1e-30)
    assert (dropout_scores.dropout_entropy(predictions) > 0).all()


def test_rounding_does_not_take_mutual_information_below_zero() -> None:
    predictions = replace(
        full(2),
        dropout_entropy=np.array([0.5, 0.5], dtype=np.float32),
        dropout_expected_entropy=np.array([np.nextafter(np.float32(0.5), np.float32(1)), 0.25]),
    )
    assert dropout_scores.mutual_information(predictions).tolist() == [0.0, 0.25]


def test_mcd_scores_like_dropout_entropy_and_predicts_by_the_mean_of_passes() -> None:
    # The deterministic pass says class 0 twice; the mean of the passes says 1, then 0.
    predictions = replace(
        of_logits([[2.0, 0.0], [2.0, 0.0]], labels=np.array([1, 1])),
        dropout_mean=np.array([[0.4, 0.6], [0.7, 0.3]]),
        dropout_entropy=np.array([0.67, 0.61]),
        dropout_variance=np.array([0.1, 0.1]),
        dropout_expected_entropy=np.array([0.5, 0.5]),
    )
    np.testing.assert_array_equal(
        scores.uncertainty(predictions, "mcd", PLAIN),
        scores.uncertainty(predictions, "dropout_entropy", PLAIN),
    )
    assert scores.correct(predictions, "mcd", PLAIN).tolist() == [True, False]
    numbers, found = scores.answers(predictions, "mcd", PLAIN)
    assert numbers.tolist() == [1, 0]
    assert found.tolist() == [[0.4, 0.6], [0.7, 0.3]]
    for name in ("softmax", "dropout_entropy"):
        assert scores.answers(predictions, name, PLAIN)[0].tolist() == [0, 0]
    several = scores.answers_by_score(predictions, ("softmax", "mcd"), PLAIN)
    for name, pair in several.items():
        for one, other in zip(pair, scores.answers(predictions, name, PLAIN), strict=True):
            np.testing.assert_array_equal(one, other)
    # Kept in four bytes a number, the means sum to one all the same.
    short = replace(predictions, dropout_mean=np.array([[0.4, 0.6], [0.7, 0.3]], dtype=np.float32))
    _, found = scores.answers(short, "mcd", PLAIN)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-15)
    own = replace(PLAIN, own="mcd")
    assert scores.answers(predictions, "own", own)[0].tolist() == [1, 0]
    assert (own.named(None), own.named("own"), own.named("uscore")) == ("softmax", "mcd", "uscore")
    for entry in SCORES:
        if entry.name != "mcd":
            assert scores.correct(predictions, entry.name, PLAIN).tolist() == [False, False]


# By name --------------------------------------------------------------------------------------

FUSED = replace(PLAIN, fusion=SOFTMAX_FUSION)


@pytest.mark.parametrize("name", [entry.name for entry in SCORES])
def test_every_registered_score_is_a_float64_vector(name: str) -> None:
    predictions = full()
    values = scores.uncertainty(predictions, name, FUSED)
    assert values.shape == (len(predictions),)
    assert values.dtype == np.float64
    assert np.isfinite(values).all()


@pytest.mark.parametrize("name", [entry.name for entry in SCORES])
def test_a_score_of_a_row_does_not_depend_on_the_other_rows(name: str) -> None:
    predictions = full()
    rows = np.array([7, 2, 2, 0])
    some = Predictions(
        index=predictions.index[rows],
        logits=predictions.logits[rows],
        columns={key: value[rows] for key, value in predictions.columns.items()},
        **{
            part: getattr(predictions, part)[rows]
            for part in (
                "dropout_mean",
                "dropout_variance",
                "dropout_entropy",
                "dropout_expected_entropy",
            )
        },
    )
    whole = scores.uncertainty(predictions, name, FUSED)
    np.testing.assert_array_equal(scores.uncertainty(some, name, FUSED), whole[rows])


@pytest.mark.parametrize("name", DROPOUT)
def test_dropout_scores_without_passes_say_so(name: str) -> None:
    predictions = of_logits([[1.0, 0.0]], labels=np.array([0]))
    with pytest.raises(InputError, match="no dropout passes: train it with dropout_rate > 0"):
        scores.uncertainty(predictions, name, PLAIN)


def test_answers_of_mcd_without_passes_say_so() -> None:
    with pytest.raises(InputError, match="no dropout passes"):
        scores.answers(of_logits([[1.0, 0.0]]), "mcd", PLAIN)


def test_correctness_of_mcd_without_passes_says_so() -> None:
    with pytest.raises(InputError, match="no dropout passes"):
        scores.correct(of_logits([[1.0, 0.0]], labels=np.array([0])), "mcd", PLAIN)


def test_uscore_without_its_column_says_so() -> None:
    with pytest.raises(InputError, match="no U-Score: train it with --method trajectory or revar"):
        scores.uncertainty(of_logits([[1.0, 0.0]]), "uscore", PLAIN)


def test_fused_without_a_fusion_says_so() -> None:
    with pytest.raises(InputError, match="no tune split"):
        scores.uncertainty(full(), "fused", PLAIN)


def test_fused_without_what_it_was_fitted_on_says_what_is_missing() -> None:
    fusion = Fusion(
        features=("softmax", "dropout_entropy", "uscore"),
        coefficients=(1.0, 1.0, 1.0),
        intercept=0.0,
        fitted_on=100,
        errors=20,
    )
    predictions, fitted = of_logits([[1.0, 0.0]]), replace(PLAIN, fusion=fusion)
    with pytest.raises(InputError, match="needs dropout_entropy, uscore"):
        scores.uncertainty(predictions, "fused", fitted)
    assert scores.available(predictions, fitted) == ("softmax", "softmax_entropy", "own")


def test_an_unknown_score_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match='unknown score "sofmax": did you mean "softmax"'):
        scores.uncertainty(full(), "sofmax", PLAIN)


def test_scores_that_predictions_bring_along_come_after_the_registered() -> None:
    own = np.array([0.5, 0.25], dtype=np.float32)
    predictions = of_logits(
        [[2.0, 0.0], [1.0, 0.0]], labels=np.array([0, 1]), scores={"aps_size": own}
    )
    listed = scores.available(predictions, PLAIN)
    assert listed[:3] == ("softmax", "softmax_entropy", "aps_size")
    got = scores.uncertainty(predictions, "aps_size", PLAIN)
    assert got.dtype == np.float64
    assert got.tolist() == [0.5, 0.25]
    assert scores.correct(predictions, "aps_size", PLAIN).tolist() == [True, False]
    with pytest.raises(InputError, match=r'mean "aps_size"\? known: softmax, .*, aps_size, own$'):
        scores.uncertainty(predictions, "aps_sise", PLAIN)


def test_a_registered_name_is_never_replaced_by_a_score_brought_along() -> None:
    predictions = of_logits([[2.0, 0.0]], scores={"softmax": np.array([7.0])})
    assert scores.uncertainty(predictions, "softmax", PLAIN).tolist() == [-2.0]
    assert scores.available(predictions, PLAIN).count("softmax") == 1
    # One that cannot be computed is missing, not taken from elsewhere.
    predictions = of_logits([[2.0, 0.0]], scores={"uscore": np.array([7.0])})
    with pytest.raises(InputError, match="no U-Score"):
        scores.uncertainty(predictions, "uscore", PLAIN)


def test_available_scores_are_those_that_can_be_computed_in_the_registrys_order() -> None:
    everything = tuple(entry.name for entry in SCORES)
    bare = of_logits([[1.0, 0.0]], labels=np.array([0]))
    with_g = replace(bare, columns={"uscore": np.zeros(1)})
    assert scores.available(full(), FUSED) == (*everything, "own")
    without = tuple(name for name in everything if name != "fused")
    assert scores.available(full(), PLAIN) == (*without, "own")
    assert scores.available(bare, PLAIN) == ("softmax", "softmax_entropy", "own")
    assert scores.available(bare, FUSED) == ("softmax", "softmax_entropy", "fused", "own")
    assert scores.available(with_g, PLAIN) == ("softmax", "softmax_entropy", "uscore", "own")
    for predictions in (full(), bare, with_g):
        for fitted in (PLAIN, FUSED):
            for name in everything:
                if name in scores.available(predictions, fitted):
                    scores.uncertainty(predictions, name, fitted)
                else:
                    with pytest.raises(InputError):
                        scores.uncertainty(predictions, name, fitted)


@pytest.mark.parametrize("orientation", [1, -1])
def test_uscore_is_the_column_turned_as_fitted(orientation: int) -> None:
    predictions = full()
    fitted = Fitted(default_score="uscore", orientation=1 if orientation == 1 else -1)
    got = scores.uncertainty(predictions, "uscore", fitted)
    expected = orientation * predictions.columns["uscore"].astype(np.float64)
    np.testing.assert_array_equal(got, expected)


def test_log_odds_of_extreme_logits() -> None:
    logits = np.array([[1e300, 0, -1e300], [900.0, 0, 0], [-np.inf, 0, -np.inf], [0, -745, -750]])
    with np.errstate(over="ignore"):
        expected = [1e300, 900 - np.log(2), np.inf, 745 - np.log1p(np.exp(-5))]
    np.testing.assert_allclose(softmax_scores.log_odds(logits), expected, rtol=1e-15)

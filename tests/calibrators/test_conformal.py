from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import softmax

from revar.calibrators.conformal import APS, LAC, RAPS, Conformal
from revar.errors import InputError
from revar.metrics import auarc, failure_auroc
from revar.predictions import Predictions
from revar.scores.softmax import softmax as softmax_response
from support.properties import FEW
from support.synthetic import of_logits

KINDS: tuple[type[LAC | APS | RAPS], ...] = (LAC, APS, RAPS)
every = pytest.mark.parametrize("kind", KINDS)


def of_chances(p: list[list[float]], labels: list[int] | None = None) -> Predictions:
    numbers = None if labels is None else np.array(labels)
    return of_logits(np.log(np.array(p)), labels=numbers)


def drawn(seed: int, n: int, n_classes: int = 5, width: float = 1.5) -> Predictions:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, width, (n, n_classes))
    labels = (softmax(z, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    # A different sharpness than the truth: coverage must not need a good model.
    return of_logits(3 * z, labels=labels.clip(max=n_classes - 1))


# By hand --------------------------------------------------------------------------------------


def test_strangeness_by_hand() -> None:
    data = of_chances([[0.5, 0.2, 0.3]])
    lac = LAC(strangeness=()).nonconformity(data)
    np.testing.assert_allclose(lac, [[0.5, 0.8, 0.7]])
    # Down to each class: 0.5, then 0.3 more, then all.
    aps = APS(strangeness=()).nonconformity(data)
    np.testing.assert_allclose(aps, [[0.5, 1.0, 0.8]])
    assert aps[0, 1] == 1.0
    # Ranks 1, 3, 2; beyond the first each costs 0.1.
    raps = RAPS(strangeness=(), k_reg=1, penalty=0.1).nonconformity(data)
    np.testing.assert_allclose(raps, [[0.5, 1.2, 0.9]])


def test_the_first_of_equal_classes_ranks_higher() -> None:
    strange = APS(strangeness=()).nonconformity(of_logits(np.zeros((1, 4))))
    np.testing.assert_allclose(strange, [[0.25, 0.5, 0.75, 1.0]])


@pytest.mark.parametrize(
    ("n", "alpha", "rank"),
    # ceil((n + 1)(1 - alpha)): 9 of 9; 18 of 19; ceil(9.9) = 10 of 10; 7 of 9; ceil(5.5) of 10.
    [(9, 0.1, 9), (19, 0.1, 18), (10, 0.1, 10), (9, 0.3, 7), (10, 0.5, 6), (99, 0.45, 55)],
)
def test_the_threshold_is_the_corrected_quantile(n: int, alpha: float, rank: int) -> None:
    strangeness = tuple((np.arange(1, n + 1) / 100).tolist())
    assert LAC(strangeness=strangeness, alpha=alpha).threshold == rank / 100


@pytest.mark.parametrize(("n", "alpha"), [(8, 0.1), (0, 0.5), (1, 0.49)])
def test_too_few_examples_for_alpha_let_every_class_in(n: int, alpha: float) -> None:
    fitted = LAC(strangeness=tuple([0.1] * n), alpha=alpha)
    assert fitted.threshold == np.inf
    assert fitted.sets(of_chances([[0.98, 0.01, 0.01]])).all()


def test_lac_by_hand_on_nine_examples() -> None:
    # p of the true class: 0.9, 0.8, ..., 0.1, so s = 0.1, ..., 0.9.
    shares = np.arange(9, 0, -1) / 10
    tune = of_chances(np.stack([shares, 1 - shares], axis=1).tolist(), [0] * 9)
    fitted = LAC.fit(tune, alpha=0.4)
    np.testing.assert_allclose(fitted.strangeness, np.arange(1, 10) / 10)
    # ceil(10 * 0.6) = 6: s <= 0.6, p >= 0.4.
    assert fitted.threshold == pytest.approx(0.6)
    test = of_chances([[0.55, 0.45], [0.75, 0.25], [0.04, 0.96]])
    assert fitted.sets(test).tolist() == [[True, True], [True, False], [False, True]]
    # s = 0.45 and 0.55: five and four of the nine are at least that, one more each, of ten.
    np.testing.assert_allclose(fitted.p_values(test)[0], [0.6, 0.5])
    # s = 0.25, 0.75; then 0.96, 0.04.
    np.testing.assert_allclose(fitted.p_values(test)[1:], [[0.8, 0.3], [0.1, 1.0]])
    scores = fitted.apply(test).scores
    np.testing.assert_allclose(scores["lac_size"], [2 + 0.45, 1 + 0.25, 1 + 0.04])
    np.testing.assert_allclose(scores["lac_confidence"], [0.5, 0.3, 0.1])
    np.testing.assert_allclose(scores["lac_credibility"], [0.4, 0.2, 0.0], atol=1e-15)


def test_equal_strangeness_counts_as_strange() -> None:
    fitted = LAC(strangeness=(0.25, 0.5, 0.5, 0.75))
    # s = 1/2 for both: three of four are at least that, and one more, of five.
    assert fitted.p_values(of_logits(np.zeros((1, 2)))).tolist() == [[0.8, 0.8]]


def test_aps_by_hand_on_five_examples() -> None:
    p = [[0.6, 0.3, 0.1]] * 5
    fitted = APS.fit(of_chances(p, [0, 0, 0, 1, 2]), alpha=0.4)
    np.testing.assert_allclose(fitted.strangeness, [0.6, 0.6, 0.6, 0.9, 1.0])
    # ceil(6 * 0.6) = 4.
    assert fitted.threshold == pytest.approx(0.9)
    test = of_chances([[0.5, 0.3, 0.2], [0.2, 0.95 - 0.2, 0.05], [0.97, 0.02, 0.01]])
    # 0.5, 0.8, 1; then 0.75, 0.95, 1; then 0.97 is beyond the threshold, but it is the top class.
    assert fitted.sets(test).tolist() == [
        [True, True, False],
        [False, True, False],
        [True, False, False],
    ]
    scores = fitted.apply(test).scores
    np.testing.assert_allclose(scores["aps_size"], [2.5, 1.25, 1.03])
    # Largest: at 0.5 all five and one of six; at 0.75 and 0.97 two and one, one and one.
    np.testing.assert_allclose(scores["aps_credibility"], [0, 3 / 6, 4 / 6], atol=1e-15)
    np.testing.assert_allclose(scores["aps_confidence"], [3 / 6, 2 / 6, 2 / 6])


# Guarantees -----------------------------------------------------------------------------------


@every
@pytest.mark.parametrize(("n", "alpha"), [(9, 0.1), (50, 0.1), (30, 0.33)])
def test_labels_are_covered(kind: type[LAC | APS | RAPS], n: int, alpha: float) -> None:
    """By 2,000 draws of tune and test data together."""
    covered, conforming = [], []
    for seed in range(2000):
        data = drawn(seed, n + 1)
        assert data.labels is not None
        tune = of_logits(data.logits[:n], labels=data.labels[:n])
        test, label = of_logits(data.logits[n:]), data.labels[n]
        fitted = kind.fit(tune, alpha=alpha)
        covered.append(fitted.sets(test)[0, label])
        conforming.append(fitted.p_values(test)[0, label] > alpha)
    error = 4 * np.sqrt(alpha * (1 - alpha) / 2000)
    assert np.mean(covered) >= 1 - alpha - error
    # Without the top class thrown in, it is between 1 - alpha and 1 - alpha + 1 / (n + 1), but
    # for APS and RAPS, whose last class ties at the top with every other row's.
    assert np.mean(conforming) >= 1 - alpha - error
    if kind is LAC:
        assert np.mean(conforming) <= 1 - alpha + 1 / (n + 1) + error


@FEW
@given(st.integers(0, 1000), st.integers(1, 40), st.floats(0.02, 0.9), st.sampled_from(KINDS))
def test_a_class_is_in_iff_its_p_value_exceeds_alpha_or_it_is_the_top_one(
    seed: int, n: int, alpha: float, kind: type[LAC | APS | RAPS]
) -> None:
    fitted, test = kind.fit(drawn(seed, n), alpha=alpha), drawn(seed + 1, 30)
    expected = fitted.p_values(test) > alpha
    expected[np.arange(30), test.predicted] = True
    np.testing.assert_array_equal(fitted.sets(test), expected)


@every
def test_sets_are_made_of_the_most_likely_classes(kind: type[LAC | APS | RAPS]) -> None:
    fitted, test = kind.fit(drawn(0, 100)), drawn(1, 200)
    members = fitted.sets(test)
    ordered = np.take_along_axis(members, np.argsort(-test.logits, axis=1), axis=1)
    assert (np.diff(ordered.astype(int), axis=1) <= 0).all()
    assert members.any(axis=1).all()


@every
@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_size_orders_by_the_set_and_then_by_the_top_probability(
    kind: type[LAC | APS | RAPS], alpha: float
) -> None:
    fitted, test = kind.fit(drawn(0, 200), alpha=alpha), drawn(1, 300)
    size = fitted.apply(test).scores[f"{kind.name}_size"]
    doubt = 1 - test.probabilities.max(axis=1)
    assert ((doubt >= 0) & (doubt < 1)).all()
    np.testing.assert_allclose(size - doubt, np.floor(size + 1e-9 - doubt), atol=1e-9)
    counted = fitted.sets(test).sum(axis=1)
    conform = (fitted.p_values(test) > alpha).any(axis=1)
    expected = counted if kind is not LAC else np.where(conform, counted, 5)
    np.testing.assert_allclose(size - doubt, expected)


# As scores ------------------------------------------------------------------------------------


def ranked(values: NDArray[np.floating], by: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Whether the values, taken in the order of ``by``, never fall."""
    rising: NDArray[np.bool_] = np.diff(values[np.argsort(by, kind="stable")]) >= 0
    return rising


@pytest.mark.parametrize("n_classes", [2, 5])
def test_credibility_of_lac_ranks_as_softmax_response_up_to_ties(n_classes: int) -> None:
    fitted, test = LAC.fit(drawn(0, 4000, n_classes)), drawn(1, 1500, n_classes)
    credibility = fitted.apply(test).scores["lac_credibility"]
    response, correct = softmax_response(test), test.correct()
    assert ranked(credibility, response).all()
    assert auarc(credibility, correct) == pytest.approx(auarc(response, correct), abs=5e-3)
    # Ties broken by softmax response it is that ranking to the bit.
    order = np.lexsort((response, credibility))
    assert auarc(np.argsort(order), correct) == pytest.approx(auarc(response, correct), abs=1e-12)


def test_size_of_lac_never_prefers_what_conforms_to_nothing() -> None:
    # At this alpha the threshold is p >= 0.4: two classes may pass, or none.
    fitted = LAC(strangeness=tuple([0.6] * 9), alpha=0.1)
    test = of_chances([[0.9, 0.05, 0.05], [0.45, 0.44, 0.11], [0.34, 0.33, 0.33]])
    np.testing.assert_allclose(fitted.apply(test).scores["lac_size"], [1.1, 2.55, 3.66])


def test_credibility_of_aps_ranks_against_softmax_response_as_documented() -> None:
    fitted, test = APS.fit(drawn(0, 2000)), drawn(1, 500)
    credibility = fitted.apply(test).scores["aps_credibility"]
    assert ranked(credibility, -softmax_response(test)).all()


def test_confidence_of_aps_is_constant_for_two_classes_as_documented() -> None:
    fitted, test = APS.fit(drawn(0, 200, 2)), drawn(1, 500, 2)
    assert np.ptp(fitted.apply(test).scores["aps_confidence"]) == 0.0


@pytest.mark.parametrize(
    ("kind", "score"),
    [(kind, score) for kind in KINDS for score in ("size", "confidence")]
    + [(LAC, "credibility")],
)  # fmt: skip
def test_errors_are_more_uncertain(kind: type[LAC | APS | RAPS], score: str) -> None:
    fitted, test = kind.fit(drawn(0, 1000)), drawn(1, 2000)
    values = fitted.apply(test).scores[f"{kind.name}_{score}"]
    assert failure_auroc(values, test.correct()) > 0.6


def test_raps_without_a_penalty_or_with_few_classes_is_aps() -> None:
    tune, test = drawn(0, 100), drawn(1, 50)
    aps = APS.fit(tune).nonconformity(test)
    for raps in (RAPS.fit(tune), RAPS.fit(tune, k_reg=0, penalty=0.0)):
        np.testing.assert_array_equal(raps.nonconformity(test), aps)
    assert (RAPS.fit(tune, k_reg=1).nonconformity(test) >= aps).all()


def test_raps_makes_sets_of_many_classes_smaller() -> None:
    tune, test = drawn(0, 2000, 50, 0.4), drawn(1, 500, 50, 0.4)
    aps = APS.fit(tune).sets(test).sum(axis=1)
    raps = RAPS.fit(tune, penalty=0.2).sets(test).sum(axis=1)
    assert raps.max() < aps.max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, r"alpha is 0.0, it must be in \(0, 1\)"),
        ({"alpha": 1.0}, r"alpha is 1.0, it must be in \(0, 1\)"),
        ({"alpha": "much"}, "alpha is 'much', it must be a number"),
        ({"k_reg": -1}, "k_reg is -1, it must not be negative"),
        ({"penalty": -0.1}, "penalty is -0.1"),
        ({"penalty": np.inf}, "penalty is inf"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RAPS.fit(drawn(0, 20), **options)  # type: ignore[arg-type]


def test_conformal_itself_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Conformal(strangeness=())  # type: ignore[abstract]

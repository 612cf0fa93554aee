from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, pearsonr, spearmanr

from revar.errors import UndefinedMetricWarning
from revar.metrics.distributions import label_js, label_kl, uscore_entropy_correlation
from support.properties import FEW, Floats

LN2 = float(np.log(2))
UNIFORM, SURE = [0.5, 0.5], [1.0, 0.0]
DIVERGENCES = [label_kl, label_js]


def rows(seed: int, n: int = 30, n_classes: int = 4) -> tuple[Floats, Floats]:
    """Predictions without zeros, and votes of seven labellers with many.

    No two ways to split seven votes have one entropy, as 6, 2, 1, 1 and 4, 3, 3 of ten have.
    """
    rng = np.random.default_rng(seed)
    predicted = rng.dirichlet(np.ones(n_classes), n)
    return predicted, rng.multinomial(7, rng.dirichlet(np.full(n_classes, 0.3), n)) / 7


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-12)


# Divergences ----------------------------------------------------------------------------------


def test_divergences_by_hand() -> None:
    # KL(sure || uniform) = ln 2, KL(uniform || sure) is infinite.
    assert label_kl([UNIFORM], [SURE]) == close(LN2)
    assert label_kl([SURE], [UNIFORM]) == float("inf")
    assert label_kl([UNIFORM, SURE], [SURE, SURE]) == close(LN2 / 2)
    # m = (3/4, 1/4): ln(4/3) / 2 + (ln(2/3) / 2 + ln(2) / 2) / 2.
    expected = np.log(4 / 3) / 2 + (np.log(2 / 3) + LN2) / 4
    assert label_js([UNIFORM], [SURE]) == close(expected)
    assert label_js([SURE], [UNIFORM]) == close(expected)


def test_js_is_ln_2_where_nothing_is_shared_and_both_are_0_where_all_is() -> None:
    assert label_js([SURE, SURE], [[0.0, 1.0], [0.0, 1.0]]) == close(LN2)
    predicted, _ = rows(0)
    assert label_js(predicted, predicted) == label_kl(predicted, predicted) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_scipy_agrees_on_divergences(seed: int) -> None:
    predicted, human = rows(seed)
    weight = np.random.default_rng(seed).random(30)
    kl = entropy(human, predicted, axis=1)
    js = jensenshannon(human, predicted, axis=1) ** 2
    assert label_kl(predicted, human) == close(kl.mean())
    assert label_js(predicted, human) == close(js.mean())
    assert label_kl(predicted, human, sample_weight=weight) == close(np.average(kl, weights=weight))
    assert label_js(predicted, human, sample_weight=weight) == close(np.average(js, weights=weight))


@FEW
@given(st.integers(0, 10_000))
def test_properties_of_divergences(seed: int) -> None:
    predicted, human = rows(seed)
    rng = np.random.default_rng(seed)
    order, classes, weight = rng.permutation(30), rng.permutation(4), rng.integers(0, 3, 30)
    weight[0] = 1
    repeated = np.repeat(np.arange(30), weight)
    for figure in DIVERGENCES:
        value = figure(predicted, human)
        assert value >= 0
        assert figure(predicted[order], human[order]) == close(value)
        assert figure(predicted[:, classes], human[:, classes]) == close(value)
        weighted = figure(predicted, human, sample_weight=weight)
        assert weighted == close(figure(predicted[repeated], human[repeated]))
    assert label_js(predicted, human) == close(label_js(human, predicted))
    assert label_js(predicted, human) <= LN2
    # 2 total variation^2 <= KL (Pinsker), and JS <= KL / 2 by convexity.
    variation = np.abs(predicted - human).sum(axis=1) / 2
    assert 2 * (variation**2).mean() <= label_kl(predicted, human) + 1e-12
    assert label_js(predicted, human) <= label_kl(predicted, human) / 2 + 1e-12


def test_single_precision_rows_never_diverge_below_zero() -> None:
    predicted, _ = rows(3, n=200, n_classes=100)
    single = torch.from_numpy(predicted).float()
    assert 0 <= label_kl(single, predicted) < 1e-6
    assert 0 <= label_kl(predicted * (1 + 5e-5), predicted) < 1e-12
    assert -1e-15 <= label_js(single, predicted) < 1e-6


def test_the_least_of_numbers_diverge() -> None:
    assert label_js([[5e-324, 1.0]], [[0.0, 1.0]]) == close(0.0)


def test_a_row_without_weight_may_be_infinite() -> None:
    value = label_kl([SURE, UNIFORM], [UNIFORM, SURE], sample_weight=[0, 1])
    assert value == close(LN2)


@pytest.mark.parametrize("figure", DIVERGENCES)
@pytest.mark.parametrize(
    ("predicted", "human", "message"),
    [
        ([UNIFORM], [UNIFORM, SURE], r"\(1, 2\), human_probabilities \(2, 2\)"),
        ([UNIFORM], [[0.2, 0.3, 0.5]], r"\(1, 2\), human_probabilities \(1, 3\)"),
        (UNIFORM, [UNIFORM], r"probabilities have shape \(2,\)"),
        ([UNIFORM], [[3, 7]], "human_probabilities must be .* row 0 .* sum 10"),
        ([[0.5, 0.6]], [UNIFORM], "^probabilities must be .* sum 1.1"),
        ([[1.5, -0.5]], [UNIFORM], "smallest value -0.5"),
        ([[np.inf, -np.inf]], [UNIFORM], "rows of sum one"),
        ([UNIFORM], [[float("nan"), 1.0]], "human_probabilities is NaN in 1 rows: 0"),
        (np.zeros((0, 2)), np.zeros((0, 2)), r"\(0, 2\)"),
    ],
)
def test_what_is_no_pair_of_distributions_is_refused(
    figure: Callable[..., float], predicted: Any, human: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        figure(predicted, human)


# Correlation ----------------------------------------------------------------------------------


def test_correlation_by_hand() -> None:
    # Entropies 0, 0, ln 2: deviations in proportion -1, -1, 2. Scores -2, -1, 3 from their mean:
    # (2 + 1 + 6) / sqrt(6 * 14). Ranks -1, 0, 1 from theirs: 3 / sqrt(6 * 2).
    probabilities, scores = [SURE, [0.0, 1.0], UNIFORM], [0.0, 1.0, 5.0]
    assert uscore_entropy_correlation(scores, probabilities) == close(9 / np.sqrt(84))
    ranked = uscore_entropy_correlation(scores, probabilities, kind="spearman")
    assert ranked == close(3 / np.sqrt(12))


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
@pytest.mark.parametrize("seed", range(3))
def test_scipy_agrees_on_correlation(seed: int, kind: Any) -> None:
    predicted, human = rows(seed)
    oracle = pearsonr if kind == "pearson" else spearmanr
    rng = np.random.default_rng(seed)
    for probabilities in (predicted, human):  # human: many equal entropies
        scores = np.round(entropy(probabilities, axis=1) + rng.normal(size=30), 1)
        sorted_entropy = entropy(np.sort(probabilities, axis=1), axis=1)
        # Votes in another order have one entropy, which rounding must not tell apart.
        expected = oracle(scores, np.round(sorted_entropy, 12)).statistic
        value = uscore_entropy_correlation(scores, probabilities, kind=kind)
        assert value == pytest.approx(expected, abs=1e-9)


@FEW
@given(st.integers(0, 10_000), st.sampled_from(["pearson", "spearman"]))
def test_properties_of_correlation(seed: int, kind: Any) -> None:
    _, probabilities = rows(seed)
    rng = np.random.default_rng(seed)
    scores, order, classes = rng.integers(0, 6, 30), rng.permutation(30), rng.permutation(4)
    weight = rng.integers(1, 4, 30)
    repeated = np.repeat(np.arange(30), weight)

    def figure(uscore: Any, p: Any, **options: Any) -> float:
        return uscore_entropy_correlation(uscore, p, kind=kind, **options)

    value = figure(scores, probabilities)
    assert -1 <= value <= 1
    assert figure(scores[order], probabilities[order]) == close(value)
    assert figure(scores, probabilities[:, classes]) == close(value)
    assert figure(3.0 - 1e6 * scores, probabilities) == close(-value)
    expected = figure(scores[repeated], probabilities[repeated])
    assert figure(scores, probabilities, sample_weight=weight) == close(expected)
    assert figure(scores, probabilities, sample_weight=weight * 0.37) == close(expected)
    if kind == "spearman":
        assert figure(np.exp(scores), probabilities) == close(value)


def test_entropy_itself_correlates_entirely() -> None:
    predicted, _ = rows(1)
    scores = entropy(predicted, axis=1)
    assert uscore_entropy_correlation(scores, predicted) == close(1.0)
    squares = uscore_entropy_correlation(-(scores**2), predicted, kind="spearman")
    assert squares == close(-1.0)


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
@pytest.mark.parametrize(
    ("scores", "probabilities", "message"),
    [
        ([0.1, 0.1, 0.1], [SURE, UNIFORM, [0.3, 0.7]], "all scores of 3 examples are the same"),
        ([1.0, 2.0, 3.0], [SURE, SURE, [0.0, 1.0]], "all entropies of 3 examples are the same"),
        (
            [1.0, 2.0, 3.0],
            [[0.1, 0.2, 0.7], [0.7, 0.1, 0.2], [0.2, 0.7, 0.1]],
            "all entropies of 3 examples are the same",
        ),
        ([0.3], [UNIFORM], "all scores of 1 examples are the same"),
    ],
)
def test_no_correlation_with_what_is_constant(
    kind: Any, scores: Any, probabilities: Any, message: str
) -> None:
    with pytest.warns(UndefinedMetricWarning, match=message) as caught:
        assert np.isnan(uscore_entropy_correlation(scores, probabilities, kind=kind))
    assert caught[0].filename == __file__


def test_what_varies_only_where_there_is_no_weight_is_constant() -> None:
    with pytest.warns(UndefinedMetricWarning, match="all scores of 2"):
        uscore_entropy_correlation([1, 1, 2], [SURE, UNIFORM, SURE], sample_weight=[1, 2, 0])


def test_only_ranks_can_take_an_infinite_score() -> None:
    scores, probabilities = [0.0, 1.0, np.inf], [SURE, [0.2, 0.8], UNIFORM]
    assert uscore_entropy_correlation(scores, probabilities, kind="spearman") == close(1.0)
    with pytest.raises(ValueError, match="infinite in row 2"):
        uscore_entropy_correlation(scores, probabilities)


def test_correlation_checks_its_arguments() -> None:
    with pytest.raises(ValueError, match='did you mean "spearman"'):
        uscore_entropy_correlation([0, 1], [SURE, UNIFORM], kind="spearmann")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"uscore has shape \(1,\): \(2,\) needed"):
        uscore_entropy_correlation([0], [SURE, UNIFORM])
    with pytest.raises(ValueError, match="uscore is NaN in 1 rows: 1"):
        uscore_entropy_correlation([0, float("nan")], [SURE, UNIFORM])

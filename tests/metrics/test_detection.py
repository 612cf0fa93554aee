from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, roc_curve

from revar.errors import UndefinedMetricWarning
from revar.metrics.arrays import kept_weights
from revar.metrics.detection import auc_at_coverage, ood_auroc, ood_fpr_at_tpr
from support.properties import FEW, PROPERTY, Floats


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-12)


def case(seed: int, n: int = 60, n_classes: int = 3) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Tied uncertainty, probabilities in sixteenths with many ties, labels they know about."""
    rng = np.random.default_rng(seed)
    probabilities = rng.multinomial(16, rng.dirichlet(np.ones(n_classes), n)) / 16
    drawn = (probabilities.cumsum(axis=1) <= rng.random((n, 1))).sum(axis=1)
    labels = np.minimum(drawn, n_classes - 1)
    # The most certain hold every class, so that every coverage below has a figure.
    uncertainty = rng.integers(0, 8, n).astype(np.float64)
    labels[:n_classes], uncertainty[:n_classes] = np.arange(n_classes), -1.0
    return uncertainty, probabilities, labels


# Who is kept ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coverage", "kept"),
    [
        (0.01, [0, 1, 0, 0, 0]),  # never nobody
        (0.2, [0, 1, 0, 0, 0]),
        (0.4, [1 / 3, 1, 1 / 3, 1 / 3, 0]),
        (0.6, [2 / 3, 1, 2 / 3, 2 / 3, 0]),
        (0.79, [2 / 3, 1, 2 / 3, 2 / 3, 0]),  # 3.95 examples are 3
        (0.8, [1, 1, 1, 1, 0]),
        (1.0, [1, 1, 1, 1, 1]),
    ],
)
def test_kept_by_hand(coverage: float, kept: list[float]) -> None:
    np.testing.assert_allclose(kept_weights([2, 1, 2, 2, 3], coverage), kept, atol=1e-15)


def test_kept_with_weights_by_hand() -> None:
    # Five in all: two and a half are two, all of them of the tied pair of weight three.
    np.testing.assert_allclose(kept_weights([1, 0, 0], 0.5, [2, 1, 2]), [0, 2 / 3, 4 / 3])
    # Real weights are not rounded: one half of three.
    np.testing.assert_allclose(kept_weights([1, 0, 2], 0.5, [1.2, 0.5, 1.3]), [1.0, 0.5, 0.0])


@FEW
@given(st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_kept_is_the_mean_over_every_order_of_ties(scores: list[int]) -> None:
    n = len(scores)
    orders = [sorted(order, key=lambda i: scores[i]) for order in permutations(range(n))]
    for k in range(1, n + 1):
        times = np.zeros(n)
        for order in orders:
            times[order[:k]] += 1
        np.testing.assert_allclose(kept_weights(scores, k / n), times / len(orders), atol=1e-12)


@PROPERTY
@given(st.integers(0, 10_000), st.floats(1e-6, 1.0))
def test_properties_of_kept(seed: int, coverage: float) -> None:
    rng = np.random.default_rng(seed)
    scores, whole, real = rng.integers(0, 6, 20), rng.integers(0, 4, 20), rng.random(20)
    whole[0] = 1
    total = max(1, np.floor(coverage * whole.sum() + 1e-9))
    kept = kept_weights(scores, coverage, whole)
    assert kept.sum() == close(total)
    assert ((kept >= 0) & (kept <= whole)).all()
    assert kept_weights(scores, coverage, real).sum() == close(coverage * real.sum())
    rows = np.repeat(np.arange(20), whole)
    repeated = np.bincount(rows, kept_weights(scores[rows], coverage), minlength=20)
    np.testing.assert_allclose(kept, repeated, atol=1e-12)
    order = rng.permutation(20)
    moved = kept_weights(np.exp(scores[order]), coverage, whole[order])
    np.testing.assert_allclose(moved, kept[order], atol=1e-12)
    np.testing.assert_array_equal(kept_weights(scores, 1.0, real), real)


def test_a_border_of_real_weights_does_not_slip() -> None:
    """0.1 + 0.1 + 0.1 is more than three tenths of 1.0, and less of the fourth is nothing."""
    for n in (10, 30, 70):
        for k in range(1, n):
            kept = kept_weights(np.arange(n), k / n, np.full(n, 0.1))
            np.testing.assert_array_equal(kept > 0, np.arange(n) < k)


def test_infinite_uncertainty_is_in_order() -> None:
    np.testing.assert_array_equal(
        kept_weights([np.inf, -np.inf, 0.0, np.inf], 0.75), [0.5, 1, 1, 0.5]
    )


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.01, float("nan")])
def test_coverage_is_a_share(coverage: float) -> None:
    with pytest.raises(ValueError, match="coverage is"):
        kept_weights([1, 2], coverage)
    with pytest.raises(ValueError, match="coverage is"):
        auc_at_coverage([1, 2], [[0.5, 0.5], [0.2, 0.8]], [0, 1], coverage)


# AUC at coverage ------------------------------------------------------------------------------


def test_auc_by_hand() -> None:
    probabilities = [[0.8, 0.2], [0.4, 0.6], [0.6, 0.4], [0.4, 0.6], [0.9, 0.1]]
    labels, uncertainty = [0, 1, 1, 0, 1], [1, 2, 3, 4, 5]
    # 0.6, 0.4, 0.1 of class 1 against 0.2, 0.6: of 6 pairs 2 won and one tied.
    assert auc_at_coverage(uncertainty, probabilities, labels, 1.0) == close(2.5 / 6)
    # Without the last one 2.5 of 4, without the last two both of both.
    assert auc_at_coverage(uncertainty, probabilities, labels, 0.8) == close(2.5 / 4)
    assert auc_at_coverage(uncertainty, probabilities, labels, 0.6) == 1.0
    # The last two tied for one place: 0.6, 0.4, half of 0.1 against 0.2, half of 0.6.
    # (1 + 1/4) + (1) + 0 of 5/2 * 3/2.
    assert auc_at_coverage([1, 2, 3, 4, 4], probabilities, labels, 0.8) == close(2.25 / 3.75)


def test_auc_of_three_classes_by_hand() -> None:
    probabilities = [[0.6, 0.2, 0.2], [0.1, 0.5, 0.4], [0.2, 0.6, 0.2], [0.3, 0.2, 0.5]]
    # Class 0: 0.6 beats 0.1, 0.2, 0.3: 1. Class 1: 0.5 beats 0.2, 0.2 and not 0.6: 2/3.
    # Class 2: 0.2, 0.5 against 0.2, 0.4: (1/2 + 0 + 1 + 1) / 4.
    assert auc_at_coverage([1, 2, 3, 4], probabilities, [0, 1, 2, 2], 1.0) == close(
        (1 + 2 / 3 + 2.5 / 4) / 3
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("coverage", [0.4, 0.75, 1.0])
def test_scikit_learn_agrees_on_auc(seed: int, n_classes: int, coverage: float) -> None:
    uncertainty, probabilities, labels = case(seed, n_classes=n_classes)
    weight = np.random.default_rng(seed).random(60) + 0.1
    for used in (None, weight):
        kept = kept_weights(uncertainty, coverage, used)
        rows = kept > 0
        p = probabilities[rows, 1] if n_classes == 2 else probabilities[rows]
        options: dict[str, Any] = {} if n_classes == 2 else {"multi_class": "ovr"}
        expected = roc_auc_score(labels[rows], p, sample_weight=kept[rows], **options)
        value = auc_at_coverage(uncertainty, probabilities, labels, coverage, sample_weight=used)
        assert value == close(expected)


@FEW
@given(st.integers(0, 10_000), st.sampled_from([0.3, 0.5, 0.77, 1.0]), st.sampled_from([2, 3]))
def test_properties_of_auc(seed: int, coverage: float, n_classes: int) -> None:
    uncertainty, probabilities, labels = case(seed, n=30, n_classes=n_classes)
    rng = np.random.default_rng(seed)
    order, classes = rng.permutation(30), rng.permutation(n_classes)
    value = auc_at_coverage(uncertainty, probabilities, labels, coverage)
    assert 0 <= value <= 1
    moved = auc_at_coverage(
        np.exp(uncertainty[order]), probabilities[order], labels[order], coverage
    )
    assert moved == close(value)
    renamed = np.argsort(classes)[labels]
    assert auc_at_coverage(uncertainty, probabilities[:, classes], renamed, coverage) == close(
        value
    )
    weight = rng.integers(1, 4, 30)
    rows = np.repeat(np.arange(30), weight)
    assert auc_at_coverage(
        uncertainty, probabilities, labels, coverage, sample_weight=weight
    ) == close(auc_at_coverage(uncertainty[rows], probabilities[rows], labels[rows], coverage))
    tensors = torch.from_numpy(uncertainty), torch.from_numpy(probabilities)
    assert auc_at_coverage(*tensors, torch.from_numpy(labels), coverage) == value


@pytest.mark.parametrize(
    ("n_classes", "labels", "coverage", "message"),
    [
        (2, [1, 1, 0, 0], 0.5, "all 2 kept examples are of class 1"),
        (2, [0, 1, 0, 1], 0.1, "all 1 kept examples are of class 0"),
        (3, [2, 2, 0, 1], 0.5, "all 2 kept examples are of class 2"),
        (3, [0, 1, 0, 2], 0.75, "class 2 has no examples among the 3 kept"),
        (4, [0, 3, 0, 1], 1.0, "class 2 has no examples among the 4 kept"),
        (1, [0, 0, 0, 0], 1.0, "all 4 kept examples are of class 0"),
    ],
)
def test_auc_is_undefined_without_a_class_and_says_which(
    n_classes: int, labels: list[int], coverage: float, message: str
) -> None:
    probabilities = np.full((4, n_classes), 1 / n_classes)
    with pytest.warns(UndefinedMetricWarning, match=message) as caught:
        value = auc_at_coverage([1, 2, 3, 4], probabilities, labels, coverage)
    assert np.isnan(value)
    assert caught[0].filename == __file__


def test_a_class_that_may_be_kept_has_examples() -> None:
    """The one of class 1 is kept in half of the orders of the tie, so there is a figure."""
    probabilities = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
    assert auc_at_coverage([1, 2, 2], probabilities, [0, 0, 1], 0.67) == 1.0


def test_auc_checks_its_arguments() -> None:
    probabilities = [[0.5, 0.5], [0.2, 0.8]]
    with pytest.raises(ValueError, match=r"uncertainty has shape \(3,\): \(2,\) needed"):
        auc_at_coverage([1, 2, 3], probabilities, [0, 1], 1.0)
    with pytest.raises(ValueError, match="label 2 in row 1"):
        auc_at_coverage([1, 2], probabilities, [0, 2], 1.0)
    with pytest.raises(ValueError, match="uncertainty is NaN in 1 rows: 0"):
        auc_at_coverage([float("nan"), 2], probabilities, [0, 1], 1.0)


# Strange examples -----------------------------------------------------------------------------


def test_ood_auroc_by_hand() -> None:
    assert ood_auroc([1, 2], [3, 4, 5]) == 1.0
    assert ood_auroc([3, 4], [1, 2]) == 0.0
    assert ood_auroc([1, 1], [1]) == 0.5
    assert ood_auroc([1, 3], [2, 3, 4]) == close((1 + 0 + 1 + 0.5 + 1 + 1) / 6)
    assert ood_auroc([1, 3], [2], inside_weight=[3, 1], outside_weight=[0.7]) == close(3 / 4)


def test_fpr_by_hand() -> None:
    inside, outside = np.arange(1, 21), [18.5, 19, 19.5, 25]
    # 19 of 20 are accepted up to 19, and with them 18.5 and 19.
    assert ood_fpr_at_tpr(inside, outside) == 0.5
    assert ood_fpr_at_tpr(inside, outside, tpr=0.951) == 0.75
    # All four are flagged from 18.5 on, and with them 19 and 20; three from 19 on; two from 19.5.
    assert ood_fpr_at_tpr(inside, outside, positive="outside") == 0.1
    assert ood_fpr_at_tpr(inside, outside, tpr=0.75, positive="outside") == 0.1
    assert ood_fpr_at_tpr(inside, outside, tpr=0.5, positive="outside") == 0.05


def test_all_examples_at_the_threshold_are_accepted() -> None:
    assert ood_fpr_at_tpr([1, 1, 1, 1], [1, 1, 2], tpr=0.25) == close(2 / 3)
    assert ood_fpr_at_tpr([1, 2], [0], tpr=0.5) == 1.0


def test_seven_in_a_hundred_are_enough_for_seven_percent() -> None:
    assert 0.07 * 100 > 7
    assert ood_fpr_at_tpr(np.arange(1, 101), [7, 7.5], tpr=0.07) == 0.5
    tenths = np.full(100, 0.1)
    assert ood_fpr_at_tpr(np.arange(1, 101), [7, 7.5], tpr=0.07, inside_weight=tenths) == 0.5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tied", [False, True])
def test_scikit_learn_agrees_on_strange_examples(seed: int, tied: bool) -> None:
    rng = np.random.default_rng(seed)
    inside, outside = rng.normal(size=83), rng.normal(size=57) + 1
    if tied:
        inside, outside = np.round(inside), np.round(outside)
    weight = [rng.random(83) + 0.1, rng.random(57) + 0.1]
    scores, strange = np.r_[inside, outside], np.arange(140) >= 83
    for weights in (None, weight):
        flat = None if weights is None else np.concatenate(weights)
        names: dict[str, Any] = dict(
            zip(("inside_weight", "outside_weight"), weights or (None, None), strict=True)
        )
        expected = roc_auc_score(strange, scores, sample_weight=flat)
        assert ood_auroc(inside, outside, **names) == close(expected)
        for tpr in (0.5, 0.95, 1.0):
            fpr, reached, _ = roc_curve(
                ~strange, -scores, sample_weight=flat, drop_intermediate=False
            )
            value = ood_fpr_at_tpr(inside, outside, tpr=tpr, **names)
            assert value == close(fpr[np.flatnonzero(reached >= tpr - 1e-12)[0]])
            fpr, reached, _ = roc_curve(
                strange, scores, sample_weight=flat, drop_intermediate=False
            )
            value = ood_fpr_at_tpr(inside, outside, tpr=tpr, positive="outside", **names)
            assert value == close(fpr[np.flatnonzero(reached >= tpr - 1e-12)[0]])


@FEW
@given(st.integers(0, 10_000), st.floats(0.01, 1.0))
def test_properties_of_strange_examples(seed: int, tpr: float) -> None:
    rng = np.random.default_rng(seed)
    inside, outside = rng.integers(0, 8, 15), rng.integers(2, 9, 11)
    value = ood_auroc(inside, outside)
    assert ood_auroc(outside, inside) == close(1 - value)
    assert ood_auroc(np.exp(inside[::-1]), np.exp(outside[::-1])) == close(value)
    rate = ood_fpr_at_tpr(inside, outside, tpr=tpr)
    assert 0 <= rate <= ood_fpr_at_tpr(inside, outside, tpr=1.0) <= 1
    turned = ood_fpr_at_tpr(-outside, -inside, tpr=tpr, positive="outside")
    assert turned == close(rate)
    a, b = rng.integers(0, 3, 15), rng.integers(0, 3, 11)
    a[0] = b[0] = 1
    many, others = np.repeat(inside, a), np.repeat(outside, b)
    names: dict[str, Any] = {"inside_weight": a, "outside_weight": b}
    assert ood_auroc(inside, outside, **names) == close(ood_auroc(many, others))
    weighted = ood_fpr_at_tpr(inside, outside, tpr=tpr, **names)
    assert weighted == close(ood_fpr_at_tpr(many, others, tpr=tpr))


@pytest.mark.parametrize("figure", [ood_auroc, ood_fpr_at_tpr])
@pytest.mark.parametrize(
    ("inside", "outside", "message"),
    [
        ([], [1.0], "inside has no examples"),
        ([1.0], [], "outside has no examples"),
        ([[1.0]], [1.0], r"inside has shape \(1, 1\)"),
        ([1.0], [2.0, float("nan")], "outside is NaN in 1 rows: 1"),
    ],
)
def test_sets_are_checked(figure: Any, inside: Any, outside: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figure(inside, outside)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="tpr is 0"):
        ood_fpr_at_tpr([1], [2], tpr=0)
    with pytest.raises(ValueError, match='did you mean "outside"'):
        ood_fpr_at_tpr([1], [2], positive="outsider")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"outside_weight has shape \(2,\): \(1,\) needed"):
        ood_auroc([1, 2], [3], outside_weight=[1, 2])

"""scikit-learn's own checks of an estimator, and what its users do with one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from revar import InputError, SelectiveClassifier
from support.problems import blobs

EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight two is not two rows: batches, splits and dropout are drawn by row"
    ),
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [SelectiveClassifier(random_state=0), SelectiveClassifier("erm", random_state=0)],
    expected_failed_checks=lambda _: EXPECTED,
)
def test_scikit_learn_has_no_complaints(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def quick(**options: Any) -> SelectiveClassifier:
    chosen = {"method": "erm", "epochs": 6, "batch_size": 32, "random_state": 0, **options}
    return SelectiveClassifier(**chosen)


@pytest.mark.parametrize("method", ["erm", "revar", "trajectory"])
def test_heavy_examples_win_where_labels_disagree(method: str) -> None:
    """The same inputs under two labels: the label with the weight is learned."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 3))
    y = np.arange(400) % 2
    for heavy in (0, 1):
        weight = np.where(y == heavy, 9.0, 1.0)
        clf = quick(method=method).fit(x, y, sample_weight=weight)
        assert (clf.predict(x) == heavy).mean() > 0.9


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_a_row_of_a_table_is_answered_alike_alone_and_among_others(n: int) -> None:
    """To the last digit but one of float32, which scikit-learn asks for."""
    x, y = blobs()
    clf = quick(method="trajectory").fit(x, y)
    parts = [clf.model_.predict(x[i : i + n]) for i in range(0, 42, n)]
    whole = clf.model_.predict(x[:42])
    for name in ("logits", "dropout_mean"):
        found = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(found, getattr(whole, name), rtol=1e-7, atol=1e-7)
    uscore = np.concatenate([part.columns["uscore"] for part in parts])
    np.testing.assert_allclose(uscore, whole.columns["uscore"], rtol=1e-7, atol=1e-7)


def test_only_ratios_of_weights_matter() -> None:
    x, y = blobs()
    weight = np.random.default_rng(0).integers(1, 5, len(y))
    first = quick().fit(x, y, sample_weight=weight)
    second = quick().fit(x, y, sample_weight=1024 * weight)
    assert np.array_equal(first.predict_proba(x), second.predict_proba(x))
    plain = quick().fit(x, y)
    ones = quick().fit(x, y, sample_weight=np.full(len(y), 7.0))
    assert ones.predict_proba(x) == pytest.approx(plain.predict_proba(x), abs=1e-5)


def test_large_weights_weigh_like_small_ones() -> None:
    """Their sum is infinite."""
    x, y = blobs()
    weight = np.where(y == 1, 2.0, 1.0)
    expected = quick(epochs=1).fit(x, y, sample_weight=weight).predict_proba(x)
    for scale in (2.0**1022, 2.0**-1060):
        found = quick(epochs=1).fit(x, y, sample_weight=scale * weight).predict_proba(x)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.full(240, -1.0), "negative"),
        (np.full(240, np.nan), "missing"),
        (np.zeros(240), "zero for every example"),
        (np.ones(239), "sample_weight has 239"),
        (np.ones((240, 2)), r"shape \(240, 2\)"),
    ],
)
def test_bad_weights_are_named(weight: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        quick().fit(*blobs(), sample_weight=weight)


def test_a_column_of_labels_is_taken_with_a_warning() -> None:
    x, y = blobs()
    with pytest.warns(DataConversionWarning, match="1d array was expected"):
        clf = quick().fit(x, y[:, None])
    assert np.array_equal(clf.predict_proba(x), quick().fit(x, y).predict_proba(x))


def test_a_deep_copy_is_the_same_and_its_own() -> None:
    x, y = blobs()
    clf = quick().fit(x, y)
    other = copy.deepcopy(clf)
    clf.set_threshold(*blobs(60, seed=2), coverage=0.5)
    assert np.array_equal(other.predict_proba(x), clf.predict_proba(x))
    with pytest.raises(InputError, match="no threshold is set"):
        other.predict_or_abstain(x)


def test_frames_give_their_names() -> None:
    x, y = blobs()
    clf = quick().fit(pd.DataFrame(x, columns=["a", "b", "c", "d"]), y)
    assert clf.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert clf.n_features_in_ == 4


def test_an_unknown_score_has_a_nearest_name() -> None:
    x, y = blobs()
    clf = quick().fit(x, y)
    with pytest.raises(InputError, match='unknown score "sofmax": did you mean "softmax"'):
        clf.uncertainty(x, score="sofmax")
    with pytest.raises(InputError, match="this run has no U-Score"):
        clf.uncertainty(x, score="uscore")


def test_lists_and_sparse_matrices() -> None:
    x, y = blobs()
    clf = quick().fit(x.tolist(), y.tolist())
    assert np.array_equal(clf.predict(x), clf.predict(x.tolist()))
    from scipy.sparse import csr_matrix

    with pytest.raises(TypeError, match="sparse input is not supported"):
        clf.predict(csr_matrix(x))

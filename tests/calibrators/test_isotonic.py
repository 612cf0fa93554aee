from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression

from revar.calibrators.isotonic import FLOOR, Isotonic
from support.properties import FEW
from support.synthetic import of_logits


@FEW
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(20, 200))
def test_curves_are_scikit_learns_normalised_over_classes(
    seed: int, n_classes: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(0, 2, (n, n_classes)), rng.integers(0, n_classes, n)
    labels[:n_classes] = np.arange(n_classes)
    new = rng.normal(0, 4, (50, n_classes))
    p, p_new = softmax(logits, axis=1), softmax(new, axis=1)
    curves = np.stack(
        [
            IsotonicRegression(out_of_bounds="clip").fit(p[:, c], labels == c).predict(p_new[:, c])
            for c in range(n_classes)
        ],
        axis=1,
    )
    total = curves.sum(axis=1, keepdims=True)
    # Between a step from zero the interpolation may be as small as the floor.
    clear = total[:, 0] > 1e-3
    expected = curves[clear] / total[clear]
    got = Isotonic.fit(of_logits(logits, labels=labels)).apply(of_logits(new)).probabilities
    np.testing.assert_allclose(got[clear], expected, atol=1e-8)
    np.testing.assert_allclose(got.sum(axis=1), 1.0)


def test_by_hand() -> None:
    # p of class 1: 0.1, 0.2, 0.3, 0.4 with labels 0, 1, 0, 1. Pooling the violators 0.2 and 0.3
    # gives 0, 1/2, 1/2, 1; class 0 mirrors it. Halfway from 0.1 to 0.2 the curve is at 1/4.
    p = np.array([0.1, 0.2, 0.3, 0.4])
    fitted = Isotonic.fit(
        of_logits(np.log(np.stack([1 - p, p], axis=1)), labels=np.array([0, 1, 0, 1]))
    )
    assert fitted.fitted_on == 4
    np.testing.assert_allclose(fitted.inputs[1], p)
    assert fitted.outputs[1] == (0.0, 0.5, 0.5, 1.0)
    new = np.array([0.01, 0.15, 0.25, 0.35, 0.99])
    got = fitted.apply(of_logits(np.log(np.stack([1 - new, new], axis=1)))).probabilities[:, 1]
    np.testing.assert_allclose(got, [0, 0.25, 0.5, 0.75, 1], atol=1e-11)


def test_a_row_that_all_curves_call_impossible_keeps_its_probabilities() -> None:
    # Curves as of a tune split where a class is right at p = 0.8 and never at 0.5 or below.
    sure = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    unsure = np.array([[0.4, 0.35, 0.25], [0.3, 0.4, 0.3], [0.5, 0.25, 0.25]])
    never = Isotonic(inputs=((0.5, 0.8),) * 3, outputs=((0.0, 1.0),) * 3, fitted_on=6)
    for p, expected in ((unsure, unsure), (sure, np.eye(3))):
        got = never.apply(of_logits(np.log(p))).probabilities
        np.testing.assert_allclose(got, expected, atol=1e-11)


def test_no_chance_is_below_the_floor_and_flat_pieces_keep_the_order() -> None:
    step = Isotonic(inputs=((0.5, 0.5001),) * 2, outputs=((0.0, 1.0),) * 2, fitted_on=2)
    after = step.apply(of_logits([[1e4, -1e4], [3.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    assert after.log_probabilities.min() == pytest.approx(2 * np.log(FLOOR))
    assert after.predicted.tolist() == [0, 0, 0, 1]
    flat = Isotonic(inputs=((0.0, 1.0),) * 2, outputs=((0.5, 0.5),) * 2, fitted_on=2)
    after = flat.apply(of_logits([[0.0, 2.0], [2.0, 0.0]]))
    assert after.predicted.tolist() == [1, 0]
    np.testing.assert_allclose(after.probabilities, 0.5, atol=1e-11)


def test_classes_that_never_or_always_occur_keep_their_probabilities() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 3))
    alone = Isotonic.fit(of_logits(logits, labels=np.full(40, 2)))
    assert alone.inputs == alone.outputs == ((), (), ())
    got = alone.apply(of_logits(logits)).probabilities
    np.testing.assert_allclose(got, softmax(logits, axis=1), atol=1e-11)
    without_the_last = Isotonic.fit(of_logits(logits, labels=rng.integers(0, 2, 40)))
    assert without_the_last.inputs[2] == ()
    assert len(without_the_last.inputs[0]) > 0

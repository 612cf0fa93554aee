from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from safetensors.numpy import save
from scipy.special import log_softmax, softmax

from revar.errors import InputError
from revar.predictions import Predictions, together
from support.properties import PROPERTY, Floats
from support.synthetic import of_logits


def everything(n: int = 9) -> Predictions:
    rng = np.random.default_rng(0)
    mean = rng.dirichlet(np.ones(4), n).astype(np.float32)
    return Predictions(
        index=rng.permutation(1000)[:n],
        logits=rng.normal(0, 5, (n, 4)).astype(np.float32),
        labels=rng.integers(0, 4, n),
        dropout_mean=mean,
        dropout_variance=rng.random(n).astype(np.float32),
        dropout_entropy=rng.random(n),
        dropout_expected_entropy=rng.random(n),
        columns={"uscore": rng.normal(size=n).astype(np.float32), "weight": rng.random(n)},
        scores={"aps_size": rng.random(n), "uscore": rng.random(n).astype(np.float32)},
        split="tune",
    )


def same_bits(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


def assert_same(one: Predictions, other: Predictions) -> None:
    assert one.split == other.split
    for part in fields(Predictions):
        if part.name not in ("columns", "scores", "split"):
            assert same_bits(getattr(one, part.name), getattr(other, part.name)), part.name
    for named in ("columns", "scores"):
        left, right = getattr(one, named), getattr(other, named)
        assert set(left) == set(right)
        for name in left:
            assert same_bits(left[name], right[name]), name


# Probabilities --------------------------------------------------------------------------------


@PROPERTY
@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 6), st.integers(1, 5)),
        elements=st.floats(-1e4, 1e4, allow_nan=False),
    )
)
def test_probabilities_are_the_softmax(logits: Floats) -> None:
    predictions = of_logits(logits)
    np.testing.assert_allclose(
        predictions.log_probabilities, log_softmax(logits, axis=1), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(
        predictions.probabilities, softmax(logits, axis=1), rtol=1e-12, atol=1e-15
    )
    np.testing.assert_allclose(predictions.probabilities.sum(axis=1), 1)


def test_huge_logits_overflow_nothing() -> None:
    predictions = of_logits(np.array([[3e38, -3e38, 0.0], [1e4, 1e4, -1e4]], dtype=np.float32))
    np.testing.assert_array_equal(predictions.probabilities, [[1, 0, 0], [0.5, 0.5, 0]])
    assert predictions.log_probabilities.dtype == np.float64
    assert np.isfinite(predictions.log_probabilities).all()


def test_small_probabilities_keep_their_digits_as_logs() -> None:
    # log p of the second class is -800 - log(1 + exp(-800)), where p itself is 0 in float64.
    predictions = of_logits([[800.0, 0.0]])
    assert predictions.probabilities[0, 1] == 0.0
    assert predictions.log_probabilities[0, 1] == -800.0


# Predicted and correct ------------------------------------------------------------------------


def test_the_prediction_is_the_argmax_and_the_first_of_equals() -> None:
    predictions = of_logits([[0.0, 2.0, 1.0], [5.0, 5.0, 5.0]])
    assert predictions.predicted.tolist() == [1, 0]
    assert len(predictions) == 2


def test_correct_by_either_prediction() -> None:
    predictions = of_logits(
        [[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]],
        labels=np.array([0, 1, 1]),
        dropout_mean=np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]),
    )
    assert predictions.correct().tolist() == [True, False, True]
    assert predictions.correct(by_dropout_mean=True).tolist() == [True, True, False]
    assert predictions.correct().dtype == np.bool_


@pytest.mark.parametrize("by_dropout_mean", [True, False])
def test_without_labels_nothing_is_right_or_wrong(by_dropout_mean: bool) -> None:
    with pytest.raises(InputError, match="no labels"):
        of_logits([[1.0, 0.0]]).correct(by_dropout_mean=by_dropout_mean)


def test_without_passes_there_is_no_mean_to_predict_by() -> None:
    with pytest.raises(InputError, match="no dropout passes"):
        of_logits([[1.0, 0.0]], labels=np.array([0])).correct(by_dropout_mean=True)


# Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "predictions",
    [
        everything(),
        of_logits(np.zeros((3, 2), dtype=np.float32)),
        of_logits(np.zeros((0, 2), dtype=np.float32), labels=np.zeros(0, dtype=np.int64)),
        of_logits(
            np.array([[np.nan, -0.0], [np.inf, 5e-324]]), columns={"a.b": np.array([1.0, 2.0])}
        ),
    ],
    ids=["everything", "least", "no rows", "odd numbers"],
)
def test_what_is_saved_is_loaded_bit_by_bit(predictions: Predictions) -> None:
    data = predictions.to_bytes()
    loaded = Predictions.from_bytes(data, "p")
    assert_same(loaded, predictions)
    # And once more, from what was loaded, to the same bytes.
    assert loaded.to_bytes() == data


def test_what_says_nothing_of_a_split_is_written_as_before() -> None:
    predictions = of_logits(np.zeros((3, 2), dtype=np.float32), columns={"uscore": np.ones(3)})
    index, logits = np.arange(3), np.zeros((3, 2), dtype=np.float32)
    old = save({"index": index, "logits": logits, "column.uscore": np.ones(3)})
    assert predictions.to_bytes() == old
    loaded = Predictions.from_bytes(old, "p")
    assert (loaded.split, dict(loaded.scores)) == ("", {})


@pytest.mark.parametrize("split", ["tune", "on-Übung 7", 'a "quoted" name\\'])
def test_the_split_is_text_of_any_kind(split: str) -> None:
    predictions = of_logits(np.zeros((0, 2)), split=split)
    assert Predictions.from_bytes(predictions.to_bytes(), "p").split == split
    assert predictions.to_bytes() == of_logits(np.zeros((0, 2)), split=split).to_bytes()


def test_metadata_of_others_is_no_split() -> None:
    data = save({"index": np.arange(1), "logits": np.zeros((1, 2))}, metadata={"format": "pt"})
    assert Predictions.from_bytes(data, "p").split == ""


def test_views_are_saved_as_they_are_seen() -> None:
    base = everything(8)
    predictions = Predictions(
        index=base.index[::2],
        logits=np.asfortranarray(base.logits)[::2],
        columns={"uscore": base.columns["uscore"][::-2]},
    )
    assert_same(Predictions.from_bytes(predictions.to_bytes(), "p"), predictions)


@pytest.mark.parametrize("damage", ["empty", "text", "cut header", "cut data", "longer"])
def test_a_damaged_file_is_an_input_error_that_names_it(damage: str) -> None:
    whole = everything().to_bytes()
    broken = {
        "empty": b"",
        "text": b"index,logits\n0,1.5\n" * 20,
        "cut header": whole[:50],
        "cut data": whole[:-8],
        "longer": whole + b"\0" * 8,
    }
    with pytest.raises(InputError, match=r'"broken\.safetensors" is damaged: '):
        Predictions.from_bytes(broken[damage], "broken.safetensors")


@pytest.mark.parametrize("kept", ["index", "logits", "weight"])
def test_a_safetensors_file_of_something_else_is_an_input_error(kept: str) -> None:
    data = save({kept: np.zeros((3, 2))})
    missing = "logits" if kept == "index" else "index"
    with pytest.raises(InputError, match=rf'"model" holds no .*"{missing}" is missing'):
        Predictions.from_bytes(data, "model")


def test_columns_of_different_lengths_are_damage() -> None:
    data = save({"index": np.arange(3), "logits": np.zeros((2, 2))})
    with pytest.raises(InputError, match='"p" is damaged: its columns have different lengths'):
        Predictions.from_bytes(data, "p")


def test_predictions_on_several_splits_are_those_on_one() -> None:
    whole = everything(9)
    assert_same(together([whole], "tune"), whole)

    def rows(chosen: slice) -> Predictions:
        changes: dict[str, Any] = {
            part.name: getattr(whole, part.name)[chosen]
            for part in fields(Predictions)
            if part.name not in ("columns", "scores", "split")
        }
        for kind in ("columns", "scores"):
            named = getattr(whole, kind)
            changes[kind] = {name: values[chosen] for name, values in named.items()}
        return replace(whole, **changes)

    assert_same(together([rows(slice(4)), rows(slice(4, None))], "tune"), whole)


def test_what_one_split_lacks_is_left_out() -> None:
    one = everything()
    other = replace(one, dropout_entropy=None, columns={"uscore": one.columns["uscore"]})
    both = together([one, other], "held out")
    assert len(both) == 18
    assert both.split == "held out"
    assert both.dropout_entropy is None
    assert both.dropout_variance is not None
    assert set(both.columns) == {"uscore"}

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from revar.data.factors import class_factors, example_weights
from revar.errors import InputError


def test_factors_come_in_the_order_of_the_classes() -> None:
    labels = np.array(["b", "a", "b"])
    assert class_factors({"b": 2}, labels) == (1.0, 2.0)
    assert class_factors("balanced", labels) == "balanced"
    assert class_factors(None, labels) is None


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({0: "x"}, "class_weight of 0 is 'x': a number is needed"),
        ({0: None}, "class_weight of 0 is None: a number is needed"),
        ({0: 1.0, "0": 5.0}, "two factors for one class, 0 and '0': leave one out"),
        ({7: 1.0}, "class_weight: label 7 was not among the training classes"),
        (np.ones(2), "None, balanced or a dictionary is needed"),
    ],
)
def test_factors_that_cannot_be_are_refused(wanted: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        class_factors(wanted, np.array([0, 1]))


def test_weights_of_tensors_are_detached() -> None:
    weights = torch.tensor([1.0, 2.0], requires_grad=True)
    for given in (weights, list(weights), weights.bfloat16()):
        found = example_weights(given)
        assert found is not None
        assert found.tolist() == [1.0, 2.0]
    assert example_weights(None) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["a", "b"], "something else than numbers"),
        ([[1], [1, 2]], "something else than numbers"),
        (np.ma.array([1.0, 2.0], mask=[True, False]), "holds masked values"),
        (np.ones((2, 2)), r"shape \(2, 2\): one per example"),
    ],
)
def test_weights_that_cannot_be_are_refused(given: Any, words: str) -> None:
    with pytest.raises(InputError, match=f"sample_weight .*{words}") as caught:
        example_weights(given)
    assert "\n" not in str(caught.value)

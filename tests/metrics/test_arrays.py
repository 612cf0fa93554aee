"""What metrics take for numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from revar import metrics

CORRECT = [True, False, True, True]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.ma.masked_array([0.1, 0.2, 0.3, 0.4], mask=[False, True, False, False]), "masked"),
        (np.array([1, 2, 3, 4j]), "complex"),
        (torch.tensor([1, 2, 3, 4j]), "complex"),
    ],
    ids=["masked", "complex", "complex tensor"],
)
def test_values_that_would_lose_something_are_refused(values: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        metrics.auarc(values, CORRECT)


def test_a_masked_array_without_a_masked_value_is_an_array() -> None:
    values = np.ma.masked_array([0.1, 0.2, 0.3, 0.4], mask=False)
    assert metrics.auarc(values, CORRECT) == metrics.auarc(np.asarray(values), CORRECT)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("classes", [3, 100, 1000])
def test_probabilities_of_few_digits_are_probabilities(kind: torch.dtype, classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(200, classes, generator=generator).mul(3).softmax(1)
    labels = torch.arange(200) % classes
    halves = p.to(kind)
    assert (halves.double().sum(1) - 1).abs().max() > 1e-4
    assert metrics.brier(halves, labels) == pytest.approx(metrics.brier(p, labels), rel=0.02)
    with pytest.raises(ValueError, match="logits need a softmax first"):
        metrics.brier(p.mul(1.05).to(kind), labels)

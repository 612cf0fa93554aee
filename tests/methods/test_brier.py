"""The Brier score as a loss."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from revar.methods.brier import Brier, brier_losses
from support.calibration import held_out
from support.logits import step_on
from support.properties import PROPERTY


def test_by_hand() -> None:
    """Probabilities 0.5, 0.3, 0.2: 0.25 + 0.09 + 0.04 for the first label, 0.98 for the last."""
    logits = torch.tensor([[0.5, 0.3, 0.2]] * 2, dtype=torch.float64).log()
    losses = brier_losses(logits, torch.tensor([0, 2]))
    torch.testing.assert_close(losses, torch.tensor([0.38, 0.98], dtype=torch.float64))
    result, _ = step_on(Brier(), logits, torch.tensor([0, 2]))
    assert result.loss.item() == pytest.approx(0.68)


def test_weights_of_examples_and_classes_multiply_the_losses() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.2]] * 2, dtype=torch.float64).log()
    weight = torch.tensor([3.0, 0.5], dtype=torch.float64)
    result, _ = step_on(
        Brier(), logits, torch.tensor([0, 2]), weight=weight, class_weights=(2.0, 1.0, 4.0)
    )
    assert result.loss.item() == pytest.approx((0.38 * 6 + 0.98 * 2) / 2)


@PROPERTY
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6), st.data())
def test_it_is_proper(raw: list[float], data: st.DataObject) -> None:
    """In expectation over labels, no other probabilities cost less than those of the labels."""
    truth = torch.tensor(raw, dtype=torch.float64)
    n = len(raw)
    other = torch.tensor(data.draw(st.lists(st.floats(-5, 5), min_size=n, max_size=n)))
    p = truth.softmax(0)

    def expected(logits: torch.Tensor) -> float:
        return float(p @ brier_losses(logits.expand(n, n), torch.arange(n)))

    assert expected(truth) <= expected(other.double()) + 1e-12
    assert expected(truth) == pytest.approx(1 - float(p.square().sum()))


@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_extreme_logits_give_finite_numbers_of_at_most_two(scale: float) -> None:
    logits = scale * torch.tensor([[1.0, -1, 0], [-1, 1, 0], [0, 0, 1], [1, 1, -1]])
    logits.requires_grad_()
    loss = step_on(Brier(), logits, torch.tensor([0, 0, 2, 1]))[0].loss
    (gradient,) = torch.autograd.grad(loss, logits)
    assert 0 <= loss.item() <= 2
    assert gradient.isfinite().all()


def test_confidence_falls_towards_accuracy() -> None:
    """ERM has an ECE of 0.26 here, Brier one of 0.22, and it is a little more accurate."""
    error, accuracy, _ = held_out("brier")
    erm_error, erm_accuracy, _ = held_out("erm")
    assert error < erm_error - 0.02
    assert accuracy > erm_accuracy - 0.01

"""FLSD-53 and the focal arithmetic it shares."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from revar.errors import InputError
from revar.functional import mode
from revar.methods.erm import ERM
from revar.methods.focal import FLSD53
from revar.methods.focal_loss import focal_factor, label_log_probability
from support.calibration import held_out
from support.feeds import CLOCK, TASK, small
from support.logits import step_on


def of_probability(p_y: list[float]) -> Tensor:
    """Two-class logits that give the first class these probabilities."""
    p = torch.tensor(p_y, dtype=torch.float64)
    return torch.stack([p.log(), (1 - p).log()], dim=1)


def test_the_factor_by_hand() -> None:
    log_p = torch.tensor([0.5, 0.5, 0.5, 0.25], dtype=torch.float64).log()
    gamma = torch.tensor([0.0, 2.0, -2.0, 3.0], dtype=torch.float64)
    expected = torch.tensor([1.0, 0.25, 2.25, 0.421875], dtype=torch.float64)
    torch.testing.assert_close(focal_factor(log_p, gamma), expected)


def test_gamma_zero_is_cross_entropy_with_its_gradient() -> None:
    torch.manual_seed(0)
    logits = (4 * torch.randn(20, 5).double()).requires_grad_()
    y = torch.arange(20) % 5
    log_p_y = label_log_probability(logits, y)
    focal = (focal_factor(log_p_y, torch.tensor(0.0)) * -log_p_y).sum()
    plain = F.cross_entropy(logits, y, reduction="sum")
    torch.testing.assert_close(focal, plain)
    (ours,) = torch.autograd.grad(focal, logits)
    (theirs,) = torch.autograd.grad(plain, logits)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("gamma", [-2.0, -0.2, 0.2, 3.0, 20.0])
def test_the_gradient_goes_through_the_factor(gamma: float) -> None:
    """By the probability of the label: d/dp of -(1 - p)^g log p, or of -(1 + p)^|g| log p."""
    p = torch.tensor([0.05, 0.3, 0.9], dtype=torch.float64, requires_grad=True)
    loss = (focal_factor(p.log(), torch.tensor(gamma)) * -p.log()).sum()
    (gradient,) = torch.autograd.grad(loss, p)
    expected = []
    for q in p.tolist():
        if gamma > 0:
            slope = gamma * (1 - q) ** (gamma - 1) * math.log(q) - (1 - q) ** gamma / q
        else:
            g = -gamma
            slope = -g * (1 + q) ** (g - 1) * math.log(q) - (1 + q) ** g / q
        expected.append(slope)
    torch.testing.assert_close(gradient, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("gamma", [-2.0, 0.0, 0.2, 5.0])
def test_a_certain_label_has_no_loss_and_a_finite_gradient(gamma: float) -> None:
    log_p = torch.tensor([0.0, -1e-30, -1e-8, -1e4], requires_grad=True)
    loss = focal_factor(log_p, torch.tensor(gamma)) * -log_p
    (gradient,) = torch.autograd.grad(loss.sum(), log_p)
    assert loss[0].item() == 0.0
    assert loss[3].item() == pytest.approx(1e4)
    assert gradient.isfinite().all()


def test_the_loss_by_hand() -> None:
    """p_y of 0.1 has gamma 5, of 0.25 and 0.9 gamma 3."""
    y = torch.zeros(3, dtype=torch.int64)
    result, _ = step_on(FLSD53(), of_probability([0.1, 0.25, 0.9]), y)
    losses = [-(0.9**5) * math.log(0.1), -(0.75**3) * math.log(0.25), -(0.1**3) * math.log(0.9)]
    assert result.loss.item() == pytest.approx(sum(losses) / 3)
    weight = torch.tensor([2.0, 0.0, 1.0]).double()
    result, _ = step_on(
        FLSD53(), of_probability([0.1, 0.25, 0.9]), y, weight=weight, class_weights=(3.0, 1.0)
    )
    assert result.loss.item() == pytest.approx(3 * (2 * losses[0] + losses[2]) / 3)


def test_the_choice_of_gamma_has_no_gradient() -> None:
    logits = of_probability([0.1, 0.25, 0.9]).requires_grad_()
    y = torch.zeros(3, dtype=torch.int64)
    (ours,) = torch.autograd.grad(step_on(FLSD53(), logits, y)[0].loss, logits)
    log_p = label_log_probability(logits, y)
    gamma = torch.tensor([5.0, 3.0, 3.0])
    (fixed,) = torch.autograd.grad((focal_factor(log_p, gamma) * -log_p).mean(), logits)
    torch.testing.assert_close(ours, fixed)


def test_both_gammas_zero_is_plain_training() -> None:
    losses = []
    for method in (FLSD53(gamma=0.0, gamma_unlikely=0.0), ERM()):
        networks, batch, feeds = small(method)
        with mode(networks.classifier, dropout=False, statistics=True):
            loss = method.loss(networks, TASK, batch, feeds, CLOCK).loss
        gradient = torch.autograd.grad(loss, list(networks.classifier.parameters()))
        losses.append([loss, *gradient])
    for ours, plain in zip(*losses, strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_extreme_logits_give_finite_numbers(scale: float) -> None:
    logits = scale * torch.tensor([[1.0, -1, 0], [-1, 1, 0], [0, 0, 1], [1, 1, -1]])
    logits.requires_grad_()
    loss = step_on(FLSD53(), logits, torch.tensor([0, 0, 2, 1]))[0].loss
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("field", "value"), [("gamma", -1.0), ("gamma_unlikely", -0.1), ("threshold", 1.1)]
)
def test_values_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        FLSD53(**{field: value})  # type: ignore[arg-type]


def test_confidence_falls_towards_accuracy() -> None:
    """ERM has an ECE of 0.26 here, FLSD-53 one of 0.14."""
    error, accuracy, _ = held_out("flsd53")
    erm_error, erm_accuracy, _ = held_out("erm")
    assert error < erm_error - 0.07
    assert accuracy > erm_accuracy - 0.03

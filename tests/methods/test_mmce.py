"""MMCE against its three sums."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from revar.errors import InputError
from revar.methods.mmce import MMCE, weighted_mmce
from support.calibration import held_out
from support.logits import step_on
from support.properties import PROPERTY


def by_sums(r: list[float], correct: list[bool], width: float, *, twice: bool) -> float:
    """The paper's three sums over pairs, one after the other."""
    right = [x for x, c in zip(r, correct, strict=True) if c]
    wrong = [x for x, c in zip(r, correct, strict=True) if not c]
    if not right or not wrong:
        return 0.0
    a, b = len(right), len(wrong)

    def k(x: float, z: float) -> float:
        return math.exp(-abs(x - z) / width)

    both_right = sum((1 - x) * (1 - z) * k(x, z) for x in right for z in right) / a**2
    both_wrong = sum(x * z * k(x, z) for x in wrong for z in wrong) / b**2
    mixed = sum((1 - x) * z * k(x, z) for x in right for z in wrong) / (a * b)
    if twice:
        both_right, both_wrong, mixed = both_right / a**2, both_wrong / b**2, mixed / (a * b)
    return math.sqrt(max(both_right + both_wrong - 2 * mixed, 1e-10))


def mmce(r: list[float], correct: list[bool], **options: object) -> Tensor:
    confidence = torch.tensor(r, dtype=torch.float64)
    return weighted_mmce(
        confidence,
        torch.tensor(correct),
        torch.ones_like(confidence),
        **options,  # type: ignore[arg-type]
    )


def test_by_hand() -> None:
    """One right at 0.8, one wrong at 0.6: 0.2^2 + 0.6^2 - 2 * 0.2 * 0.6 * exp(-1/2)."""
    expected = math.sqrt(0.04 + 0.36 - 0.24 * math.exp(-0.5))
    assert mmce([0.8, 0.6], [True, False]).item() == pytest.approx(expected, rel=1e-12)
    # Two right ones of the same confidence share their weight and change nothing ...
    again = mmce([0.8, 0.8, 0.6], [True, True, False]).item()
    assert again == pytest.approx(expected, rel=1e-12)
    # ... unless it is divided twice: 0.04 / 4, 0.36 and 0.12 / 2.
    twice = mmce([0.8, 0.8, 0.6], [True, True, False], double_normalised=True).item()
    expected = math.sqrt(0.01 + 0.36 - 0.12 * math.exp(-0.5))
    assert twice == pytest.approx(expected, rel=1e-12)


rows = st.lists(st.tuples(st.floats(0.05, 1.0), st.booleans()), min_size=1, max_size=12)


@PROPERTY
@given(rows, st.floats(0.1, 2.0), st.booleans())
def test_it_is_the_three_sums(sample: list[tuple[float, bool]], width: float, twice: bool) -> None:
    r, correct = [x for x, _ in sample], [c for _, c in sample]
    got = mmce(r, correct, kernel_width=width, double_normalised=twice)
    expected = by_sums(r, correct, width, twice=twice)
    assert got.item() == pytest.approx(expected, rel=1e-6, abs=1e-7)


@PROPERTY
@given(st.lists(st.tuples(st.floats(0.05, 1.0), st.booleans(), st.integers(0, 3)), min_size=1,
       max_size=8))  # fmt: skip
def test_a_whole_weight_counts_as_that_many_examples(
    sample: list[tuple[float, bool, int]],
) -> None:
    r = torch.tensor([x for x, _, _ in sample], dtype=torch.float64)
    correct = torch.tensor([c for _, c, _ in sample])
    counts = torch.tensor([w for _, _, w in sample])
    weighted = weighted_mmce(r, correct, counts.double())
    repeated = r.repeat_interleave(counts)
    plain = weighted_mmce(repeated, correct.repeat_interleave(counts), torch.ones_like(repeated))
    torch.testing.assert_close(weighted, plain, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("correct", [True, False])
def test_a_batch_of_one_kind_costs_nothing_and_has_no_gradient(correct: bool) -> None:
    r = torch.tensor([0.9, 0.4, 1.0], requires_grad=True)
    error = weighted_mmce(r, torch.full((3,), correct), torch.ones(3))
    (gradient,) = torch.autograd.grad(error, r)
    assert error.item() == 0.0
    assert torch.equal(gradient, torch.zeros(3))


def test_the_gradient_is_that_of_the_confidences() -> None:
    r = torch.tensor([0.9, 0.55, 0.7, 0.62], dtype=torch.float64, requires_grad=True)
    correct = torch.tensor([True, False, True, False])
    ones = torch.ones(4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda c: weighted_mmce(c, correct, ones), [r])


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_of_equal_confidences_a_half_is_the_best_whatever_the_accuracy(share: float) -> None:
    """|1 - 2r|: both kinds count alike, so a strong penalty does not calibrate, it levels."""
    correct = [i < 10 * share for i in range(10)]
    for r in (0.3, 0.5, 0.8):
        assert mmce([r] * 10, correct).item() == pytest.approx(max(abs(1 - 2 * r), 1e-5))


@pytest.mark.parametrize(
    ("method", "factor"),
    [
        (MMCE(), 1.0),
        (MMCE(double_normalised=True), 4.0),
        (MMCE(penalty=2.5), 2.5),
        (MMCE(penalty=0.0, double_normalised=True), 0.0),
    ],
)
def test_the_loss_is_cross_entropy_plus_the_penalty(method: MMCE, factor: float) -> None:
    torch.manual_seed(0)
    logits, y = 2 * torch.randn(12, 3).double(), torch.arange(12) % 3
    result, _ = step_on(method, logits, y)
    r, predicted = logits.softmax(1).max(1)
    error = by_sums(r.tolist(), (predicted == y).tolist(), 0.4, twice=method.double_normalised)
    expected = F.cross_entropy(logits, y).item() + factor * error
    assert result.loss.item() == pytest.approx(expected, rel=1e-9)


def test_weights_of_examples_and_classes_count_in_both_parts() -> None:
    torch.manual_seed(0)
    logits, y = 2 * torch.randn(12, 3).double(), torch.arange(12) % 3
    weight = torch.rand(12).double()
    result, _ = step_on(MMCE(), logits, y, weight=weight, class_weights=(0.5, 1.0, 2.0))
    each = weight * torch.tensor([0.5, 1.0, 2.0]).double()[y]
    r, predicted = logits.softmax(1).max(1)
    expected = (each * F.cross_entropy(logits, y, reduction="none")).mean()
    expected = expected + weighted_mmce(r, predicted == y, each)
    torch.testing.assert_close(result.loss, expected)


@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_extreme_logits_give_finite_numbers(scale: float) -> None:
    logits = scale * torch.tensor([[1.0, -1, 0], [-1, 1, 0], [0, 0, 1], [1, 1, -1]])
    logits.requires_grad_()
    for double in (False, True):
        method = MMCE(double_normalised=double)
        loss = step_on(method, logits, torch.tensor([0, 0, 2, 1]))[0].loss
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.parametrize(("field", "value"), [("penalty", -1.0), ("kernel_width", 0.0)])
def test_values_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        MMCE(**{field: value})  # type: ignore[arg-type]


def test_confidence_falls_towards_accuracy() -> None:
    """ERM has an ECE of 0.26 here, MMCE one of 0.16, at the same accuracy."""
    error, accuracy, _ = held_out("mmce")
    erm_error, erm_accuracy, _ = held_out("erm")
    assert erm_error > 0.2
    assert error < erm_error - 0.05
    assert accuracy > erm_accuracy - 0.03

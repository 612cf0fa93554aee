"""Margin-based reweighting, our reading of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.methods.base import Plan
from revar.methods.erm import ERM
from revar.methods.mbr import MBR, probability_margin
from revar.metrics import auarc
from support.feeds import CLOCK, TASK, small
from support.logits import step_on
from support.problems import blobs, fit

PLAN = Plan(total=100, steps_per_epoch=10, meta_size=0, unlabelled_size=0)


def of_probabilities(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


LOGITS = of_probabilities([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
LABELS = torch.tensor([0, 2, 2])
MARGINS = [0.2, -0.3, 0.7]


def test_margins_by_hand() -> None:
    margin = probability_margin(LOGITS, LABELS)
    torch.testing.assert_close(margin, torch.tensor(MARGINS, dtype=torch.float64))


def test_weights_by_hand() -> None:
    """Small margins weigh more, and the mean of the batch is one."""
    raw = [1 / (1 + math.exp(5 * margin)) for margin in MARGINS]
    weights = MBR().weights(LOGITS, LABELS)
    expected = torch.tensor(raw, dtype=torch.float64)
    torch.testing.assert_close(weights, 3 * expected / expected.sum())
    assert weights[1] > weights[0] > weights[2]
    # The form of Wang et al., but for its factor of 3.
    theirs = MBR(slope=1.0, centre=-1.5, weight_normalisation="none").weights(LOGITS, LABELS)
    expected = (-torch.tensor(MARGINS, dtype=torch.float64) - 1.5).sigmoid()
    torch.testing.assert_close(theirs, expected)


def test_the_loss_is_the_weighted_mean_and_weights_have_no_gradient() -> None:
    logits = LOGITS.clone().requires_grad_()
    result, _ = step_on(MBR(), logits, LABELS)
    constant = MBR().weights(LOGITS, LABELS)
    expected = (constant * F.cross_entropy(logits, LABELS, reduction="none")).mean()
    torch.testing.assert_close(result.loss, expected)
    (ours,) = torch.autograd.grad(result.loss, logits)
    (fixed,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(ours, fixed)
    assert result.weights is not None
    torch.testing.assert_close(result.weights, constant)


@pytest.mark.parametrize(("step", "weighted"), [(7, False), (8, True)])
def test_weights_begin_after_their_share_of_the_budget(step: int, weighted: bool) -> None:
    """A twelfth of 100 steps."""
    networks, batch, feeds = small(MBR())
    result = MBR().loss(networks, TASK, batch, feeds, replace(CLOCK, step=step))
    assert (result.weights is not None) == weighted


def test_a_slope_of_zero_is_plain_training() -> None:
    weight = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    flat, _ = step_on(MBR(slope=0.0), LOGITS, LABELS, weight=weight)
    plain, _ = step_on(ERM(), LOGITS, LABELS, weight=weight)
    torch.testing.assert_close(flat.loss, plain.loss)


def test_a_run_that_is_all_warm_up_is_refused() -> None:
    MBR(warmup_epochs=9).check(PLAN)
    with pytest.raises(InputError, match="warm-up until step 100"):
        MBR(warmup_epochs=10).check(PLAN)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slope", -1.0),
        ("centre", float("nan")),
        ("weight_normalisation", "sum_one"),
        ("warmup", 1.0),
        ("warmup_epochs", -1),
    ],
)
def test_values_out_of_range_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        MBR(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_extreme_logits_give_finite_numbers(scale: float) -> None:
    logits = scale * torch.tensor([[1.0, -1, 0], [-1, 1, 0], [0, 0, 1], [1, 1, -1]])
    logits.requires_grad_()
    result, _ = step_on(MBR(), logits, torch.tensor([0, 0, 2, 1]))
    (gradient,) = torch.autograd.grad(result.loss, logits)
    assert result.loss.isfinite()
    assert gradient.isfinite().all()


def test_probabilities_settle_below_the_shares_of_the_labels() -> None:
    """Labels 9 to 1: q solves q w(-m) / ((1 - q) w(m)) = 9 with m = 2q - 1, about 0.66."""
    method = MBR()
    y = (torch.arange(100) >= 90).long()
    z = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    for _ in range(400):
        loss = step_on_constant(method, z, y)
        (gradient,) = torch.autograd.grad(loss, z)
        with torch.no_grad():
            z -= 0.5 * gradient
    q = z.softmax(0)[0].item()
    m = 2 * q - 1
    assert q / (1 - q) * math.exp(5 * m) == pytest.approx(9, rel=1e-3)
    assert 0.6 < q < 0.7


def step_on_constant(method: MBR, logits: Tensor, labels: Tensor) -> Tensor:
    """The loss where every example has the same logits."""
    rows = logits.expand(len(labels), -1)
    weights = method.weights(rows, labels)
    return (weights * F.cross_entropy(rows, labels, reduction="none")).mean()


def test_the_class_with_random_labels_weighs_most_and_is_rejected_first() -> None:
    """Two clusters have a label of their own, inputs of the third are labelled by a coin."""
    generator = np.random.default_rng(0)
    x, region = blobs(600)
    y = np.where(region == 2, generator.integers(0, 2, len(region)), region)
    model = fit("mbr", Source(Part(x, y)), epochs=8)
    train = model.predictions["train"]
    assert train.labels is not None
    weights = MBR().weights(torch.from_numpy(train.logits), torch.from_numpy(train.labels)).numpy()
    random = region[train.index] == 2
    assert weights[random].mean() > 5 * weights[~random].mean()
    x_test, region_test = blobs(600, seed=1)
    values = model.uncertainty(model.predict(x_test))
    assert auarc(values, region_test != 2) > 0.9

"""Plain training against its equation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from revar.functional import mode
from revar.methods.erm import ERM
from support.feeds import CLOCK, TASK, small


def test_the_loss_is_the_mean_cross_entropy() -> None:
    networks, batch, feeds = small(ERM())
    with mode(networks, dropout=False, statistics=True):
        result = ERM().loss(networks, TASK, batch, feeds, CLOCK)
    torch.testing.assert_close(result.loss, F.cross_entropy(result.logits, batch.y))
    assert result.weights is None
    assert feeds.asked == [], "it needs no meta set"


def test_sample_and_class_weights_multiply_the_losses() -> None:
    networks, batch, feeds = small(ERM())
    weight = torch.arange(len(batch.y)).double()
    task = replace(TASK, class_weights=(1.0, 2.0, 0.5))
    with mode(networks, dropout=False, statistics=True):
        result = ERM().loss(networks, task, replace(batch, weight=weight), feeds, CLOCK)
    losses = F.cross_entropy(result.logits, batch.y, reduction="none")
    factors = torch.tensor([1.0, 2.0, 0.5]).double()[batch.y] * weight
    assert result.loss.item() == pytest.approx((losses * factors).mean().item())

"""Entropy regularisation against its equation, around any method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.methods.entropy import entropies
from revar.methods.erm import ERM
from revar.optimisers import make_optimiser
from revar.recipe import Budget
from revar.scores.softmax import softmax_entropy
from revar.totals import Totals
from revar.training import TrainingState, train_step
from support.feeds import TASK, FixedFeeds, small
from support.problems import CPU, blobs, fit

if TYPE_CHECKING:
    from revar.feeds import DataFeeds


def test_the_penalty_by_hand() -> None:
    # p = (1/4, 3/4): H = ln 4 - 3/4 ln 3; the other form is -(1/4 z_0 + 3/4 z_1).
    logits = torch.log(torch.tensor([[1.0, 3.0]], dtype=torch.float64))
    expected = np.log(4) - 0.75 * np.log(3)
    assert entropies(logits, "entropy").item() == pytest.approx(expected)
    assert entropies(logits, "logits").item() == pytest.approx(-0.75 * np.log(3))


def test_the_authors_form_is_entropy_minus_logsumexp_and_moves_with_the_logits() -> None:
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    entropy = entropies(logits, "entropy")
    difference = entropy - logits.logsumexp(1)
    torch.testing.assert_close(entropies(logits, "logits"), difference)
    torch.testing.assert_close(entropies(logits + 7, "entropy"), entropy)
    torch.testing.assert_close(entropies(logits + 7, "logits"), difference - 7)


@pytest.mark.parametrize("form", ["entropy", "logits"])
def test_it_is_finite_at_extreme_logits(form: str) -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    value = entropies(logits, form).sum()  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(value, logits)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["erm", "revar"])
def test_it_lowers_the_entropy_of_any_method(name: str) -> None:
    data = Source(Part(*blobs(spread=1.2)), tests={"test": Part(*blobs(300, seed=1, spread=1.2))})
    plain, rewarded = (
        softmax_entropy(fit(name, data, epochs=6, entropy=beta).predictions["test"]).mean()
        for beta in (0.0, 0.5)
    )
    assert rewarded < 0.95 * plain


def test_examples_of_no_weight_are_not_made_confident() -> None:
    """Where nothing has weight there is nothing to learn, with the regulariser too."""
    method = ERM(entropy=0.5)
    networks, batch, feeds = small(method)
    budget = Budget(epochs=10, learning_rate=0.1, weight_decay=0.0)
    learners = list(networks.classifier.parameters())
    optimiser = make_optimiser(budget, learners)
    steps = cast("DataFeeds", _Steps(feeds))
    state = TrainingState(networks, optimiser, None, steps, CPU, Totals(CPU))
    before = [p.detach().clone() for p in learners]
    nothing = replace(batch, weight=torch.zeros(len(batch.y), dtype=torch.float64))
    train_step(state, method, TASK, budget, nothing)
    assert all(torch.equal(p, old) for p, old in zip(learners, before, strict=True))
    train_step(state, method, TASK, budget, batch)
    assert not all(torch.equal(p, old) for p, old in zip(learners, before, strict=True))


@dataclass
class _Steps:
    """Feeds that know how long an epoch is."""

    feeds: FixedFeeds
    steps_per_epoch: int = 10


def test_its_weight_is_not_negative() -> None:
    with pytest.raises(InputError, match="entropy"):
        ERM(entropy=-0.1)

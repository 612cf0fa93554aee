"""Numbers to predict: the loss, the variance, what can learn them, and why weights fall."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from revar.bilevel import OneStep, alignments
from revar.data.synthetic import SCENARIOS, draw
from revar.errors import InputError
from revar.functional import Params
from revar.methods.erm import ERM
from revar.methods.revar import ReVaR
from revar.nets.base import Dropout
from revar.nets.dense import linear
from revar.progress import Silent
from revar.randomness import seeded
from revar.recipe import make_method
from revar.registry import METHODS
from revar.stochastic import DropoutPasses
from revar.totals import EpochRecord
from revar.types import Batch, Regression, Task

TASK = Regression(input_shape=(3,))
LEARN_NUMBERS = {"erm", "vr", "mwn", "l2r", "ibr", "revar-paper"}


def batch(x: torch.Tensor, y: torch.Tensor) -> Batch:
    return Batch(x, y, torch.arange(len(y)))


def test_squared_errors_by_hand() -> None:
    outputs = torch.tensor([[1.0], [-2.0]])
    examples = Batch(
        torch.zeros(2, 3), torch.tensor([3.0, -2.5]), torch.arange(2), torch.tensor([1.0, 2.0])
    )
    assert TASK.losses(outputs, examples).tolist() == [4.0, 0.5]
    assert TASK.hits(outputs, examples) is None


def test_the_variance_of_outputs_and_their_mean() -> None:
    samples = torch.tensor([1.0, 3.0]).view(2, 1, 1).expand(2, 4, 1)
    assert TASK.variance(samples, "softmax").tolist() == [1.0] * 4
    assert TASK.mean_output(samples).flatten().tolist() == [2.0] * 4


def test_dropout_variance_of_a_linear_model_has_a_closed_form() -> None:
    """``p / (1 - p) sum_d w_d^2 x_d^2``, times (T - 1) / T for the population variance."""
    rate, passes = 0.3, 4
    net = linear((3,), 1, Dropout(rate=rate)).double()
    x = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]]).double()
    with seeded(0, torch.device("cpu")), torch.no_grad():
        sampler = DropoutPasses.of(net, x)
        _, samples = sampler.run(x.repeat(20_000, 1), passes)
        found = TASK.variance(samples, "softmax").view(-1, 2).mean(0)
    weight = next(p for p in net.parameters() if p.ndim == 2)[0].detach()
    expected = rate / (1 - rate) * (weight * x).square().sum(1) * (passes - 1) / passes
    torch.testing.assert_close(found, expected, rtol=0.03, atol=0)


def test_methods_for_classes_refuse_numbers() -> None:
    for entry in METHODS:
        method = make_method(entry.name)
        method.check_task(Task(n_classes=2, input_shape=(3,)))
        if entry.name in LEARN_NUMBERS:
            method.check_task(TASK)
        else:
            with pytest.raises(InputError, match=r"numbers"):
                method.check_task(TASK)


def test_the_entropy_of_numbers_and_their_evidence_are_refused() -> None:
    with pytest.raises(InputError, match="entropy"):
        ERM(entropy=0.1).check_task(TASK)
    with pytest.raises(InputError, match="scorer=network"):
        ReVaR().check_task(TASK)
    ReVaR(scorer="features").check_task(TASK)


@cache
def mean_alignments() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Averages over labels at the true parameters: of training examples, what theory says of
    them, and of held-out examples with labels as noisy."""
    generator = torch.Generator().manual_seed(0)
    n, d, rate, draws = 4, 2, 0.2, 2000
    x, x_meta = (torch.randn(k, d, generator=generator).double() for k in (n, 50))
    fresh = torch.randn(n, d, generator=generator).double()
    truth = torch.tensor([1.0, -1.0]).double()
    deviation = torch.tensor([0.2, 0.5, 1.0, 2.0]).double()
    weights = torch.tensor([1.0, 0.5, 1.5, 1.0]).double()

    def losses(at: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (inputs @ at - targets).square()

    total = torch.zeros(2 * n).double()
    for _ in range(draws):
        noise, other = (torch.randn(n, generator=generator).double() for _ in range(2))
        y, y_fresh = x @ truth + deviation * noise, fresh @ truth + deviation * other
        y_meta = x_meta @ truth + torch.randn(50, generator=generator).double()

        def train(params: Params, y: torch.Tensor = y) -> torch.Tensor:
            return losses(params["w"], x, y)

        def candidates(
            params: Params, y: torch.Tensor = y, y_fresh: torch.Tensor = y_fresh
        ) -> torch.Tensor:
            own = losses(params["w"], x, y)
            return torch.cat([own, losses(params["w"], fresh, y_fresh)])

        def meta(params: Params, y: torch.Tensor = y_meta) -> torch.Tensor:
            return losses(params["w"], x_meta, y).mean()

        problem = OneStep(
            losses=train, weights=weights, lr=rate, meta_loss=meta,
            candidates=candidates,
        )  # fmt: skip
        total += alignments(problem, {"w": truth}).values
    curvature = x_meta.T @ x_meta / 50
    leverage = torch.einsum("nd,de,ne->n", x, curvature, x)
    mean = total / draws
    return mean[:n], -(8 * rate / n) * weights * deviation**2 * leverage, mean[n:]


def test_a_noisy_label_lowers_its_own_weight_through_the_look_ahead() -> None:
    """``E s_i = -(8 lr / n) w_i sigma_i^2 x_i' H x_i``: why weights fall with label noise."""
    found, theory, _ = mean_alignments()
    np.testing.assert_allclose(found[2:], theory[2:], rtol=0.15)
    assert found.argsort().tolist()[:2] == theory.argsort().tolist()[:2]


def test_held_out_candidates_do_not_feel_label_noise() -> None:
    """They take no part in the step, so the noise of their labels averages out."""
    _, theory, held_out = mean_alignments()
    assert held_out.abs().max() < 0.15 * theory.abs().max()


def test_the_ordinary_loop_learns_a_regression() -> None:
    from revar import training
    from revar.recipe import Budget, Recipe
    from revar.studies import regression

    problem = draw(SCENARIOS["5"], 600, 100, 0).standardised()
    budget = Budget(
        epochs=20, batch_size=32, learning_rate=0.02, momentum=0.0, schedule="constant",
        lr_warmup=0.0,
    )  # fmt: skip
    recipe = Recipe(method=ERM(), backbone="linear", dropout=Dropout(rate=0.0), budget=budget)
    task = Regression(input_shape=problem.x.shape[1:])
    feeds = regression._feeds(recipe, problem, torch.float32)
    networks = regression._networks(recipe, task, problem, torch.float32)
    state = training.new_state(recipe.method, budget, networks, feeds, torch.device("cpu"))
    records: list[EpochRecord] = []

    class Watcher(Silent):
        def finished_epoch(self, record: EpochRecord) -> None:
            records.append(record)

    training.fit(state, recipe.method, task, budget, Watcher())
    assert records[-1].loss < 0.1 * records[0].loss
    assert records[-1].accuracy is None

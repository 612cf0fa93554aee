"""SelectiveNet against its equation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.functional import mode
from revar.methods.selectivenet import SelectiveHeads, SelectiveNet, selective_loss
from revar.metrics import failure_auroc
from revar.types import Networks
from support.feeds import CLOCK, TASK, small
from support.problems import blobs, fit


def heads_of(networks: Networks) -> SelectiveHeads:
    assert isinstance(networks.heads, SelectiveHeads)
    return networks.heads


@pytest.mark.parametrize(("normalise", "risk"), [(True, 1.5), (False, 0.75)])
def test_the_loss_by_hand(normalise: bool, risk: float) -> None:
    """g is 3/4 and 1/4, losses 1 and 3: the mean of g l is 3/4 and phi is 1/2."""
    selection = torch.tensor([3.0, 1 / 3], dtype=torch.float64).log()
    losses = torch.tensor([1.0, 3.0], dtype=torch.float64)
    loss = selective_loss(losses, selection, coverage=0.8, penalty=32.0, normalise=normalise)
    assert float(loss) == pytest.approx(risk + 32 * 0.3**2, rel=1e-12)
    enough = selective_loss(losses, selection, coverage=0.4, penalty=32.0, normalise=normalise)
    assert float(enough) == pytest.approx(risk, rel=1e-12)


@given(st.integers(1, 20), st.floats(0.05, 1), st.booleans(), st.integers(0, 10_000))
def test_the_loss_is_selective_risk_and_missing_coverage(
    n: int, coverage: float, normalise: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    losses = torch.rand(n, generator=generator, dtype=torch.float64)
    selection = 3 * torch.randn(n, generator=generator, dtype=torch.float64)
    g = selection.sigmoid()
    risk = (g * losses).mean() / (g.mean() if normalise else 1)
    expected = risk + 5 * max(0.0, coverage - float(g.mean())) ** 2
    got = selective_loss(losses, selection, coverage=coverage, penalty=5.0, normalise=normalise)
    torch.testing.assert_close(got, expected)


def test_at_coverage_one_with_everything_selected_it_is_cross_entropy_of_f_and_h() -> None:
    for normalise in (True, False):
        method = SelectiveNet(coverage=1.0, mixing=0.3, normalise_by_coverage=normalise)
        networks, batch, feeds = small(method, rate=0.0)
        heads = heads_of(networks)
        with torch.no_grad():
            heads.get_parameter("selection.3.bias").fill_(60.0)
        result = method.loss(networks, TASK, batch, feeds, CLOCK)
        features = networks.classifier.forward_features(batch.x)
        f = F.cross_entropy(networks.classifier.forward_head(features), batch.y)
        h = F.cross_entropy(heads.auxiliary(features), batch.y)
        torch.testing.assert_close(result.loss, 0.3 * f + 0.7 * h)


def test_the_step_is_the_equation() -> None:
    """Class and sample weights count in both parts."""
    method = SelectiveNet(coverage=0.9, penalty=7.0, mixing=0.25)
    networks, batch, feeds = small(method, rate=0.0)
    batch = replace(batch, weight=torch.linspace(0.5, 2.0, 12).double())
    task = replace(TASK, class_weights=(1.0, 2.0, 3.0))
    heads = heads_of(networks)
    result = method.loss(networks, task, batch, feeds, CLOCK)
    features = networks.classifier.forward_features(batch.x)
    assert batch.weight is not None
    weight = batch.weight * (batch.y + 1)
    f = weight * F.cross_entropy(result.logits, batch.y, reduction="none")
    h = weight * F.cross_entropy(heads.auxiliary(features), batch.y, reduction="none")
    g = heads.select(features).sigmoid()
    selective = (g * f).sum() / g.sum() + 7.0 * (0.9 - g.mean()).clamp(min=0).square()
    torch.testing.assert_close(result.loss, 0.25 * selective + 0.75 * h.mean())


def test_f_predicts_and_g_points_up() -> None:
    method = SelectiveNet()
    networks, batch, feeds = small(method, rate=0.0)
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    torch.testing.assert_close(result.logits, networks.classifier(batch.x))
    features = networks.classifier.forward_features(batch.x)
    score = method.scores(networks, batch.x, features, result.logits)["selection"]
    torch.testing.assert_close((-score).sigmoid(), heads_of(networks).select(features).sigmoid())


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("extreme", [[1e4, 1e4], [-1e4, -1e4], [1e4, -1e4]])
def test_extreme_logits_give_finite_losses_and_gradients(
    normalise: bool, extreme: list[float]
) -> None:
    selection = torch.tensor(extreme, requires_grad=True)
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    losses = F.cross_entropy(logits, torch.tensor([0, 0]), reduction="none")
    loss = selective_loss(losses, selection, coverage=0.8, penalty=32.0, normalise=normalise)
    loss.backward()
    for value in (loss, selection.grad, logits.grad):
        assert value is not None
        assert value.isfinite().all()
    if normalise and extreme[0] == extreme[1]:
        assert float(loss.detach()) >= float(losses.detach().mean())


def test_half_precision_logits_are_widened() -> None:
    selection, losses = torch.randn(4).bfloat16(), torch.rand(4)
    loss = selective_loss(losses, selection, coverage=0.8, penalty=32.0, normalise=True)
    assert loss.dtype == torch.float32


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_batches_work(size: int) -> None:
    """Batch norm of the selection head included; a single example is normalised as in use."""
    method = SelectiveNet()
    networks, batch, feeds = small(method)
    heads = heads_of(networks)
    with mode(networks.classifier, dropout=True, statistics=True):
        result = method.loss(networks, TASK, batch.part(slice(size)), feeds, CLOCK)
    result.loss.backward()
    assert result.loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in heads.parameters())


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (SelectiveNet(), 0.8),
        (SelectiveNet(coverage=0.95), 0.95),
        (SelectiveNet(coverage=1.0), 0.99),
        (SelectiveNet(selection_start="half"), 0.5),
    ],
    ids=str,
)
def test_where_the_selection_starts(method: SelectiveNet, expected: float) -> None:
    networks, batch, _ = small(method, rate=0.0)
    features = networks.classifier.forward_features(batch.x)
    g = heads_of(networks).select(features).sigmoid()
    assert float(g.mean().detach()) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("coverage", 0.0),
        ("coverage", 1.01),
        ("penalty", -1.0),
        ("mixing", 0.0),
        ("mixing", 1.5),
        ("selection_start", "zero"),
        ("width", 0),
    ],
)
def test_bad_fields_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"SelectiveNet: {field} is"):
        SelectiveNet(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("normalise", [True, False])
def test_the_region_with_random_labels_is_rejected_first(normalise: bool) -> None:
    """One cluster of three is labelled by a coin; g keeps about the coverage it is told."""
    x, y = blobs(600)
    random = np.random.default_rng(0).integers(0, 2, len(y))
    data = Source(Part(x, np.where(y == 2, random, y)))
    model = fit("selectivenet", data, epochs=12, coverage=0.75, normalise_by_coverage=normalise)
    x_test, region = blobs(600, seed=1)
    own = model.uncertainty(model.predict(x_test), "own")
    assert failure_auroc(own, region != 2) > 0.95
    selected = 1 / (1 + np.exp(own))
    assert abs(selected.mean() - 0.75) < 0.1
    assert selected[region != 2].mean() > 0.9


def test_at_coverage_one_next_to_nothing_is_rejected() -> None:
    x, y = blobs(600)
    random = np.random.default_rng(0).integers(0, 2, len(y))
    data = Source(Part(x, np.where(y == 2, random, y)))
    model = fit("selectivenet", data, epochs=8, coverage=1.0)
    own = model.uncertainty(model.predict(blobs(600, seed=1)[0]), "own")
    assert (1 / (1 + np.exp(own))).mean() > 0.97

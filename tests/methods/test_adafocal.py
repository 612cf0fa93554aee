"""AdaFocal: its bins, its update, its loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from revar.data.source import Source
from revar.errors import InputError
from revar.methods import adafocal
from revar.methods.adafocal import AdaFocal, Bins, calibration_gaps, equal_mass_edges
from revar.methods.base import Plan
from revar.randomness import RandomState
from revar.types import Batch, Networks
from support.calibration import held_out
from support.feeds import CLOCK, TASK, FixedFeeds, small
from support.logits import step_on
from support.problems import CPU, fit, source
from support.properties import PROPERTY


def doubles(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("gamma", "gap", "expected"),
    [
        (1.0, 0.1, math.exp(0.1)),
        (1.0, -0.1, math.exp(-0.1)),
        (-1.0, 0.1, -math.exp(-0.1)),
        (-1.0, -0.1, -math.exp(0.1)),
        (3.0, 0.0, 3.0),
        # 0.21 e^-0.1 is 0.19 and jumps over zero, from either side.
        (0.21, -0.1, -0.2),
        (-0.21, 0.1, 0.2),
        (0.2, 0.0, 0.2),
        (19.0, 0.5, 20.0),
        (-1.9, -0.5, -2.0),
    ],
)
def test_the_update_by_hand(gamma: float, gap: float, expected: float) -> None:
    got = AdaFocal().updated(doubles([gamma]), doubles([gap])).item()
    assert got == pytest.approx(expected, rel=1e-12)


def test_the_rate_multiplies_the_gap() -> None:
    got = AdaFocal(rate=3.0).updated(doubles([2.0]), doubles([0.1])).item()
    assert got == pytest.approx(2 * math.exp(0.3))


@PROPERTY
@given(st.floats(0.2, 20), st.booleans(), st.floats(-1, 1))
def test_overconfidence_raises_gamma_and_its_bounds_hold(
    size: float, negative: bool, gap: float
) -> None:
    start = max(-size, -2.0) if negative else size
    got = AdaFocal().updated(doubles([start]), doubles([gap])).item()
    assert (got - start) * gap >= 0
    assert -2 <= got <= 20
    assert abs(got) >= 0.2


def test_edges_of_equal_mass() -> None:
    """Six examples in three bins: the third and the fifth smallest begin a bin."""
    confidence = doubles([0.99, 0.26, 0.61, 0.94, 0.53, 0.75])
    assert equal_mass_edges(confidence, 3).tolist() == [0.61, 0.94]
    assert equal_mass_edges(confidence, 1).tolist() == []


@PROPERTY
@given(st.lists(st.floats(0, 1), min_size=1, max_size=60, unique=True), st.integers(1, 20))
def test_bins_of_different_confidences_differ_by_at_most_one(
    values: list[float], count: int
) -> None:
    bins = Bins(count, 1.0).double()
    bins.edges.copy_(equal_mass_edges(doubles(values), count))
    sizes = np.bincount(bins.find(doubles(values)).numpy(), minlength=count)
    assert sizes.max() - sizes.min() <= 1


def test_a_probability_on_an_edge_begins_the_bin_and_what_is_below_all_is_in_the_first() -> None:
    bins = Bins(3, 1.0).double()
    bins.edges.copy_(doubles([0.6, 0.9]))
    p = doubles([0.0, 0.59, 0.6, 0.89, 0.9, 1.0])
    assert bins.find(p).tolist() == [0, 0, 1, 1, 2, 2]
    # Between equal edges there is nothing.
    bins.edges.copy_(doubles([1.0, 1.0]))
    assert bins.find(p).tolist() == [0, 0, 0, 0, 0, 2]


def test_gaps_by_hand() -> None:
    """Second bin: 0.8 and 0.9 by weights 1 and 3, the second one right; third bin empty."""
    members = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 0, 0]]).bool()
    gaps = calibration_gaps(
        doubles([0.4, 0.8, 0.9]),
        torch.tensor([False, False, True]),
        doubles([2.0, 1.0, 3.0]),
        members,
    )
    torch.testing.assert_close(gaps, doubles([0.4, (0.8 + 2.7 - 3) / 4, 0.0]))


def prepared(method: AdaFocal) -> tuple[Networks, Batch, FixedFeeds, Bins]:
    networks, batch, feeds = small(method)
    assert isinstance(networks.memory, Bins)
    return networks, batch, feeds, networks.memory


def test_an_epoch_ends_with_the_bins_of_the_meta_set() -> None:
    """Against NumPy: sorted into parts, then the mean of confidence minus correctness."""
    method = AdaFocal(bins=4)
    networks, _, feeds, bins = prepared(method)
    networks.classifier.eval()
    logits = networks.classifier(feeds.x).detach()
    networks.classifier.train()
    before, state = RandomState.capture(CPU), networks.classifier.state_dict()
    state = {name: value.clone() for name, value in state.items()}
    bins.gamma.copy_(doubles([1.0, -0.5, 0.25, 4.0]))
    method.finish_epoch(networks, TASK, feeds, CLOCK)

    assert before.equals(RandomState.capture(CPU))
    assert all(torch.equal(state[k], v) for k, v in networks.classifier.state_dict().items())
    p = logits.softmax(1).numpy()
    r, hit = p.max(1), p.argmax(1) == feeds.y.numpy()
    parts = np.array_split(np.argsort(r), 4)
    np.testing.assert_allclose(bins.edges.numpy(), [r[part].min() for part in parts[1:]])
    gaps = [float(np.mean(r[part] - hit[part])) for part in parts]
    expected = method.updated(doubles([1.0, -0.5, 0.25, 4.0]), doubles(gaps))
    torch.testing.assert_close(bins.gamma, expected)
    assert any(gap != 0 for gap in gaps)


def test_the_size_of_the_passes_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    method = AdaFocal(bins=4)
    whole, parts = prepared(method), prepared(method)
    method.finish_epoch(whole[0], TASK, whole[2], CLOCK)
    monkeypatch.setattr(adafocal, "CHUNK", 5)
    method.finish_epoch(parts[0], TASK, parts[2], CLOCK)
    assert parts[2].asked == ["meta 5", "meta 5", "meta 5", "meta 1"]
    torch.testing.assert_close(whole[3].gamma, parts[3].gamma)
    torch.testing.assert_close(whole[3].edges, parts[3].edges)


def test_weights_of_the_meta_set_count_in_the_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bin, and all the weight on one example: its confidence minus its correctness."""
    method = AdaFocal(bins=1)
    networks, _, feeds, bins = prepared(method)
    plain = feeds.meta_at

    def weighted(index: Tensor) -> Batch:
        batch = plain(index)
        return Batch(batch.x, batch.y, batch.index, (index == 7).double())

    monkeypatch.setattr(feeds, "meta_at", weighted)
    method.finish_epoch(networks, TASK, feeds, CLOCK)
    networks.classifier.eval()
    p = networks.classifier(feeds.x[7:8]).softmax(1)[0]
    gap = p.max().item() - float(p.argmax() == feeds.y[7])
    assert bins.gamma.item() == pytest.approx(math.exp(gap))


def test_the_loss_takes_gamma_from_the_bin_of_the_label_s_probability() -> None:
    """Not of the confidence: the first example has confidence 0.9 and p_y 0.1."""
    p = doubles([0.1, 0.5, 0.8])
    logits, y = torch.stack([p.log(), (1 - p).log()], dim=1), torch.zeros(3, dtype=torch.int64)
    method = AdaFocal(bins=3)
    _, networks = step_on(method, logits, y)
    bins = networks.memory
    assert isinstance(bins, Bins)
    bins.edges.copy_(doubles([0.4, 0.7]))
    bins.gamma.copy_(doubles([5.0, 2.0, -1.5]))
    weight = doubles([1.0, 2.0, 1.0])
    feeds = small(method)[2]
    task_batch = Batch(logits, y, y, weight)
    loss = method.loss(networks, TASK, task_batch, feeds, CLOCK).loss
    losses = [
        -(0.9**5) * math.log(0.1),
        -2 * 0.5**2 * math.log(0.5),
        -(1.8**1.5) * math.log(0.8),
    ]
    assert loss.item() == pytest.approx(sum(losses) / 3, rel=1e-12)


@pytest.mark.parametrize("gamma", [-2.0, 0.2, 20.0])
@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_extreme_logits_give_finite_numbers(scale: float, gamma: float) -> None:
    logits = scale * torch.tensor([[1.0, -1, 0], [-1, 1, 0], [0, 0, 1], [1, 1, -1]])
    logits.requires_grad_()
    loss = step_on(AdaFocal(gamma_initial=gamma), logits, torch.tensor([0, 0, 2, 1]))[0].loss
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bins", 0),
        ("rate", -1.0),
        ("switch", 0.0),
        ("gamma_max", 0.1),
        ("gamma_min", -0.1),
        ("gamma_initial", 0.0),
        ("gamma_initial", -0.19),
        ("gamma_initial", 21.0),
    ],
)
def test_values_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        AdaFocal(**{field: value})  # type: ignore[arg-type]


def test_a_run_without_a_meta_set_is_refused_in_one_line() -> None:
    plan = Plan(total=100, steps_per_epoch=10, meta_size=0, unlabelled_size=0)
    with pytest.raises(InputError, match="meta set is empty") as caught:
        AdaFocal().check(plan)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="meta_fraction"):
        fit("adafocal", source(), meta_fraction=0.0)


def test_a_meta_set_smaller_than_the_number_of_bins_is_enough() -> None:
    data = source(60)
    assert isinstance(data, Source)
    assert fit("adafocal", data).predictions["meta"].logits.shape[0] < 15


def test_confidence_falls_towards_accuracy() -> None:
    """ERM has an ECE of 0.26 here, AdaFocal one of 0.19, from 40 meta examples."""
    error, accuracy, _ = held_out("adafocal")
    erm_error, erm_accuracy, _ = held_out("erm")
    assert error < erm_error - 0.03
    assert accuracy > erm_accuracy - 0.03

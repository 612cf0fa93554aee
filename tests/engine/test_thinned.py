"""Masks of few bits, and heads that multiply by them, against layers one by one."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from revar.dropouts import FewBits, few_bits_do, kept
from revar.nets.base import Classifier, Dropout, SplitClassifier
from revar.nets.build import Backbone
from revar.stochastic import DropoutPasses, variance
from revar.thinned import can_thin, thinned


def assert_near(one: Tensor, other: Tensor) -> None:
    """Equal to rounding."""
    small = 1e-5 if one.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(one, other, rtol=10 * small, atol=small)


# --- masks


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.999])
def test_a_mask_has_its_rate_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    left, factor = kept((1000, 1000), p)
    assert set(left.unique().tolist()) == {0, 1}
    share = 1 / factor
    # The rate it is, to half of what 16 bits tell apart; and of that rate, by 4 standard errors.
    assert abs(share - (1 - p)) <= 2**-17
    error = math.sqrt(share * (1 - share) / left.numel())
    assert left.double().mean().item() == pytest.approx(share, abs=4 * error)


def test_numbers_of_a_mask_are_independent() -> None:
    torch.manual_seed(1)
    flat = kept((1 << 20,), 0.3)[0].double()
    flat = (flat - flat.mean()) / flat.std()
    # Within a word of 64 bits, next to it, and in the next part that is drawn at once.
    for apart in (1, 2, 3, 4, 5, 1 << 14):
        together = (flat[:-apart] * flat[apart:]).mean().item()
        assert abs(together) < 4 / math.sqrt(len(flat))


@settings(deadline=None, max_examples=40)
@given(
    shape=st.lists(st.integers(0, 40), min_size=1, max_size=3), p=st.floats(0.001, 0.999),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_masks_of_any_shape_come_from_the_generator(shape: list[int], p: float, seed: int) -> None:
    torch.manual_seed(seed)
    first, factor = kept(shape, p)
    after = torch.get_rng_state()
    torch.manual_seed(seed)
    second, _ = kept(shape, p)
    assert first.shape == torch.Size(shape)
    assert torch.equal(first, second)
    assert torch.equal(after, torch.get_rng_state())
    assert factor >= 1


def test_a_mask_longer_than_is_drawn_at_once_repeats_nothing() -> None:
    torch.manual_seed(2)
    parts = kept((3, 1 << 14), 0.5)[0]
    assert not torch.equal(parts[0], parts[1])
    assert not torch.equal(parts[1], parts[2])


def test_dropout_of_few_bits_leaves_everything_else_as_it_is() -> None:
    x = torch.randn(40, 8)
    with FewBits():
        torch.manual_seed(3)
        dropped = F.dropout(x, 0.4)
        assert F.dropout(x, 0.4, training=False) is x
        inplace = torch.ones(50)
        assert F.dropout(inplace, 0.4, True, True) is inplace
        torch.manual_seed(4)
        channels, rare = F.dropout2d(x.view(4, 10, 4, 2), 0.4), F.dropout(x, 1e-4)
    torch.manual_seed(3)
    left, factor = kept(x.shape, 0.4)
    assert torch.equal(dropped, x * left * factor)
    torch.manual_seed(4)
    assert torch.equal(channels, F.dropout2d(x.view(4, 10, 4, 2), 0.4))
    assert torch.equal(rare, F.dropout(x, 1e-4))
    assert not few_bits_do(torch.device("cuda"), 0.4)


# --- heads


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_thinned_heads_are_the_layers_one_by_one(dtype: torch.dtype, bias: bool) -> None:
    features = torch.randn(7, 5, dtype=dtype, requires_grad=True)
    dropout, layer = nn.Dropout(0.3), nn.Linear(5, 3, bias=bias, dtype=dtype)
    torch.manual_seed(5)
    ours = thinned(features, dropout, layer, 4)
    torch.manual_seed(5)
    left, factor = kept((4, 7, 5), 0.3)
    theirs = layer(features * left * factor)
    assert ours.shape == (4, 7, 3)
    assert_near(ours, theirs)
    inputs = [features, *layer.parameters()]
    for space in ("softmax", "logits"):
        found = torch.autograd.grad(variance(ours, space).mean(), inputs, retain_graph=True)
        wanted = torch.autograd.grad(variance(theirs, space).mean(), inputs, retain_graph=True)
        for one, other in zip(found, wanted, strict=True):
            assert_near(one, other)


def test_a_frozen_layer_gets_no_gradient_and_features_do() -> None:
    features = torch.randn(7, 5, requires_grad=True)
    layer = nn.Linear(5, 3).requires_grad_(False)
    (found,) = torch.autograd.grad(thinned(features, nn.Dropout(0.3), layer, 4).sum(), features)
    assert found.shape == features.shape


def test_a_second_derivative_is_refused_instead_of_wrong() -> None:
    features = torch.randn(7, 5, requires_grad=True)
    value = thinned(features, nn.Dropout(0.3), nn.Linear(5, 3), 4).square().sum()
    (first,) = torch.autograd.grad(value, features, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_where_heads_are_left_to_the_layers() -> None:
    features, dropout, layer = torch.randn(7, 5), nn.Dropout(0.3), nn.Linear(5, 3)
    assert can_thin(features, dropout, layer)
    assert not can_thin(features, nn.Dropout(1e-4), layer)
    assert not can_thin(features.double(), dropout, layer)
    assert not can_thin(features[None], dropout, layer)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_thin(features, dropout, layer)


# --- of a network


def _heads(net: Classifier, x: Tensor) -> list[Tensor]:
    """Logits and samples of dropout passes, and the gradient of something of both."""
    torch.manual_seed(2)
    logits, samples = DropoutPasses(net, shared_trunk=True).run(x, 4, few_bits=True)
    assert samples.shape == (4, 20, 3)
    value = variance(samples).mean() + logits.square().mean()
    return [logits, samples, *torch.autograd.grad(value, list(net.parameters()))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_head_of_somebody_s_own_comes_to_the_same(dtype: torch.dtype) -> None:
    net = Backbone("mlp", Dropout(rate=0.3)).build((6,), 3).to(dtype)
    assert isinstance(net, SplitClassifier)
    x = torch.randn(20, 6, dtype=dtype)
    known = [net.last_layers is not None]
    ours = _heads(net, x)
    # It gets copies of the features, and dropout draws the same masks for them.
    head = net.forward_head
    net.forward_head = lambda features: head(features)  # type: ignore[method-assign]
    known.append(net.last_layers is not None)
    assert known == [True, False]
    for one, other in zip(ours, _heads(net, x), strict=True):
        assert_near(one, other)


def test_a_head_that_was_changed_runs_as_it_is() -> None:
    net = Backbone("mlp", Dropout(rate=0.3)).build((6,), 3)
    assert isinstance(net, SplitClassifier)
    watched: list[nn.Module] = []
    handle = net.head[1].register_forward_hook(lambda layer, *_: watched.append(layer))
    _heads(net, torch.randn(20, 6))
    handle.remove()
    _heads(net, torch.randn(20, 6))
    assert len(watched) == 2
    net.head = nn.Sequential(nn.Dropout(0.3), nn.BatchNorm1d(128), nn.Linear(128, 3))
    assert net.last_layers is None
    _heads(net, torch.randn(20, 6))

    class Other(SplitClassifier):
        def forward_head(self, features: Tensor) -> Tensor:
            assert features.ndim == 2
            return super().forward_head(features)

    other = Other(nn.Linear(6, 5), 5, 3, 0.3)
    assert other.last_layers is None
    _heads(other, torch.randn(20, 6))


def test_passes_of_torch_s_own_masks_are_unchanged() -> None:
    net = Backbone("mlp", Dropout(rate=0.3)).build((6,), 3)
    x = torch.randn(20, 6)
    torch.manual_seed(6)
    _, samples = DropoutPasses(net, shared_trunk=True).run(x, 4)
    torch.manual_seed(6)
    features = net.eval().forward_features(x)
    net.train()
    each = net.forward_head(features.repeat(4, 1)).unflatten(0, (4, 20))
    assert torch.equal(samples, each)

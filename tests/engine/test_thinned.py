"""Dropout heads in few operations, against layers one by one with the same masks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar import dropouts
from revar.dropouts import kept
from revar.nets.base import Classifier, Dropout, SplitClassifier
from revar.nets.build import Backbone
from revar.stochastic import DropoutPasses, variance
from revar.thinned import can_thin, thinned


def assert_near(one: Tensor, other: Tensor) -> None:
    """Equal to rounding."""
    small = 1e-5 if one.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(one, other, rtol=10 * small, atol=small)


# --- masks


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("shape", [(7,), (3, 0, 2), (2, 3, 4), (10, 40, 128)])
def test_what_is_kept_is_what_dropout_keeps(
    shape: tuple[int, ...], p: float, dtype: torch.dtype, alike: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(dropouts, "_ALIKE", alike and dropouts._ALIKE)
    torch.manual_seed(3)
    left, ours = kept(shape, p, dtype), torch.get_rng_state()
    torch.manual_seed(3)
    dropped = F.dropout(torch.ones(shape, dtype=dtype), p)
    assert torch.equal(left != 0, dropped != 0)
    assert torch.equal(left.to(dtype), left.bool().to(dtype))
    assert torch.equal(ours, torch.get_rng_state())


# --- heads


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_thinned_heads_are_the_layers_one_by_one(dtype: torch.dtype, bias: bool) -> None:
    features = torch.randn(7, 5, dtype=dtype, requires_grad=True)
    dropout, layer = nn.Dropout(0.3), nn.Linear(5, 3, bias=bias, dtype=dtype)
    torch.manual_seed(5)
    ours = thinned(features, dropout, layer, 4)
    torch.manual_seed(5)
    theirs = layer(dropout(features.repeat(4, 1))).unflatten(0, (4, 7))
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
    assert not can_thin(features, nn.Dropout(0.0), layer)
    assert not can_thin(features.double(), dropout, layer)
    assert not can_thin(features[None], dropout, layer)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_thin(features, dropout, layer)


# --- of a network


def _heads(net: Classifier, x: Tensor) -> list[Tensor]:
    """Logits and samples of dropout passes, and the gradient of something of both."""
    torch.manual_seed(2)
    logits, samples = DropoutPasses(net, shared_trunk=True).run(x, 4)
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

"""Quick masks and quick rules of forward mode are torch's own, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor

from revar import dropouts
from revar.dropouts import mask, quick_dropout
from revar.forward_rules import ForwardRules

CPU = torch.device("cpu")
SIZES = [(7,), (5, 3), (300, 128), (2, 3, 4, 5), (0, 4), ()]


def drawn(function: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """What it gives from a fixed seed, and where it leaves the generator."""
    torch.manual_seed(3)
    return function(), torch.get_rng_state()


def same(one: Callable[[], Tensor], other: Callable[[], Tensor]) -> bool:
    """Whether both give the same bits and draw the same numbers."""
    (a, a_state), (b, b_state) = drawn(one), drawn(other)
    alike = a.dtype == b.dtype and a.stride() == b.stride()
    return alike and torch.equal(a, b) and torch.equal(a_state, b_state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("size", SIZES)
def test_masks_are_those_of_torch(size: tuple[int, ...], p: float, dtype: torch.dtype) -> None:
    if not dropouts._ALIKE:
        pytest.skip("this processor draws masks otherwise: torch would be compared with torch")
    x = torch.randn(size).to(dtype)
    assert same(lambda: mask(F.dropout, x, p), lambda: F.dropout(torch.ones_like(x), p))

    def quick() -> Tensor:
        with quick_dropout(CPU):
            return F.dropout(x, p)

    assert same(quick, lambda: F.dropout(x, p))


@pytest.mark.parametrize("function", dropouts.DROPOUTS)
def test_masks_of_whole_channels_and_of_other_layouts(function: Callable[..., Tensor]) -> None:
    x = torch.randn(
        {F.dropout1d: (4, 3, 5), F.dropout3d: (4, 3, 5, 2, 2)}.get(function, (4, 3, 5, 2))
    )
    for layout in (x, x.transpose(0, 1).contiguous().transpose(0, 1), x.movedim(1, -1)):
        usual = partial(function, layout, 0.3)

        def quick(usual: Callable[[], Tensor] = usual) -> Tensor:
            with quick_dropout(CPU):
                return usual()

        assert same(quick, usual)


def test_a_thread_that_first_only_infers_can_draw_later() -> None:
    def draw() -> None:
        x = torch.ones(20)
        with torch.inference_mode():
            first = mask(F.dropout, x, 0.5)
        assert mask(F.dropout, x, 0.5).shape == first.shape

    with ThreadPoolExecutor(1) as pool:
        pool.submit(draw).result()


def test_gradients_are_the_same_and_nothing_is_dropped_in_evaluation() -> None:
    x = torch.randn(40, 8, requires_grad=True)

    def gradient() -> Tensor:
        (found,) = torch.autograd.grad(F.dropout(x, 0.4).square().sum(), x)
        return found

    def quick() -> Tensor:
        with quick_dropout(CPU):
            return gradient()

    assert same(quick, gradient)
    with quick_dropout(CPU):
        assert F.dropout(x, 0.4, training=False) is x
        inplace = torch.ones(50)
        assert F.dropout(inplace, 0.4, True, True) is inplace


def test_a_processor_that_draws_otherwise_has_its_own_masks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch_dropout, x = F.dropout, torch.ones(50)
    calls: list[object] = []

    def noting(*args: Any) -> Tensor:
        calls.append(args)
        return torch_dropout(*args)

    monkeypatch.setattr(F, "dropout", noting)
    for alike in (dropouts._ALIKE, False):
        calls.clear()
        monkeypatch.setattr(dropouts, "_ALIKE", alike)
        assert same(lambda: mask(F.dropout, x, 0.3), lambda: torch_dropout(x, 0.3))
        assert len(calls) == (0 if alike else 1)
    assert not isinstance(quick_dropout(CPU), torch.overrides.TorchFunctionMode)


@pytest.mark.parametrize("which", ["neither", "first", "second", "both"])
@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: a * b,
        lambda a, b: torch.mul(a, b),
        lambda a, b: torch.mul(a, other=b),
        lambda a, b: 2.5 * a * b,
        lambda a, b: a * 3 * b,
        lambda a, b: a.double() * b,
    ],
)
def test_products_are_those_of_torch(
    product: Callable[[Tensor, Tensor], Tensor], which: str
) -> None:
    a, b, da, db = torch.randn(4, 1), torch.randn(3), torch.randn(4, 1), torch.randn(3)
    with torch.no_grad(), forward_ad.dual_level():
        x = forward_ad.make_dual(a, da) if which in ("first", "both") else a
        y = forward_ad.make_dual(b, db) if which in ("second", "both") else b
        usual = forward_ad.unpack_dual(product(x, y))
        with ForwardRules():
            ours = product(x, y)
        value, tangent = forward_ad.unpack_dual(ours)
        assert torch.equal(value, usual.primal)
        assert value.dtype == usual.primal.dtype
        assert (tangent is None) is (usual.tangent is None)
        assert tangent is None or torch.equal(tangent, usual.tangent)


LAYERS = [(F.conv1d, (5, 4, 9)), (F.conv2d, (5, 4, 6, 7)), (F.conv3d, (3, 4, 5, 5, 4))]


@pytest.mark.parametrize("moved", ["x", "w", "b", "xw", "wb", "xb", "xwb", ""])
@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=["1d", "2d", "3d"])
def test_convolutions_are_those_of_torch(
    layer: Callable[..., Tensor], shape: tuple[int, ...], moved: str
) -> None:
    """Whatever has a tangent."""
    torch.manual_seed(4)
    kernel = (6, 2, *(3 for _ in shape[2:]))
    at = {"x": torch.randn(shape), "w": torch.randn(kernel), "b": torch.randn(6)}
    tangents = {name: torch.randn_like(value) for name, value in at.items()}

    def found() -> tuple[Tensor, Tensor]:
        with forward_ad.dual_level():
            dual = {
                name: forward_ad.make_dual(value, tangents[name]) if name in moved else value
                for name, value in at.items()
            }
            got = layer(dual["x"], dual["w"], dual["b"], stride=2, padding=1, groups=2)
            value, tangent = forward_ad.unpack_dual(got)
            return value.clone(), torch.zeros(()) if tangent is None else tangent.clone()

    expected = found()
    with ForwardRules():
        got = found()
    assert torch.equal(got[0], expected[0])
    torch.testing.assert_close(got[1], expected[1], rtol=1e-5, atol=1e-5)
    assert bool(moved) is bool(got[1].any())

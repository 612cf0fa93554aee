from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from revar.nets.normalise import Normalise


def oracle(x: Tensor, new: Tensor) -> NDArray[np.float64]:
    """The same in NumPy and float64, unclipped."""
    values, given_ = x.double().numpy(), new.double().numpy()
    axes = (0, *range(2, values.ndim))
    mean = values.mean(axes, keepdims=True)
    deviation = values.std(axes, keepdims=True)
    result: NDArray[np.float64] = (given_ - mean) / np.where(deviation > 0, deviation, 1.0)
    return result


def table(n: int = 5000, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    scale = torch.tensor([1.0, 1e-4, 1e5, 3.0])
    offset = torch.tensor([0.0, 1e-3, -1e6, 50.0])
    return torch.rand(n, 4, generator=draw) * scale + offset


def pictures(n: int = 60, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (n, 3, 7, 9), generator=draw, dtype=torch.uint8)
    x[:, 1] //= 4
    return x


def test_training_rows_have_mean_zero_and_deviation_one() -> None:
    x = table()
    scaled = Normalise.fitted(x)(x).double()
    torch.testing.assert_close(
        scaled.mean(0), torch.zeros(4, dtype=torch.float64), atol=2e-5, rtol=0
    )
    torch.testing.assert_close(
        scaled.std(0, correction=0), torch.ones(4, dtype=torch.float64), atol=2e-5, rtol=0
    )


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_training_images_have_mean_zero_and_deviation_one_per_channel(kind: torch.dtype) -> None:
    x = pictures().to(kind)
    scaled = Normalise.fitted(x)(x)
    assert scaled.dtype == torch.float32
    values = scaled.double().movedim(1, 0).flatten(1)
    torch.testing.assert_close(
        values.mean(1), torch.zeros(3, dtype=torch.float64), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(
        values.std(1, correction=0), torch.ones(3, dtype=torch.float64), atol=1e-6, rtol=0
    )


def test_bytes_and_floats_are_normalised_alike() -> None:
    x = pictures()
    assert torch.equal(Normalise.fitted(x)(x), Normalise.fitted(x.float())(x.float()))


@pytest.mark.parametrize("n", [7, 4096, 4097, 9000])
def test_statistics_are_those_of_float64_however_many_blocks_there_are(n: int) -> None:
    x, new = table(n), table(30, seed=1)
    layer = Normalise.fitted(x)
    np.testing.assert_allclose(layer.mean, x.double().mean(0), rtol=1e-6)
    np.testing.assert_allclose(layer.deviation, x.double().std(0, correction=0), rtol=1e-6)
    expected = oracle(x, new).clip(-10, 10)
    np.testing.assert_allclose(layer(new), expected, atol=1e-3, rtol=1e-3)


def test_one_row_is_its_own_mean() -> None:
    x = table(1)
    assert torch.equal(Normalise.fitted(x)(x), torch.zeros(1, 4))


def test_images_agree_with_the_oracle() -> None:
    x, new = pictures(), pictures(5, seed=1)
    np.testing.assert_allclose(Normalise.fitted(x)(new), oracle(x, new), atol=1e-5)


def test_a_large_mean_does_not_drown_a_small_deviation() -> None:
    """One pass with E x^2 - (E x)^2 in float32 would give noise here."""
    x = torch.tensor([[30_000.0], [30_001.0]]).repeat(5000, 1)
    layer = Normalise.fitted(x)
    assert layer.deviation.item() == pytest.approx(0.5, rel=1e-6)
    assert layer(x).unique().tolist() == pytest.approx([-1.0, 1.0], rel=1e-2)


@given(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(1, 3000))
def test_a_constant_column_is_only_centred(value: float, n: int) -> None:
    x = torch.full((n, 2), value)
    x[:, 1] = torch.arange(n)
    layer = Normalise.fitted(x)
    assert layer.deviation[0] == 1.0
    scaled = layer(x)
    assert torch.isfinite(scaled).all()
    # The mean of n equal numbers is that number, up to the last digit of float32.
    assert scaled[:, 0].abs().max() <= max(1e-6, abs(value) * 2e-7)


def test_a_column_that_varies_in_its_last_digit_only_is_constant() -> None:
    x = torch.tensor([[1e8], [1e8 + 8]])
    assert x[0] != x[1]
    assert Normalise.fitted(x).deviation.item() == 1.0


def test_a_column_that_was_constant_in_training_keeps_its_units() -> None:
    layer = Normalise.fitted(torch.full((50, 1), 3.0))
    assert layer(torch.tensor([[3.0], [5.0]])).tolist() == [[0.0], [2.0]]


def test_a_black_channel_is_only_centred() -> None:
    x = pictures()
    x[:, 2] = 0
    scaled = Normalise.fitted(x)(x)
    assert (scaled[:, 2] == 0).all()
    assert torch.isfinite(scaled).all()


def test_outliers_are_clipped_in_tables_and_not_in_images() -> None:
    rows = Normalise.fitted(torch.tensor([[-1.0], [1.0]]))
    assert rows(torch.tensor([[500.0], [-500.0], [9.0]])).tolist() == [[10.0], [-10.0], [9.0]]
    image = torch.tensor([-1.0, 1.0]).view(2, 1, 1, 1)
    assert Normalise.fitted(image)(500 * image).flatten().tolist() == [-500.0, 500.0]


def test_a_new_layer_changes_nothing_until_it_is_loaded() -> None:
    x = table(20)
    layer = Normalise((4,))
    assert torch.equal(layer(x.clamp(-10, 10)), x.clamp(-10, 10))
    layer.load_state_dict(Normalise.fitted(x).state_dict())
    assert torch.equal(layer(x), Normalise.fitted(x)(x))


def test_it_has_buffers_of_one_number_per_channel_and_nothing_to_train() -> None:
    layer = Normalise.fitted(pictures())
    assert {key: tuple(value.shape) for key, value in layer.state_dict().items()} == {
        "mean": (3, 1, 1),
        "deviation": (3, 1, 1),
    }
    assert list(layer.parameters()) == []

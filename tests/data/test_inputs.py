from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from revar.data.frames import FrameInputs
from revar.data.inputs import ArrayInputs, fit_inputs, is_frame, unpack
from revar.data.stored import ImageFiles, Items
from revar.errors import DataWarning, InputError


def images(channels: int = 3, height: int = 8, width: int = 10) -> NDArray[np.uint8]:
    """[6, channels, height, width], no two values of an image alike where that is possible."""
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (6, channels, height, width), dtype=np.uint8)


def fitted(raw: Any) -> ArrayInputs:
    stored = fit_inputs(raw, np.arange(len(raw)))
    assert isinstance(stored, ArrayInputs)
    return stored


def stored_as(inputs: ArrayInputs, raw: Any) -> Tensor:
    """Arrays are stored in memory."""
    stored = inputs.encode(raw)
    assert isinstance(stored, Tensor)
    return stored


def encode(raw: Any) -> Tensor:
    return stored_as(fitted(raw), raw)


# --- images


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_channels_first_and_channels_last_encode_to_the_same_tensor(
    channels: int, dtype: type[np.generic]
) -> None:
    first = images(channels).astype(dtype)
    last = np.moveaxis(first, 1, -1)
    as_tensor = torch.from_numpy(first)
    expected = encode(first)
    assert expected.shape == (6, channels, 8, 10)
    np.testing.assert_array_equal(expected.numpy(), first)
    assert torch.equal(encode(last), expected)
    assert torch.equal(encode(as_tensor), expected)
    assert torch.equal(encode(as_tensor.movedim(1, -1)), expected)


def test_greyscale_images_without_a_channel_axis_get_one() -> None:
    grey = images(1)
    flat = grey[:, 0]
    assert torch.equal(encode(flat), encode(grey))
    assert fitted(flat).shape == (1, 8, 10)
    assert fitted(flat).image_shape == (1, 8, 10)


def test_images_of_bytes_stay_bytes_and_floats_become_float32() -> None:
    x = images()
    stored = fitted(x)
    assert stored == ArrayInputs(shape=(3, 8, 10), dtype="uint8")
    assert stored_as(stored, x).dtype == torch.uint8
    for kind in (np.float64, np.float16):
        other = fitted(x.astype(kind))
        assert other == ArrayInputs(shape=(3, 8, 10), dtype="float32")
        encoded = stored_as(other, x.astype(kind))
        assert encoded.dtype == torch.float32
        np.testing.assert_array_equal(encoded.numpy(), x)


def test_a_model_of_bytes_reads_whole_numbers_of_any_type() -> None:
    x = images()
    stored = fitted(x)
    for kind in (np.float32, np.int16, np.int64):
        assert torch.equal(stored_as(stored, x.astype(kind)), torch.from_numpy(x))


@pytest.mark.parametrize(("factor", "offset"), [(1 / 255, 0.0), (1.0, -1.0), (1.0, 1.0), (0.5, 0)])
def test_a_model_of_bytes_refuses_scaled_images(factor: float, offset: float) -> None:
    x = images().copy()
    x.flat[0], x.flat[1] = 0, 255
    stored = fitted(x)
    with pytest.raises(InputError, match="whole numbers from 0 to 255"):
        stored.encode(x * factor + offset)


def test_images_of_another_size_are_refused_with_both_shapes() -> None:
    stored = fitted(images())
    with pytest.raises(InputError, match=r"\(3, 9, 10\).*trained on \(3, 8, 10\)"):
        stored.encode(images(height=9))
    with pytest.raises(InputError, match=r"\(1, 8, 10\).*trained on \(3, 8, 10\)"):
        stored.encode(images(1)[:, 0])


@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((2, 28, 28, 1), 1),
        ((2, 1, 28, 28), 1),
        ((2, 4, 32, 3), 3),  # both could be channels: the shorter is
        ((2, 2, 32, 32), 2),  # neither is a usual number: the shorter is
        ((2, 32, 32, 12), 12),
        ((2, 4, 32, 2), 4),  # a usual number wins over a shorter axis
        ((2, 2, 32, 4), 4),
        ((2, 12, 32, 32), 12),
    ],
)
def test_the_channel_axis_is_found(shape: tuple[int, ...], channels: int) -> None:
    assert fit_inputs(np.zeros(shape), np.arange(2)).shape[0] == channels


def test_where_both_axes_are_alike_each_container_has_its_custom() -> None:
    array = np.arange(2 * 27).reshape(2, 3, 3, 3).astype(np.float32)
    np.testing.assert_array_equal(encode(array).numpy(), np.moveaxis(array, -1, 1))
    np.testing.assert_array_equal(encode(torch.from_numpy(array)).numpy(), array)


# --- tables


@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "int64", "int8", "uint8", "u4"])
def test_tables_of_any_number_type_are_float32(kind: str) -> None:
    x = np.arange(12).reshape(6, 2).astype(kind)
    stored = fitted(x)
    assert stored == ArrayInputs(shape=(2,), dtype="float32")
    assert stored.image_shape is None
    assert stored_as(stored, x).dtype == torch.float32
    np.testing.assert_array_equal(stored_as(stored, x).numpy(), np.arange(12).reshape(6, 2))


def test_lists_booleans_objects_and_foreign_byte_orders_are_read() -> None:
    wanted = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert torch.equal(encode([[1, 0], [0, 1]]), wanted)
    assert torch.equal(encode(np.array([[True, False], [False, True]])), wanted)
    assert torch.equal(encode(torch.tensor([[True, False], [False, True]])), wanted)
    assert torch.equal(encode(np.array([[1, 0.0], ["0", True]], dtype=object)), wanted)
    assert torch.equal(encode(np.array([[1, 0], [0, 1]], dtype=">f8")), wanted)
    assert torch.equal(encode(np.asfortranarray([[1.0, 0.0], [0.0, 1.0]])), wanted)


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 5), st.integers(1, 4)),
        elements=st.floats(-1e30, 1e30, allow_nan=False),
    )
)
def test_encoding_a_table_rounds_to_float32_and_nothing_else(x: NDArray[np.float64]) -> None:
    np.testing.assert_array_equal(encode(x).numpy(), x.astype(np.float32))


def test_the_stored_tensor_shares_no_memory_with_the_users_array() -> None:
    for x in (np.ones((6, 2), dtype=np.float32), images()):
        stored = encode(x)
        x[:] = 7
        assert not (stored == 7).all()


@pytest.mark.parametrize(
    ("value", "word", "way"), [(np.nan, "NaN", "impute"), (np.inf, "infinity", "finite")]
)
@pytest.mark.parametrize("shape", [(6, 3), (6, 5, 5), (6, 3, 5, 5)])
def test_gaps_are_refused_with_their_number_and_first_row(
    value: float, word: str, way: str, shape: tuple[int, ...]
) -> None:
    x = np.zeros(shape)
    stored = fitted(x)
    x[2].flat[1] = x[2].flat[0] = value
    x[4].flat[0] = -value
    for raw in (x, torch.from_numpy(x)):
        with pytest.raises(InputError, match=f"{word} in 2 rows, first in row 2: .*{way}"):
            stored.encode(raw)


def test_values_beyond_float32_are_refused() -> None:
    with pytest.raises(InputError, match="too large for float32"):
        encode(np.array([[1e39], [0.0]]))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (np.zeros(4), r"shape \(4,\)"),
        (np.zeros((2, 1, 1, 1, 1)), r"shape \(2, 1, 1, 1, 1\)"),
        (np.zeros((3, 0)), "0 feature"),
        (np.array([["a", "b"]]), "text columns in a pandas frame"),
        (np.array([[1, "b"]], dtype=object), "X holds 'b'"),
        (np.array([[1 + 2j, 0]]), "Complex data"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), "pandas frame"),
    ],
)
def test_what_is_no_table_and_no_image_is_refused(raw: NDArray[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode(raw)


def test_another_number_of_columns_is_refused() -> None:
    stored = fitted(np.zeros((6, 4)))
    with pytest.raises(InputError, match=r"X has 3 features, .*expecting 4 features"):
        stored.encode(np.zeros((6, 3)))


def test_no_rows_encode_to_no_rows() -> None:
    assert fitted(np.zeros((6, 4))).encode(np.zeros((0, 4))).shape == (0, 4)
    assert fitted(images()).encode(images()[:0]).shape == (0, 3, 8, 10)


def test_frames_are_told_from_arrays() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    assert is_frame(frame)
    assert not any(map(is_frame, (frame["a"], frame.to_numpy(), [[1]], torch.ones(2))))
    assert isinstance(fit_inputs(frame, np.arange(2)), FrameInputs)


def test_a_model_of_arrays_reads_a_frame_of_numbers_by_position() -> None:
    stored = fitted(np.zeros((6, 2)))
    got = stored_as(stored, pd.DataFrame({"b": [1, 2], "a": [3.0, 4.0]}))
    assert got.tolist() == [[1, 3], [2, 4]]


def test_frames_are_fitted_on_the_training_rows_only() -> None:
    frame = pd.DataFrame({"a": [1.0, 3.0, 100.0, np.nan], "b": ["x", "y", "z", "x"]})
    stored = fit_inputs(frame, np.array([0, 1]))
    assert isinstance(stored, FrameInputs)
    assert stored.columns[0].median == 2.0
    assert not stored.columns[0].indicator
    assert stored.columns[1].categories == ("x", "y")


# --- datasets


class Listed(Dataset[Any]):
    """A map-style dataset of anything."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def test_anything_but_a_dataset_passes_through() -> None:
    x, y = np.zeros((2, 2)), [0, 1]
    assert unpack(x, y) == (x, y)
    assert unpack(x)[1] is None


def test_a_dataset_of_pairs_gives_inputs_and_labels() -> None:
    x, y = torch.arange(6.0).reshape(3, 2), torch.tensor([2, 0, 1])
    got, labels = unpack(TensorDataset(x, y))
    assert isinstance(got, Items)
    assert got.shape == (3, 2)
    assert torch.equal(got[:], x)
    assert labels.tolist() == [2, 0, 1]
    assert labels.dtype.kind == "i"
    _, text = unpack(Listed((x[0], "cat"), (x[1], "dog")))
    assert text.tolist() == ["cat", "dog"]


def test_labels_given_beside_a_dataset_win() -> None:
    x = torch.zeros(3, 2)
    assert unpack(TensorDataset(x, torch.zeros(3)), [1, 2, 3])[1] == [1, 2, 3]


def test_a_dataset_of_inputs_alone_leaves_the_labels_to_the_caller() -> None:
    x = torch.arange(6.0).reshape(3, 2)
    for dataset in (Listed(*x), Listed(*x.numpy()), TensorDataset(x)):
        got, labels = unpack(dataset, "given")
        assert torch.equal(got[:], x)
        assert labels == "given"


def test_items_of_different_shapes_are_refused_with_the_first_odd_one() -> None:
    raw, _ = unpack(Listed(torch.zeros(2), torch.zeros(2), torch.zeros(3)))
    with pytest.raises(InputError, match=r"item 2 has shape \(3,\), item 0 has \(2,\): resize"):
        raw[:]
    with pytest.raises(InputError, match=r"item 2 has shape \(3,\), item 1 has \(2,\): resize"):
        raw[1:]


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        unpack(Listed())


def test_a_dataset_is_encoded_as_its_inputs_would_be_when_they_are_read() -> None:
    for x in (images(), images().astype(np.float32) / 255, np.arange(12.0).reshape(6, 2)):
        raw, _ = unpack(Listed(*x))
        inputs = fit_inputs(raw, np.arange(6))
        assert inputs == fitted(torch.from_numpy(x))
        stored = inputs.encode(raw)
        assert isinstance(stored, Items)
        assert stored.shape == x.shape
        assert torch.equal(stored[:], encode(torch.from_numpy(x)))


def test_gaps_in_a_dataset_are_refused_when_they_are_read() -> None:
    x = np.zeros((6, 2))
    raw, _ = unpack(Listed(*x))
    stored = fit_inputs(raw, np.arange(6)).encode(raw)
    x[4, 1] = np.nan
    assert torch.equal(stored[:4], torch.zeros(4, 2))
    with pytest.raises(InputError, match="X holds NaN in 1 rows"):
        stored[3:]


def test_another_dataset_of_another_shape_is_refused_when_it_is_read() -> None:
    stored = fitted(images()).encode(unpack(Listed(*images(height=9)))[0])
    with pytest.raises(InputError, match=r"\(3, 9, 10\).*trained on \(3, 8, 10\)"):
        stored[:1]


# --- images of whole numbers and models of floats


def test_a_model_of_floats_refuses_images_of_whole_numbers_from_anywhere() -> None:
    x = images()
    stored = fitted(x.astype(np.float32) / 255)
    words = r"images of whole numbers 0\.\.255: this model was trained on float ones, whose range"
    for raw in (x, torch.from_numpy(x), ImageFiles((Path("a.png"),), (3, 8, 10))):
        with pytest.raises(InputError, match=words):
            stored.encode(raw)
    lazily = stored.encode(unpack(Listed(*x))[0])
    with pytest.raises(InputError, match=words):
        lazily[:]


@pytest.mark.parametrize("kind", [np.int16, np.int64, np.uint16])
def test_whole_numbers_of_any_type_are_images_of_whole_numbers(kind: type) -> None:
    x = images()
    made = fitted(x.astype(kind))
    assert made.dtype == "uint8"
    assert torch.equal(stored_as(made, x.astype(kind)), stored_as(fitted(x), x))
    assert fitted(x.astype(kind) * 100).dtype == "float32"


def test_numbers_that_single_precision_cannot_tell_apart_are_said() -> None:
    near = np.linspace(0, 20, 50)
    table = np.stack([near, near + 1e9], axis=1)
    with pytest.warns(DataWarning, match="column 1 of X lies between 1000000000 and 1000000020"):
        fitted(table)
    fitted(np.stack([near, near + 1e4], axis=1))


def test_a_model_of_floats_reads_tables_of_bytes() -> None:
    table = np.arange(12, dtype=np.uint8).reshape(6, 2)
    assert torch.equal(stored_as(fitted(table / 2), table), torch.from_numpy(table).float())


def test_image_files_stay_files_and_are_refused_at_another_shape() -> None:
    files = ImageFiles((Path("a.png"), Path("b.png")), (3, 8, 10))
    stored = fitted(files)
    assert stored == ArrayInputs(shape=(3, 8, 10), dtype="uint8")
    assert stored.encode(files) is files
    with pytest.raises(InputError, match=r"read at \(3, 8, 10\): .*trained on \(1, 8, 10\)"):
        fitted(images(1)).encode(files)


# --- memory


def _odd_strides() -> NDArray[np.float32]:
    """A field of a record of five bytes: no whole number of floats from one to the next."""
    table = np.zeros((6, 4), dtype=[("value", "<f4"), ("flag", "u1")])
    table["value"] = np.arange(24, dtype=np.float32).reshape(6, 4)
    return table["value"]


@pytest.mark.parametrize(
    "raw",
    [
        images(3),
        np.ascontiguousarray(np.moveaxis(images(3), 1, -1)),
        np.ascontiguousarray(np.moveaxis(images(1), 1, -1)),
        images(1)[:, 0],
        images(3).astype(np.float32),
        np.arange(24, dtype=np.float32).reshape(6, 4),
        np.arange(24, dtype=np.float64).reshape(6, 4),
        np.asfortranarray(np.arange(24, dtype=np.float32).reshape(6, 4)),
        np.arange(24, dtype=np.float32).reshape(6, 4)[::-1, ::-2],
        np.arange(24, dtype=">f4").reshape(6, 4),
        np.arange(24, dtype=np.uint16).reshape(6, 4),
        np.arange(24).reshape(6, 4) % 2 == 0,
        _odd_strides(),
    ],
)
def test_what_becomes_of_an_array_later_does_not_change_what_is_stored(raw: Any) -> None:
    stored = encode(raw)
    assert stored.is_contiguous()
    before = stored.clone()
    raw[:] = np.roll(raw, 1)
    assert torch.equal(stored, before)


def test_arrays_that_cannot_be_written_are_read_without_a_warning() -> None:
    raw = np.arange(24, dtype=np.float32).reshape(6, 4)
    raw.setflags(write=False)
    assert torch.equal(encode(raw), torch.arange(24.0).reshape(6, 4))

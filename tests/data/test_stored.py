from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import Dataset

from revar.data import stored
from revar.data.inputs import fit_inputs, unpack
from revar.data.stored import ImageFiles, Items, Lazy, Loader, scan, settle, stack, take
from revar.errors import InputError
from revar.nets.normalise import Normalise, image_moments
from revar.splits import Fingerprint
from support.pictures import pixels, save

CPU = torch.device("cpu")
N = 11


def files(folder: Path, n: int = N, *, channels: int | None = 3) -> ImageFiles:
    """Pictures no two of which are alike."""
    paths = tuple(folder / f"{i}.png" for i in range(n))
    for i, path in enumerate(paths):
        save(path, pixels(6, 5, channels, seed=i))
    return ImageFiles(paths, (channels or 1, 6, 5))


class Listed(Dataset[Any]):
    """A map-style dataset, which counts how often it is asked."""

    def __init__(self, items: Any, labels: Any = None) -> None:
        self.items, self.labels = items, labels
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        item = self.items[index]
        return item if self.labels is None else (item, self.labels[index])


def items(raw: Any) -> Items:
    """A dataset of these inputs, as a model keeps it."""
    lazily, _ = unpack(Listed(raw))
    encoded = fit_inputs(lazily, np.arange(len(lazily))).encode(lazily)
    assert isinstance(encoded, Items)
    return encoded


def both(tmp_path: Path) -> list[tuple[Lazy, Tensor]]:
    """Stored lazily and as a tensor: files, a dataset of images and one of rows."""
    images = files(tmp_path)
    pictures = torch.from_numpy(np.stack([pixels(6, 5, 3, seed=i) for i in range(N)]))
    decoded = pictures.movedim(-1, 1).contiguous()
    rows = torch.randn(N, 4)
    return [(images, decoded), (items(decoded), decoded), (items(rows), rows)]


# --- rows

ROWS: list[Any] = [
    slice(None),
    slice(2, 7),
    slice(-3, None),
    slice(None, None, -2),
    slice(4, 4),
    slice(8, 99),
    [3],
    [3, 0, 3, 10],
    [-1, 0],
    [],
    np.array([5, 1, 9]),
    np.array([5, 1], dtype=np.int32),
    np.array([], dtype=np.int64),
    torch.tensor([7, 7, 2]),
    torch.tensor([], dtype=torch.int64),
    np.arange(N) % 3 == 0,
    torch.arange(N) % 4 == 1,
]


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_the_same_rows_give_the_same_values_however_they_are_stored(
    tmp_path: Path, rows: Any
) -> None:
    for lazy, tensor in both(tmp_path):
        # Tensors do not go backwards; arrays do.
        expected = torch.from_numpy(tensor.numpy()[rows].copy())
        got = lazy[rows]
        assert got.dtype == tensor.dtype
        assert got.shape == expected.shape
        assert torch.equal(got, expected)
        assert got.is_contiguous()


def test_lengths_and_shapes_are_those_of_arrays(tmp_path: Path) -> None:
    for lazy, tensor in both(tmp_path):
        assert len(lazy) == len(tensor) == N
        assert lazy.shape == tuple(tensor.shape)


@pytest.mark.parametrize("rows", [[4, 0, 9], [0], [], [2, 2]], ids=str)
def test_taking_rows_and_then_reading_is_reading_those_rows(
    tmp_path: Path, rows: list[int]
) -> None:
    chosen = np.array(rows, dtype=np.int64)
    for lazy, tensor in both(tmp_path):
        part, expected = take(lazy, chosen), take(tensor, chosen)
        assert isinstance(part, type(lazy))
        assert isinstance(expected, Tensor)
        assert len(part) == len(rows)
        assert part.shape == expected.shape
        assert torch.equal(part[:], expected)
        assert torch.equal(part[:0], expected[:0])
        again = take(part, np.arange(len(rows))[::-1].copy())
        assert torch.equal(again[:], expected.flip(0))


def test_taking_rows_reads_nothing(tmp_path: Path) -> None:
    dataset = Listed(torch.zeros(N, 4))
    lazily, _ = unpack(dataset)
    asked = len(dataset.asked)
    assert len(take(lazily, np.arange(5))) == 5
    gone = ImageFiles((tmp_path / "gone.png",) * 4, (1, 4, 4))
    assert len(take(gone, np.arange(3))) == 3
    assert len(dataset.asked) == asked


@pytest.mark.parametrize("rows", [[N], [0, N + 5], [-N - 1]], ids=str)
def test_rows_that_are_not_there_are_an_error(tmp_path: Path, rows: list[int]) -> None:
    for lazy, _ in both(tmp_path):
        with pytest.raises(IndexError):
            lazy[rows]


def test_threads_change_nothing_but_the_time(tmp_path: Path) -> None:
    images = files(tmp_path)
    alone = images.in_worker()
    assert (images.threads, alone.threads) == (True, False)
    assert torch.equal(images[:], alone[:])
    assert not alone.take(np.arange(2)).threads


def test_a_file_that_is_damaged_later_is_named_when_it_is_read(tmp_path: Path) -> None:
    images = files(tmp_path)
    images.paths[4].write_bytes(b"")
    assert images[:4].shape == (4, 3, 6, 5)
    for stored_alike in (images, images.in_worker()):
        with pytest.raises(InputError, match=r"4\.png.* cannot be read as an image"):
            stored_alike[:]


# --- datasets


def test_items_come_with_or_without_labels() -> None:
    x = torch.randn(5, 3)
    for given_as in (x, x.numpy()):
        plain, nothing = unpack(Listed(given_as))
        assert torch.equal(plain[:], x)
        assert nothing is None
        labelled, y = unpack(Listed(given_as, list("abcde")))
        assert torch.equal(labelled[:], x)
        assert y.tolist() == list("abcde")


def test_only_the_items_asked_for_are_read() -> None:
    dataset = Listed(torch.zeros(N, 4))
    lazily, _ = unpack(dataset)
    dataset.asked.clear()
    lazily[[3, 8]]
    assert dataset.asked == [3, 8]
    dataset.asked.clear()
    lazily.take(np.array([9, 2]))[[1]]
    assert dataset.asked == [2]


def test_inputs_of_different_shapes_are_refused_by_their_numbers_in_the_dataset() -> None:
    ragged = [torch.zeros(2), torch.zeros(2), torch.zeros(3), torch.zeros(2)]
    words = r"item 7 has shape \(3,\), item 5 has \(2,\): resize them"
    with pytest.raises(InputError, match=words):
        stack(ragged, [5, 6, 7, 8])
    raw, _ = unpack(Listed(ragged))
    with pytest.raises(InputError, match=r"item 2 has shape \(3,\), item 3 has \(2,\)"):
        raw.take(np.array([0, 3, 2]))[[1, 2]]


def test_arrays_lists_and_pictures_are_stacked_as_tensors() -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]
    for given_as in (rows, np.array(rows), torch.tensor(rows, dtype=torch.float64)):
        assert torch.equal(stack(list(given_as), [0, 1]), torch.tensor(rows, dtype=torch.float64))


# --- all rows, once


@pytest.mark.parametrize("block", [1, 3, N, 1024])
def test_a_scan_of_lazily_stored_data_is_that_of_the_tensor_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    for lazy, tensor in both(tmp_path):
        expected = scan(tensor)
        monkeypatch.setattr(stored, "_BLOCK", block)
        for x in (lazy, tensor):
            seen = scan(x)
            np.testing.assert_array_equal(seen.hashes, expected.hashes)
            assert torch.equal(seen.means, expected.means)
            assert torch.equal(seen.squares, expected.squares)
        assert Fingerprint.of(lazy).digest == Fingerprint.of(tensor).digest
        monkeypatch.undo()


def test_hashes_tell_rows_apart_and_know_equal_ones() -> None:
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [0.0, 0.0]])
    hashes = scan(x).hashes
    assert hashes.dtype == np.int64
    assert len(set(hashes.tolist())) == 3
    assert hashes[0] == hashes[2]


def test_a_scan_of_images_knows_the_moments_of_each(tmp_path: Path) -> None:
    images = files(tmp_path)
    seen = scan(images)
    flat = images[:].double().flatten(2)
    torch.testing.assert_close(seen.means, flat.mean(-1), rtol=1e-12, atol=0)
    expected = flat.var(-1, unbiased=False) * 30
    torch.testing.assert_close(seen.squares, expected, rtol=1e-12, atol=0)


def test_a_scan_of_rows_or_of_nothing_has_no_moments() -> None:
    for x in (torch.zeros(3, 2), torch.zeros(0, 2), torch.zeros((0, 1, 4, 4))):
        seen = scan(x)
        assert len(seen.hashes) == len(x)
        assert seen.means.numel() == seen.squares.numel() == 0


@given(st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_moments_of_images_do_not_depend_on_how_many_are_read_at_a_time(
    n: int, block: int, whole: bool
) -> None:
    generator = torch.Generator().manual_seed(n)
    x = torch.randint(0, 256, (n, 2, 5, 7), dtype=torch.uint8, generator=generator)
    if not whole:
        x = x / 255
    means, squares = image_moments(x)
    parts = [image_moments(part) for part in x.split(block)]
    assert torch.equal(torch.cat([mean for mean, _ in parts]), means)
    assert torch.equal(torch.cat([square for _, square in parts]), squares)


@pytest.mark.parametrize("channels", [1, 3])
def test_moments_of_large_images_do_not_depend_on_threads(channels: int) -> None:
    """A single sum of many numbers is shared out among threads, one of several sums is not."""
    x = torch.rand(3, channels, 224, 224)
    expected = image_moments(x)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for i in range(3):
                mean, square = image_moments(x[i : i + 1])
                assert torch.equal(mean[0], expected[0][i])
                assert torch.equal(square[0], expected[1][i])
    finally:
        torch.set_num_threads(before)


def test_normalisation_from_a_scan_is_that_of_the_pixels(tmp_path: Path) -> None:
    images = files(tmp_path)
    rows = np.array([1, 4, 5])
    seen = scan(images)
    layer = Normalise.of_images(seen.means[rows], seen.squares[rows], images.image_shape)
    pixel = images[rows].double()
    torch.testing.assert_close(layer.mean.flatten(), pixel.mean((0, 2, 3)).float())
    torch.testing.assert_close(
        layer.deviation.flatten(), pixel.transpose(0, 1).flatten(1).std(1, unbiased=False).float()
    )
    whole = Normalise.fitted(images[rows])
    assert torch.equal(whole.mean, layer.mean)
    assert torch.equal(whole.deviation, layer.deviation)


# --- in memory or not


@pytest.mark.parametrize("block", [4, 1024])
def test_resident_data_is_brought_into_memory_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(stored, "_BLOCK", block)
    monkeypatch.setattr(stored, "_free_memory", lambda device: 0.0)
    for lazy, tensor in both(tmp_path):
        settled = settle(lazy, "resident", CPU)
        assert isinstance(settled, Tensor)
        assert settled.dtype == tensor.dtype
        assert torch.equal(settled, tensor)


def test_streamed_data_stays_where_it_is(tmp_path: Path) -> None:
    for lazy, _ in both(tmp_path):
        assert settle(lazy, "stream", CPU) is lazy


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["files", "images", "rows"])
def test_by_default_data_is_brought_into_memory_up_to_a_quarter_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    lazy, tensor = both(tmp_path)[kind]
    size = tensor.numel() * tensor.element_size()
    asked: list[torch.device] = []

    def free(amount: int) -> Callable[[torch.device], float]:
        def answer(device: torch.device) -> float:
            asked.append(device)
            return float(amount)

        return answer

    monkeypatch.setattr(stored, "_free_memory", free(4 * size))
    settled = settle(lazy, "auto", CPU)
    assert isinstance(settled, Tensor)
    assert torch.equal(settled, tensor)
    monkeypatch.setattr(stored, "_free_memory", free(4 * size - 4))
    assert settle(lazy, "auto", CPU) is lazy
    assert asked == [CPU, CPU]


@pytest.mark.parametrize("loader", ["auto", "resident", "stream"])
def test_what_is_in_memory_stays_there(monkeypatch: pytest.MonkeyPatch, loader: Loader) -> None:
    monkeypatch.setattr(stored, "_free_memory", lambda device: 0.0)
    x = torch.zeros(4, 2)
    assert settle(x, loader, CPU) is x


def test_free_memory_is_a_plausible_number() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 2**20 < stored._free_memory(CPU) <= total


# --- worker processes


def test_files_and_items_can_be_sent_to_worker_processes(tmp_path: Path) -> None:
    for lazy, tensor in both(tmp_path):
        part = lazy.in_worker().take(np.array([5, 1]))
        back = ForkingPickler.loads(bytes(ForkingPickler.dumps(part)))
        assert isinstance(back, type(lazy))
        assert back.shape == part.shape
        assert torch.equal(back[:], tensor[[5, 1]])
        assert back[:0].dtype == tensor.dtype

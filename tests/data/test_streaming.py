from __future__ import annotations

import gc
import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from revar.data.augment import Augment
from revar.data.inputs import unpack
from revar.data.source import Part, Source, load_source
from revar.data.stored import ImageFiles, Items, Stored, take
from revar.errors import InputError
from revar.feeds import DataFeeds
from revar.fitting import fit_model
from revar.model import Model
from revar.nets.normalise import Normalise
from revar.preparation import Split
from revar.progress import Silent
from revar.types import Batch
from support.pictures import pixels, save
from support.problems import recipe

CPU = torch.device("cpu")
N = 45


class Pictures(Dataset[Any]):
    """A map-style dataset of (image, label)."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[Any]) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], Any]:
        return self.images[index], self.labels[index]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ImageFiles:
    folder = tmp_path_factory.mktemp("files")
    paths = tuple(folder / f"{i}.png" for i in range(N))
    for i, path in enumerate(paths):
        save(path, pixels(9, 8, 3, seed=i))
    return ImageFiles(paths, (3, 9, 8))


def items(files: ImageFiles) -> Items:
    raw, _ = unpack(Pictures(files[:].numpy(), np.zeros(N)))
    assert isinstance(raw, Items)
    return raw


def feeds(x: Stored, workers: int = 0, *, batch: int = 10, seed: int = 3) -> DataFeeds:
    """The last ten serve as meta set, unlabelled inputs are the first seven."""
    y = np.arange(len(x)) % 3

    def split(start: int, stop: int) -> Split:
        rows = np.arange(start, stop)
        return Split(take(x, rows), y[rows], rows)

    return DataFeeds(
        split(0, len(x) - 10),
        split(len(x) - 10, len(x)),
        take(x, np.arange(7)),
        normalise=Normalise.fitted(x[:]),
        augment=Augment(pad=2, flip=True),
        batch_size=batch,
        seed=seed,
        device=CPU,
        workers=workers,
    )


def same(one: Batch, two: Batch) -> bool:
    return (
        torch.equal(one.x, two.x)
        and torch.equal(one.y, two.y)
        and torch.equal(one.index, two.index)
    )


# --- batches


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["files", "items"])
def test_streamed_batches_are_those_of_data_in_memory_bit_for_bit(
    files: ImageFiles, kind: str, workers: int
) -> None:
    streamed = feeds(files if kind == "files" else items(files), workers)
    resident = feeds(files[:])
    for number in range(2):
        states = []
        epochs = []
        for source in (resident, streamed):
            torch.manual_seed(number)
            epochs.append(list(source.epoch(number)))
            states.append(torch.get_rng_state())
        assert len(epochs[0]) == len(epochs[1]) == resident.steps_per_epoch == 4
        assert all(map(same, *epochs))
        # Augmentation drew from the default generator, and nothing else did.
        assert torch.equal(*states)
    for _ in range(4):
        assert same(resident.meta(6), streamed.meta(6))
        assert torch.equal(resident.unlabelled(5), streamed.unlabelled(5))
    assert resident.state() == streamed.state()


@pytest.mark.parametrize("workers", [0, 2])
def test_streaming_draws_nothing_from_the_default_generator(
    files: ImageFiles, workers: int
) -> None:
    source = feeds(files, workers)
    source._augment = Augment()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert len(list(source.epoch(0))) == 4
    source.meta(3)
    source.unlabelled(3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("start", [0, 1, 3, 4])
def test_an_epoch_begun_in_the_middle_is_the_tail_of_the_whole_one(
    files: ImageFiles, workers: int, start: int
) -> None:
    for source in (feeds(files[:]), feeds(files, workers)):
        torch.manual_seed(1)
        states, whole = [torch.get_rng_state()], []
        for batch in source.epoch(5):
            whole.append(batch)
            states.append(torch.get_rng_state())
        torch.set_rng_state(states[start])
        tail = list(source.epoch(5, start=start))
        assert len(tail) == 4 - start
        assert all(map(same, tail, whole[start:]))


def test_an_epoch_that_is_left_early_leaves_no_process_behind(files: ImageFiles) -> None:
    source = feeds(files, 2)
    epoch = source.epoch(0)
    next(epoch)
    assert len(multiprocessing.active_children()) == 2
    epoch.close()  # type: ignore[attr-defined]
    gc.collect()
    assert multiprocessing.active_children() == []
    assert len(list(source.epoch(1))) == 4
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_damaged_in_the_middle_of_training_is_named_in_one_line(
    tmp_path: Path, workers: int
) -> None:
    paths = tuple(tmp_path / f"{i}.png" for i in range(N))
    for i, path in enumerate(paths):
        save(path, pixels(9, 8, 3, seed=i))
    source = feeds(ImageFiles(paths, (3, 9, 8)), workers)
    assert len(list(source.epoch(0))) == 4
    paths[17].write_bytes(b"")
    with pytest.raises(InputError) as caught:
        list(source.epoch(1))
    expected = "cannot be read as an image: it is empty or of an unknown kind"
    assert str(caught.value) == f'"{paths[17]}" {expected}'


# --- whole runs


def pictures(folder: Path) -> Source:
    """Three kinds of small picture, with a meta and a test set of their own."""
    generator = np.random.default_rng(0)
    for part, n in (("train", 72), ("meta", 12), ("test", 15)):
        for i in range(n):
            image = generator.integers(0, 120, (8, 8), dtype=np.uint8)
            image[2 * (i % 3) : 2 * (i % 3) + 3] += 100
            save(folder / part / f"class{i % 3}" / f"{i}.png", image)
    return load_source(str(folder))


def trained(method: str, data: Source, **settings: object) -> Model:
    often = {"interval": 2} if method == "revar" else {}
    given: dict[str, Any] = {"augment": "shift", "batch_size": 16, **often, **settings}
    chosen = replace(recipe(method, epochs=2, **given), backbone="convnet")
    return fit_model(chosen, data, device=CPU, observer=Silent())


def assert_equal_models(one: Model, two: Model) -> None:
    weights, others = one.networks.state_dict(), two.networks.state_dict()
    assert weights.keys() == others.keys()
    for name, value in weights.items():
        assert torch.equal(value, others[name]), name
    assert one.predictions.keys() == two.predictions.keys()
    for name, predictions in one.predictions.items():
        other = two.predictions[name]
        np.testing.assert_array_equal(predictions.logits, other.logits)
        np.testing.assert_array_equal(predictions.index, other.index)
        assert predictions.columns.keys() == other.columns.keys()
        for column, values in predictions.columns.items():
            np.testing.assert_array_equal(values, other.columns[column])
        if predictions.dropout_variance is not None:
            assert other.dropout_variance is not None
            np.testing.assert_array_equal(predictions.dropout_variance, other.dropout_variance)
    assert one.fitted == two.fitted


@pytest.mark.parametrize("method", ["erm", "revar"])
def test_a_streamed_run_ends_with_the_bits_of_one_in_memory(tmp_path: Path, method: str) -> None:
    data = pictures(tmp_path)
    resident = trained(method, data, loader="resident")
    assert set(resident.predictions) == {"train", "meta", "tune", "test"}
    for workers in (0, 2):
        assert_equal_models(resident, trained(method, data, loader="stream", workers=workers))
    assert_equal_models(resident, trained(method, data, loader="auto"))


@pytest.mark.parametrize("method", ["erm", "revar"])
def test_a_streamed_dataset_trains_to_the_bits_of_arrays(tmp_path: Path, method: str) -> None:
    read = pictures(tmp_path)
    assert read.train.y is not None
    images = read.train.x[:].numpy()
    x, y = unpack(Pictures(images, read.train.y))
    dataset = Source(Part(x, y), tests=read.tests)
    arrays = Source(Part(images, read.train.y), tests=read.tests)
    expected = trained(method, arrays)
    for settings in ({"loader": "resident"}, {"loader": "stream", "workers": 2}):
        assert_equal_models(expected, trained(method, dataset, **settings))


def test_unlabelled_images_may_be_streamed(tmp_path: Path) -> None:
    data = pictures(tmp_path)
    for i in range(20):
        save(tmp_path / "more" / f"{i}.png", pixels(8, 8, seed=500 + i))
    more = ImageFiles(tuple(sorted((tmp_path / "more").iterdir())), (1, 8, 8))
    data = replace(data, unlabelled=Part(more))
    models = [
        trained("revar", data, loader=loader, workers=0, unlabelled="pooled", unlabelled_from=0.2)
        for loader in ("resident", "stream")
    ]
    assert_equal_models(*models)


def test_predictions_on_files_are_those_on_their_pixels(tmp_path: Path) -> None:
    data = pictures(tmp_path)
    model = trained("erm", data)
    test = data.tests["test"].x
    assert isinstance(test, ImageFiles)
    on_files, on_pixels = model.predict(test), model.predict(test[:])
    np.testing.assert_array_equal(on_files.logits, on_pixels.logits)
    assert isinstance(test[:], Tensor)


# --- memory

_STREAM = """
import json, sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from revar.data.augment import Augment
from revar.data.stored import ImageFiles
from revar.feeds import DataFeeds
from revar.preparation import Split

torch.set_num_threads(1)
side = int(sys.argv[2])
files = ImageFiles(tuple(sorted(Path(sys.argv[1]).iterdir())), (3, side, side))
n, nothing = len(files), np.arange(0)
y = np.zeros(n, dtype=np.int64)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Mean(nn.Module):
    def forward(self, x):
        return x.flatten(1).float()


results = {}
for workers in (0, 2):
    feeds = DataFeeds(
        Split(files, y, np.arange(n)),
        Split(files.take(nothing), y[:0], nothing),
        files.take(nothing),
        normalise=Mean(), augment=Augment(pad=4), batch_size=16, seed=0,
        device=torch.device("cpu"), workers=workers,
    )
    for _ in zip(range(5), feeds.epoch(0)):
        pass
    start, peak, ends = resident(), 0, []
    for number in range(4):
        for _ in feeds.epoch(number):
            peak = max(peak, resident())
        ends.append(resident())
    results[workers] = {"start": start, "peak": peak, "ends": ends}
print(json.dumps(results))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's own figures")
def test_memory_stays_flat_while_many_images_are_streamed(tmp_path: Path) -> None:
    n, side = 1500, 96
    smooth = np.linspace(0, 255, side).astype(np.uint8)
    for i in range(n):
        path = tmp_path / f"{i:04}.jpg"
        if i < 50:
            image = np.stack([np.add.outer(np.roll(smooth, k * i), smooth) for k in (1, 2, 3)], -1)
            save(path, image.astype(np.uint8))
        else:
            os.link(tmp_path / f"{i % 50:04}.jpg", path)
    command = [sys.executable, "-c", _STREAM, str(tmp_path), str(side)]
    # Large blocks go back to the system as soon as they are free: what is resident is in use.
    there = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=there)
    assert done.returncode == 0, done.stderr
    decoded = n * 3 * side**2
    mebibyte = 2**20
    for workers, seen in json.loads(done.stdout).items():
        ends = seen["ends"]
        # Two epochs are 79 MiB of pixels: a leak of one image in twenty would show.
        assert abs(ends[-1] - ends[1]) < 4 * mebibyte, (workers, seen)
        assert seen["peak"] - seen["start"] < decoded / 4, (workers, seen, decoded)

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from revar.data import stored
from revar.data.inputs import unpack
from revar.data.source import Part, Source, load_source
from revar.data.stored import ImageFiles, Items
from revar.errors import DataWarning, InputError
from revar.preparation import prepare
from revar.splits import take_off
from support.pictures import pixels, save
from support.problems import recipe

ALL = recipe("erm", meta_fraction=0, tune_fraction=0)
"""Everything serves as training data."""


def rows(n: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((n, 3))


def classes(n: int) -> NDArray[np.int64]:
    return np.arange(n) % 2


def said(data: Source, chosen: Any = ALL) -> str:
    """The one warning that preparing gives."""
    with pytest.warns(DataWarning) as caught:
        prepare(chosen, data)
    (warning,) = caught
    return str(warning.message)


# --- rows that are in more than one split


def test_rows_of_a_test_set_that_are_trained_on_are_counted() -> None:
    x = rows(40)
    test = np.concatenate([rows(10, seed=1), x[:3]])
    data = Source(Part(x, classes(40)), tests={"test": Part(test, classes(13))})
    expected = "rows that are in the training split too: 3 of test; copies make figures too good"
    assert said(data) == expected


def test_every_set_is_named_with_its_own_count() -> None:
    x = rows(40)
    sets = {"test": x[:2], "shifted": x[5:6], "other": rows(3, seed=9)}
    tests = {
        name: Part(np.concatenate([rows(8, seed=len(name)), copies]), classes(8 + len(copies)))
        for name, copies in sets.items()
    }
    meta = Part(np.concatenate([rows(8, seed=3), x[7:10]]), classes(11))
    message = said(Source(Part(x, classes(40)), meta, tests))
    assert "training split too: 2 of test, 1 of shifted, 3 of meta; " in message


def test_copies_within_the_training_data_are_found_where_splits_tear_them_apart() -> None:
    once = rows(60)
    x, y = np.concatenate([once, once]), np.concatenate([classes(60)] * 2)
    chosen = recipe("erm", meta_fraction=0, tune_fraction=0.2)
    taken = take_off(y, None, {"meta": 0.0, "tune": 0.2}, chosen.seed)
    train = [row % 60 for row in taken["train"]]
    torn = sum(train.count(row % 60) == 1 for row in taken["tune"])
    assert torn > 0
    data = Source(Part(x, y))
    assert f"training split too: {torn} of tune; " in said(data, chosen)
    # Whole groups stay together.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare(chosen, Source(Part(x, y, groups=np.tile(np.arange(60), 2))))


def test_copies_of_images_are_found_by_their_pixels_and_not_by_their_names(tmp_path: Path) -> None:
    for i in range(12):
        save(tmp_path / "train" / f"class{i % 2}" / f"{i}.png", pixels(4, 4, seed=i))
    for i in range(8):
        save(tmp_path / "test" / f"class{i % 2}" / f"{i}.png", pixels(4, 4, seed=100 + i))
    save(tmp_path / "test" / "class0" / "copy.bmp", pixels(4, 4, seed=0))
    data = load_source(str(tmp_path))
    for loader in ("resident", "stream"):
        chosen = recipe("erm", meta_fraction=0, tune_fraction=0, loader=loader)
        assert "training split too: 1 of test; " in said(data, chosen)


def test_tables_of_a_few_categories_repeat_rows_by_chance_and_nothing_is_said() -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 3, (300, 2)).astype(float)
    test = generator.integers(0, 3, (100, 2)).astype(float)
    data = Source(Part(x, classes(300)), tests={"test": Part(test, classes(100))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare(recipe("erm"), data)


def test_nothing_is_said_of_rows_that_two_test_sets_share() -> None:
    test = Part(rows(10, seed=1), classes(10))
    data = Source(Part(rows(40), classes(40)), tests={"test": test, "again": test})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare(ALL, data)


def test_a_test_set_that_is_mostly_training_data_is_refused() -> None:
    x = rows(40)
    data = Source(Part(x, classes(40)), tests={"test": Part(x[:20], classes(20))})
    with pytest.raises(InputError, match="100% of these rows are in the train split"):
        prepare(ALL, data)


# --- what is kept in memory


def pictures(folder: Path) -> Source:
    """Class folders with a meta and a test set of their own."""
    for part, n in (("train", 24), ("meta", 8), ("test", 8)):
        for i in range(n):
            seed = 1000 * len(part) + i + ord(part[0])
            save(folder / part / f"class{i % 2}" / f"{i}.png", pixels(4, 5, 3, seed=seed))
    return load_source(str(folder))


def test_the_meta_set_lives_where_the_training_data_does(tmp_path: Path) -> None:
    """Its batches are drawn again and again: files would be decoded at every step."""
    data = pictures(tmp_path)
    resident = prepare(recipe(loader="resident"), data)
    streamed = prepare(recipe(loader="stream"), data)
    for name in ("train", "tune", "meta"):
        assert isinstance(resident.splits[name].x, Tensor), name
        assert isinstance(streamed.splits[name].x, ImageFiles), name
        assert torch.equal(resident.splits[name].x[:], streamed.splits[name].x[:])
    assert isinstance(prepare(recipe(), data).splits["meta"].x, Tensor)


def test_what_is_prepared_does_not_depend_on_where_data_lives(tmp_path: Path) -> None:
    data = pictures(tmp_path)
    train, meta, test = data.train, data.meta, data.tests["test"]
    assert meta is not None
    assert isinstance(train.x, ImageFiles)
    arrays = Source(
        Part(train.x[:], train.y), Part(meta.x[:], meta.y), {"test": Part(test.x[:], test.y)}
    )
    images = torch.as_tensor(train.x[:])
    dataset = Source(Part(unpack(TensorDataset(images))[0], train.y), arrays.meta, arrays.tests)
    expected = prepare(recipe(loader="resident"), arrays)
    for given in (arrays, data, dataset):
        for loader in ("resident", "stream", "auto"):
            prepared = prepare(recipe(loader=loader), given)
            assert prepared.inputs == expected.inputs
            assert prepared.task == expected.task
            for key, value in expected.normalise.state_dict().items():
                assert torch.equal(prepared.normalise.state_dict()[key], value)
            digests = {name: print_.digest for name, print_ in prepared.fingerprints.items()}
            assert digests == {
                name: print_.digest for name, print_ in expected.fingerprints.items()
            }
            for name, split in expected.splits.items():
                np.testing.assert_array_equal(prepared.splits[name].y, split.y)
                assert torch.equal(prepared.splits[name].x[:], split.x[:])
            assert len(prepared.unlabelled) == 0
            assert torch.equal(prepared.unlabelled[:0], expected.unlabelled[:0])


def test_rows_of_a_streamed_dataset_are_normalised_as_those_of_an_array() -> None:
    x, y = torch.from_numpy(rows(40)).float(), classes(40)
    streamed = prepare(recipe(loader="stream"), Source(Part(unpack(TensorDataset(x))[0], y)))
    resident = prepare(recipe(loader="resident"), Source(Part(x, y)))
    assert isinstance(streamed.splits["train"].x, Items)
    for key, value in resident.normalise.state_dict().items():
        assert torch.equal(streamed.normalise.state_dict()[key], value)


def test_data_too_large_for_memory_is_streamed_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pictures(tmp_path)
    monkeypatch.setattr(stored, "_free_memory", lambda device: 100.0)
    prepared = prepare(recipe(), data)
    assert isinstance(prepared.splits["train"].x, ImageFiles)
    assert isinstance(prepared.splits["meta"].x, ImageFiles)


def test_a_tune_part_of_the_data_itself_is_used_and_nothing_is_taken_off_for_it() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    given = Part(rng.normal(size=(10, 3)), np.arange(10) % 2)
    source = Source(Part(x, y), splits={"tune": given, "calibration": given})
    prepared = prepare(recipe(), source)
    assert len(prepared.splits["tune"].x) == 10
    assert len(prepared.splits["train"].x) + len(prepared.splits["meta"].x) == 60
    assert "calibration" not in prepared.splits

"""Cells: their names, their data, and what a finished one keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from revar.data.generated import generated, generated_soft_labels
from revar.data.hard import mistaken
from revar.data.source import Part, load_source
from revar.errors import InputError
from revar.methods.revar import ReVaR
from revar.recipe import make_method
from revar.registry import METHODS
from revar.tables import figures
from revar.tables.cell import VERSION, Cell, DataChoice, recipe_of
from revar.tables.parcels import merge, pack
from revar.tables.sources import few, source_of
from revar.tables.store import CellStore, Finished

CPU = torch.device("cpu")
DATA = DataChoice(name="generated", tests=("test", "shifted"))
CELL = Cell(
    data=DATA, method="erm", backbone="mlp", epochs=1,
    settings=(("augment", "none"), ("batch_size", "32")),
)  # fmt: skip


def test_a_cell_is_named_by_everything_it_depends_on() -> None:
    same = replace(CELL, data=replace(DATA))
    assert same.digest == CELL.digest
    others = [
        CELL.seeded(1),
        replace(CELL, epochs=2),
        replace(CELL, method="sat"),
        replace(CELL, backbone="linear"),
        replace(CELL, data=replace(DATA, label_noise="symmetric:0.2")),
        replace(CELL, data=replace(DATA, train=100)),
        replace(CELL, settings=(*CELL.settings, ("learning_rate", "0.05"))),
        replace(CELL, timed=True),
    ]
    assert len({cell.digest for cell in [CELL, *others]}) == len(others) + 1


def test_another_version_is_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell trained before a default changed must not pass for one of the new default."""
    before = CELL.digest
    monkeypatch.setattr("revar.tables.cell.VERSION", VERSION + 1)
    assert CELL.digest != before


def test_wrong_wishes_are_refused() -> None:
    with pytest.raises(InputError, match="train"):
        DataChoice(name="generated", train=1)
    with pytest.raises(InputError, match="test set of generated"):
        source_of(replace(CELL, data=replace(DATA, tests=("tset",))), CELL.recipe())
    with pytest.raises(InputError, match="part of generated"):
        source_of(replace(CELL, data=replace(DATA, meta="vla")), CELL.recipe())
    with pytest.raises(InputError, match="dataset"):
        source_of(replace(CELL, data=replace(DATA, name="cifar11")), CELL.recipe())


def test_few_examples_keep_their_shares_and_their_groups() -> None:
    y = np.repeat([0, 1, 2], [500, 300, 200])
    part = few(Part(np.arange(1000), y), 100, seed=3)
    assert part.y is not None
    assert np.bincount(part.y).tolist() == pytest.approx([50, 30, 20], abs=1)
    assert np.array_equal(part.x, few(Part(np.arange(1000), y), 100, seed=3).x)
    assert not np.array_equal(part.x, few(Part(np.arange(1000), y), 100, seed=4).x)
    grouped = few(Part(np.arange(1000), y, groups=np.arange(1000) // 4), 100, seed=0)
    _, counts = np.unique(grouped.x // 4, return_counts=True)
    assert set(counts.tolist()) == {4}
    assert len(grouped) == 100
    assert len(few(part, 1000, 0)) == 100


def test_what_a_cell_asks_for_is_what_it_gets() -> None:
    choice = replace(
        DATA, train=100, tests=("test", "test+fog:3", "shifted"), test=50, unlabelled=("shifted",),
        label_noise="symmetric:0.5", meta="val",
    )  # fmt: skip
    cell = replace(CELL, data=choice, method="revar")
    source = source_of(cell, cell.recipe())
    whole = generated(0)
    assert len(source.train) == 100
    assert set(source.tests) == {"test", "test+fog-3", "shifted"}
    assert len(source.tests["test"]) == 50
    clean, foggy = (source.tests[name].y for name in ("test", "test+fog-3"))
    assert clean is not None
    assert foggy is not None
    assert np.array_equal(clean, foggy)
    assert not np.array_equal(source.tests["test"].x, source.tests["test+fog-3"].x)
    assert source.unlabelled is not None
    assert len(source.unlabelled) + len(source.tests["shifted"]) == 50
    assert source.meta is not None
    assert np.array_equal(source.meta.x, whole.splits["val"].x)


def test_generated_pictures_are_learnable_shifted_and_honestly_soft() -> None:
    source, soft = generated(1), generated_soft_labels(1)
    np.testing.assert_allclose(soft.sum(1), 1)
    assert source.tests["test"].y is not None
    agreed = (soft.argmax(1) == source.tests["test"].y).mean()
    assert 0.75 < agreed < 0.98
    assert source.tests["shifted"].x.mean() < source.tests["test"].x.mean() - 10
    assert not np.array_equal(generated(2).train.x, source.train.x)


def test_a_finished_cell_keeps_what_tables_need_and_no_weights(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    assert store.find(CELL) is None
    finished = store.train(CELL, device=CPU)
    assert {path.name for path in tmp_path.iterdir()} == {CELL.digest}
    names = {path.name for path in finished.path.iterdir()}
    assert names == {
        "cell.json", "metrics.json", "scores.json", "predictions", "log.jsonl", "provenance.json"
    }  # fmt: skip
    assert set(finished.metrics) == {"test", "shifted"}
    assert finished.metrics["test"]["accuracy"] == finished.predictions("test").correct().mean()
    assert len(finished.predictions("tune")) > 0
    assert min(finished.log("seconds")) > 0
    with pytest.raises(InputError, match="no predictions"):
        finished.predictions("train")
    before = (finished.path / "metrics.json").stat().st_mtime_ns
    assert store.train(CELL, device=CPU).path == finished.path
    assert (finished.path / "metrics.json").stat().st_mtime_ns == before
    kept = CellStore(tmp_path / "other").train(CELL, device=CPU, keep_weights=True)
    assert (kept.path / "run" / "weights.safetensors").exists()
    assert json.loads((kept.path / "metrics.json").read_text()) == finished.metrics


def test_a_damaged_cell_says_what_to_do(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    finished = store.train(CELL, device=CPU)
    (finished.path / "metrics.json").write_text("{")
    with pytest.raises(InputError, match="remove its folder"):
        _ = store.find(CELL).metrics  # type: ignore[union-attr]


def test_no_default_changes_unseen() -> None:
    """Finished cells hold as long as what they leave open means the same."""
    kept = json.loads((Path(__file__).parent / "defaults.json").read_text())
    now = {entry.name: recipe_of(entry.name).to_json() for entry in METHODS}
    for name, recipe in kept["recipes"].items():
        for path, value in _leaves(recipe):
            found = dict(_leaves(now[name])).get(path, "gone")
            assert found == value, (
                f"{name}: {path} was {value!r} and is {found!r}. Finished cells no longer hold: "
                "keep the earlier default in AS_PUBLISHED of revar/tables/cell.py, or raise "
                "VERSION there and write defaults.json anew"
            )
    assert kept["version"] == VERSION
    assert set(kept["recipes"]) == set(now)


def test_tables_keep_the_meta_steps_they_were_published_with() -> None:
    """What a table sets itself comes before that."""
    plain, often = (Cell(data=DataChoice(name="generated"), method="revar", settings=settings)
                    for settings in ((), (("interval", "2"),)))  # fmt: skip
    for cell, interval in ((plain, 5), (often, 2)):
        method = cell.recipe().method
        assert isinstance(method, ReVaR)
        assert (method.interval, method.meta_batch, method.shares_gradient) == (
            interval,
            512,
            False,
        )
    now = make_method("revar")
    assert isinstance(now, ReVaR)
    assert now.interval > 5


def _leaves(tree: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(tree, dict):
        for name, branch in tree.items():
            yield from _leaves(branch, f"{path}.{name}")
    else:
        yield path, tree


def test_the_same_images_are_given_away_under_every_corruption() -> None:
    tests = ("test", "test+fog:3", "test+contrast:3")
    choice = replace(DATA, tests=tests, unlabelled=tests[1:])
    source = source_of(replace(CELL, data=choice), CELL.recipe())
    whole = generated(0).tests["test"]
    assert source.unlabelled is not None
    assert source.unlabelled.y is None
    given = len(whole) // 10
    assert len(source.unlabelled) == 2 * given
    assert len(source.tests["test"]) == len(whole)
    foggy, flat = (source.tests[name] for name in ("test+fog-3", "test+contrast-3"))
    assert len(foggy) == len(flat) == len(whole) - given
    assert foggy.y is not None
    assert flat.y is not None
    assert np.array_equal(foggy.y, flat.y)


def test_a_test_set_that_validates_is_not_scored() -> None:
    validated = replace(DATA, tests=("test",), meta="shifted")
    source = source_of(replace(CELL, data=validated), CELL.recipe())
    assert source.meta is not None
    assert np.array_equal(source.meta.x, generated(0).tests["shifted"].x)
    scored = replace(validated, tests=("test", "shifted"))
    with pytest.raises(InputError, match="shifted"):
        source_of(replace(CELL, data=scored), CELL.recipe())


def test_hard_images_are_those_the_published_network_gets_wrong(real_data: Path) -> None:
    part = load_source("cifar10").tests["test"].take(np.arange(500))
    hard = mistaken(part)
    # Their own record says 93.62 % of all 10,000.
    assert 0.03 < len(hard) / len(part) < 0.12
    assert len(mistaken(hard)) == len(hard)


def test_a_light_parcel_answers_figures_and_says_what_it_lacks(tmp_path: Path) -> None:
    finished = CellStore(tmp_path / "full").train(CELL, device=CPU)
    sizes = []
    for name, whole in (("whole.zip", True), ("light.zip", False)):
        assert pack(tmp_path / "full", tmp_path / name, predictions=whole) == 1
        sizes.append((tmp_path / name).stat().st_size)
    assert sizes[1] < sizes[0] / 2
    assert merge(tmp_path / "light.zip", tmp_path / "light") == (1, 0, 0)
    other = CellStore(tmp_path / "light").find(CELL)
    assert other is not None
    assert other.metrics == finished.metrics
    with pytest.raises(InputError, match="no predictions"):
        other.predictions("test")


def _with_log(folder: Path, accuracies: list[float], seconds: list[float]) -> Finished:
    folder.mkdir()
    lines = [
        json.dumps({"accuracy": accuracy, "seconds": second})
        for accuracy, second in zip(accuracies, seconds, strict=True)
    ]
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    return Finished(folder)


def test_time_and_epochs_to_converge_by_hand(tmp_path: Path) -> None:
    # 95 % of the rise from 0.2 to 1.0 is 0.96, reached in epoch 2; to 0.6 it is 0.58, epoch 4.
    plain = _with_log(tmp_path / "plain", [0.2, 0.97, 1.0, 0.9], [3.0, 1.0, 2.0, 2.0])
    other = _with_log(tmp_path / "other", [0.2, 0.5, 0.57, 0.6], [9.0, 3.0, 3.5, 4.0])
    cells = {"cell": other, "plain": plain}
    assert figures.epoch_ratio(cells) == 3.0
    assert figures.epochs_ratio(cells) == 2.0

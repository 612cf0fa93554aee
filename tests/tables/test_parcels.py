"""Cells from one machine to another: what is added, what is completed, and what is refused."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from revar.cli import run
from revar.tables.catalogue import find_table
from revar.tables.cell import Cell, DataChoice
from revar.tables.executors import Here, Tell
from revar.tables.parcels import merge, pack
from revar.tables.places import scale_of
from revar.tables.questions import wanted
from revar.tables.run import answer_tables
from revar.tables.store import CellStore

RESULTS = Path(__file__).parents[2] / "results"
CELL = Cell(
    data=DataChoice(name="generated"), method="erm", backbone="mlp", epochs=1,
    settings=(("augment", "none"), ("batch_size", "32")),
)  # fmt: skip
OTHER = CELL.seeded(1)


@pytest.fixture(scope="module")
def parcels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cells in ``whole.zip``, and without predictions in ``light.zip``."""
    folder = tmp_path_factory.mktemp("parcels")
    for cell in (CELL, OTHER):
        CellStore(folder / "cells").train(cell, device=torch.device("cpu"))
    pack(folder / "cells", folder / "whole.zip")
    pack(folder / "cells", folder / "light.zip", predictions=False)
    return folder


def _contents(root: Path) -> dict[Path, tuple[bytes, int]]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def _texts(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): data for path, (data, _) in _contents(root).items()}


def test_predictions_complete_a_cell_that_came_without(parcels: Path, tmp_path: Path) -> None:
    assert merge(parcels / "light.zip", tmp_path) == (2, 0, 0)
    before = _contents(tmp_path)
    assert merge(parcels / "light.zip", tmp_path) == (0, 0, 2)
    assert merge(parcels / "whole.zip", tmp_path) == (0, 2, 0)
    after = _contents(tmp_path)
    assert {path: after[path] for path in before} == before
    finished = CellStore(tmp_path).find(CELL)
    assert finished is not None
    assert finished.metrics["test"]["accuracy"] == finished.predictions("test").correct().mean()
    assert merge(parcels / "whole.zip", tmp_path) == (0, 0, 2)
    assert merge(parcels / "light.zip", tmp_path) == (0, 0, 2)
    assert _contents(tmp_path) == after
    assert {path.name for path in tmp_path.iterdir()} == {CELL.digest, OTHER.digest}


def test_predictions_of_other_figures_are_refused(
    parcels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    merge(parcels / "light.zip", tmp_path / "cells")
    file = tmp_path / "cells" / OTHER.digest / "metrics.json"
    figures = json.loads(file.read_text())
    figures["test"]["accuracy"] += 0.01
    file.write_text(json.dumps(figures))
    before = _contents(tmp_path)
    assert run(["paper", "merge", str(parcels / "whole.zip"), str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "other figures" in line
    assert OTHER.digest in line
    assert _contents(tmp_path) == before


def test_the_two_committed_files_give_the_committed_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cells.zip", "lesion/cells.zip"):
        assert run(["paper", "merge", str(RESULTS / name), str(tmp_path)]) == 0
    assert "0 cells added, 12 were completed, 0 were there" in capsys.readouterr().err
    command = ["paper", "lesion", "--scale", "small", "--out", str(tmp_path)]
    assert run([*command, "--executor", "none"]) == 0
    ours, theirs = tmp_path / "tables" / "lesion.md", RESULTS / "lesion" / "lesion.md"
    assert ours.read_bytes() == theirs.read_bytes()


def _copy(whole: Path, to: Path, change: Callable[[str, bytes], tuple[str, bytes]]) -> None:
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(to, "w") as other:
        for name in archive.namelist():
            other.writestr(*change(name, archive.read(name)))


def _broken(name: str, data: bytes) -> tuple[str, bytes]:
    return name, data[:20] if name == f"{OTHER.digest}/cell.json" else data


def _no_object(name: str, data: bytes) -> tuple[str, bytes]:
    return name, b"[]" if name == f"{OTHER.digest}/metrics.json" else data


def _swapped(name: str, data: bytes) -> tuple[str, bytes]:
    digest, _, inside = name.partition("/")
    other = OTHER.digest if digest == CELL.digest else CELL.digest
    return f"{other}/{inside}", data


@pytest.mark.parametrize("change", [_broken, _no_object, _swapped])
def test_a_parcel_with_something_else_in_it_is_refused_whole(
    change: Callable[[str, bytes], tuple[str, bytes]],
    parcels: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _copy(parcels / "whole.zip", tmp_path / "bad.zip", change)
    assert run(["paper", "merge", str(tmp_path / "bad.zip"), str(tmp_path / "o")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "no parcel of cells" in line
    assert not (tmp_path / "o").exists()


def test_a_parcel_may_list_its_folders(parcels: Path, tmp_path: Path) -> None:
    """As one does that somebody unpacked and packed again."""
    shutil.unpack_archive(parcels / "whole.zip", tmp_path / "there")
    again = Path(shutil.make_archive(str(tmp_path / "again"), "zip", tmp_path / "there"))
    assert any(name.endswith("/") for name in zipfile.ZipFile(again).namelist())
    assert merge(again, tmp_path / "cells") == (2, 0, 0)


@pytest.mark.parametrize("digest", [CELL.digest, OTHER.digest])
def test_what_is_no_finished_cell_is_left_alone(
    digest: str, parcels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write = tmp_path / "cells" / digest / "notes.txt"
    write.parent.mkdir(parents=True)
    write.write_text("mine")
    before = _contents(tmp_path)
    assert run(["paper", "merge", str(parcels / "whole.zip"), str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert digest in line
    assert "nothing was merged" in line
    assert _contents(tmp_path) == before


def test_what_lies_where_predictions_should_is_kept(parcels: Path, tmp_path: Path) -> None:
    merge(parcels / "light.zip", tmp_path)
    odd = tmp_path / CELL.digest / "predictions" / "notes.txt"
    odd.parent.mkdir()
    odd.write_text("mine")
    assert merge(parcels / "whole.zip", tmp_path) == (0, 2, 0)
    assert (odd.parents[1] / "predictions.odd" / "notes.txt").read_text() == "mine"
    assert not odd.exists()


def test_an_empty_parcel_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()
    assert run(["paper", "merge", str(tmp_path / "empty.zip"), str(tmp_path / "o")]) == 2
    assert "it is empty" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_any_changed_byte_is_one_line_or_changes_nothing(parcels: Path, tmp_path: Path) -> None:
    whole = (parcels / "light.zip").read_bytes()
    merge(parcels / "light.zip", tmp_path / "right")
    right = _texts(tmp_path / "right")
    for at in range(0, len(whole), len(whole) // 60):
        bad = tmp_path / "bad.zip"
        bad.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        if run(["paper", "merge", str(bad), str(tmp_path / "o")]) == 0:
            assert _texts(tmp_path / "o" / "cells") == right
            shutil.rmtree(tmp_path / "o")
        assert not list(tmp_path.glob("o/cells/*"))


def test_cells_without_predictions_are_trained_again_where_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = replace(scale_of("smoke"), seeds=1)
    root = tmp_path / "full" / "cells"
    cells = wanted(find_table("plex-label").grids(scale), 1)
    Here().run(cells, root, "cpu", lambda _: None)
    pack(root, tmp_path / "light.zip", predictions=False)
    light = tmp_path / "light" / "cells"
    merge(tmp_path / "light.zip", light)
    before = _contents(light)

    command = ["paper", "plex-label", "--scale", "smoke", "--seeds", "1"]
    command += ["--out", str(light.parent), "--device", "cpu"]
    assert run([*command, "--executor", "none"]) == 1
    assert "merge a file that has them" in capsys.readouterr().err
    assert _contents(light) == before

    trained: list[Cell] = []

    class Idle:
        def run(self, cells: Sequence[Cell], root: Path, device: str, tell: Tell) -> None:
            trained.extend(cells)

    answer_tables([find_table("plex-label")], scale, light, Idle())
    assert set(trained) == set(cells)
    assert _contents(light) == before

    assert run([*command, "--executor", "here"]) == 0
    assert all(CellStore(light).find(cell).has_predictions for cell in cells)  # type: ignore[union-attr]
    assert not list(light.glob(".*"))
    names = [f"{cell.digest}/metrics.json" for cell in cells]
    assert all((light / name).read_bytes() == (root / name).read_bytes() for name in names)


def test_cells_without_predictions_stay_where_figures_are_enough(tmp_path: Path) -> None:
    scale = replace(scale_of("smoke"), seeds=1)
    tables = [find_table("plex-calibration")]
    cells = wanted([grid for table in tables for grid in table.grids(scale)], 1)
    Here().run(cells, tmp_path / "full", "cpu", lambda _: None)
    pack(tmp_path / "full", tmp_path / "light.zip", predictions=False)
    merge(tmp_path / "light.zip", tmp_path / "light")
    before = _contents(tmp_path / "light")
    (found,) = answer_tables(tables, scale, tmp_path / "light", Here(), device="cpu")
    assert all(one.values for one in found.answers.values())
    assert _contents(tmp_path / "light") == before

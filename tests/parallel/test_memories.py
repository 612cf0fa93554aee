"""Tables of examples whose rows are shared: as a whole one, a P-th in each process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from revar.errors import InputError
from revar.parallel import World
from revar.rows import Rows, check_rows, end_sharing, gather_rows, shared_rows
from support.ranks import TESTS, run_ranks

SCRIPT = Path(TESTS) / "support" / "split_memories.py"
ROWS = [334, 334, 333]
"""Of 1001 training examples; 7 classes, 17 meta examples and 2 unlabelled ones."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    answers = []
    folder = str(tmp_path_factory.mktemp("runs"))
    for code, out, err in run_ranks(SCRIPT, 3, "operations", folder):
        assert code == 0, err
        answers.append(json.loads(out.splitlines()[-1]))
    return answers


def test_shared_rows_are_those_of_a_whole_table_bit_for_bit(found: list[dict[str, Any]]) -> None:
    assert [each["wrong"] for each in found] == [[]] * 3


def test_a_process_keeps_its_rows_and_one_more(found: list[dict[str, Any]]) -> None:
    for each, count in zip(found, ROWS, strict=True):
        assert each["held"] == {
            "sat belief": count + 1,
            "fsr-full dictionary.values": count + 1,
            "fsr-full pseudo_labels.logits": 7 * (count + 1),
            "trajectory sums": 7 * (count + 1),
            "trajectory targets": 7 * (count + 1),
            "history of_train": 7 * (count + 1),
            "history of_meta": 7 * ((6 if each is not found[2] else 5) + 1),
            "history of_unlabelled": 7 * ((1 if each is not found[2] else 0) + 1),
        }


def test_a_step_sends_the_rows_it_reads(found: list[dict[str, Any]]) -> None:
    """In float64: ten numbers, or ten of each class; nothing where nothing is read."""
    for each in found:
        assert each["traffic"] == {
            "sat": {"all_reduce": 80, "all_reduce calls": 1},
            "fsr": {},
            "fsr epoch": {"all_gather": 8 * 334, "all_gather calls": 1},
            "fsr-full": {"all_reduce": 560, "all_reduce calls": 1},
            "trajectory": {"all_reduce": 1120, "all_reduce calls": 2},
            "history": {},
        }


def test_all_keep_a_state_when_the_clock_of_one_says_so(found: list[dict[str, Any]]) -> None:
    """Every step, and at the end of both epochs; by the first, without a message of its own."""
    first, *others = (each["clocks"] for each in found)
    assert first["steps"] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]
    assert [each["steps"] for each in others] == [[], []]
    for each in (first, *others):
        without, with_keeper = each["calls"]
        assert without == with_keeper > 0


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], what: str) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(
            found[name], value, rtol=1e-7, atol=1e-9, err_msg=f"{what}: {name}"
        )


def test_a_checkpoint_does_not_know_how_many_wrote_it(tmp_path: Path) -> None:
    """Stopped in the middle of an epoch, and gone on with by more and by fewer."""
    whole, by_one, by_three, fewer = (
        tmp_path / k for k in ("whole", "by_one", "by_three", "fewer")
    )

    def run(mode: str, count: int, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for code, _, err in run_ranks(SCRIPT, count, mode, str(folder)):
            assert code == 0, err

    run("train", 1, whole)
    run("stop", 1, by_one)
    run("stop", 3, by_three)
    names = sorted(path.name for path in by_three.iterdir())
    assert names == ["fsr-full", "history", "sat", "trajectory"]
    for name in names:
        (one,), (three,) = ((run / name).glob("checkpoint-*") for run in (by_one, by_three))
        assert one.name == three.name == "checkpoint-000000006-000001"
        files = [load_file(path / "weights.safetensors") for path in (three, one)]
        assert any(k.startswith("memory.") and v.any() for k, v in files[1].items())
        assert_close(files[0], files[1], f"checkpoint of {name}")
    shutil.copytree(by_three, fewer)
    for count, folder in ((1, by_three), (2, fewer), (3, by_one)):
        run("resume", count, folder)
        for name in names:
            ends = [load_file(path / f"{name}.end") for path in (folder, whole)]
            assert_close(ends[0], ends[1], f"{name}, resumed by {count}")


def test_one_process_keeps_the_table_itself() -> None:
    table = Rows()
    table.add_rows("it", 5, 2, fill=3.0)
    assert table.get_buffer("it").shape == (5, 2)
    assert torch.equal(table.state_dict()["it"], torch.full((5, 2), 3.0))
    assert table.whole("it") is table.get_buffer("it")
    end_sharing(table)
    assert not shared_rows(table)
    assert not gather_rows(table)


def test_tables_of_other_examples_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revar.rows.world", lambda: World(0, 3))
    table = Rows()
    table.add_rows("it", 7, 2)
    check_rows(table, {"it": torch.zeros(7, 2)})
    with pytest.raises(InputError, match=r"it is \[8, 2\], not \[7, 2\]"):
        check_rows(table, {"it": torch.zeros(8, 2)})
    with pytest.raises(InputError, match="it is missing"):
        check_rows(table, {})


@pytest.mark.parametrize("position", [-1, 7])
def test_a_position_outside_the_table_is_an_error(
    monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    monkeypatch.setattr("revar.rows.world", lambda: World(0, 3))
    table = Rows()
    table.add_rows("it", 7)
    with pytest.raises(RuntimeError, match="outside the table"):
        table.write("it", torch.tensor([2, position]), torch.ones(2))


def test_rows_left_over_go_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, count in enumerate(ROWS):
        monkeypatch.setattr("revar.rows.world", lambda rank=rank: World(rank, 3))
        table = Rows()
        table.add_rows("it", 1001, fill=1.0)
        assert float(table.get_buffer("it").sum()) == count, "the one for others is zero"

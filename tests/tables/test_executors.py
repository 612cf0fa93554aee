"""Workers that die, cells that fail: the rest goes on, and a rerun does only what is missing."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import ray

from revar.tables.cell import Cell, DataChoice
from revar.tables.executors import Here, Local, Outcome, Ray
from revar.tables.store import CellStore

SHORT = Cell(
    data=DataChoice(name="generated"), method="erm", backbone="mlp", epochs=1,
    settings=(("augment", "none"), ("batch_size", "32")),
)  # fmt: skip
LONG = replace(SHORT, epochs=400)
BROKEN = replace(SHORT, backbone="convnet50")


def _digests(root: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in root.glob("*/metrics.json")}


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    told: list[Outcome] = []
    Here().run([SHORT, BROKEN, SHORT.seeded(1)], tmp_path, "cpu", told.append)
    assert [outcome.reason is None for outcome in told] == [True, False, True]
    assert "convnet50" in (told[1].reason or "")
    assert set(_digests(tmp_path)) == {SHORT.digest, SHORT.seeded(1).digest}


def test_a_pool_gives_what_one_process_gives(tmp_path: Path) -> None:
    told: list[Outcome] = []
    Local(2).run([SHORT, SHORT.seeded(1)], tmp_path / "pool", "cpu", told.append)
    assert [outcome.reason for outcome in told] == [None, None]
    Here().run([SHORT], tmp_path / "here", "cpu", told.append)
    one, other = (CellStore(tmp_path / name).find(SHORT) for name in ("pool", "here"))
    assert one is not None
    assert other is not None
    assert one.metrics == other.metrics


def test_timed_cells_train_alone_and_last(tmp_path: Path) -> None:
    told: list[Outcome] = []
    timed = [replace(SHORT, timed=True, seed=seed) for seed in (0, 1)]
    Local(2).run([timed[0], SHORT, timed[1], SHORT.seeded(1)], tmp_path, "cpu", told.append)
    assert [outcome.reason for outcome in told] == [None] * 4
    assert [outcome.cell for outcome in told[2:]] == timed


def _kill_when_training(root: Path, cell: Cell, kill: object) -> threading.Thread:
    """Kill whoever trains a cell once it has a checkpoint."""

    def watch() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if list((root / f"{cell.digest}.run").glob("checkpoint-*")):
                kill()  # type: ignore[operator]
                return
            time.sleep(0.01)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def _children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"spawn_main" in command:
            found.append(int(stat.parent.name))
    return found


def test_a_killed_local_worker_loses_at_most_its_epoch(tmp_path: Path) -> None:
    Here().run([SHORT], tmp_path, "cpu", lambda _: None)
    before = _digests(tmp_path)
    killed: list[int] = []

    def kill() -> None:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    watcher = _kill_when_training(tmp_path, LONG, kill)
    told: list[Outcome] = []
    Local(1).run([LONG], tmp_path, "cpu", told.append)
    watcher.join(5)
    assert killed
    assert [outcome.reason for outcome in told] == [None]
    finished = CellStore(tmp_path).find(LONG)
    assert finished is not None
    # Every epoch once in the log: it went on, and did not begin anew beside it.
    assert len((finished.path / "log.jsonl").read_text().splitlines()) == LONG.epochs
    assert _digests(tmp_path)[SHORT.digest] == before[SHORT.digest]
    assert not list(tmp_path.glob("*.run"))


def test_a_killed_ray_worker_is_tried_again(tmp_path: Path) -> None:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        killed: list[int] = []

        def kill() -> None:
            for command in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if command.read_bytes().startswith(b"ray::train_cell"):
                        os.kill(int(command.parent.name), signal.SIGKILL)
                        killed.append(int(command.parent.name))
                except OSError:
                    continue

        watcher = _kill_when_training(tmp_path, LONG, kill)
        told: list[Outcome] = []
        Ray().run([SHORT, LONG], tmp_path, "cpu", told.append)
        watcher.join(5)
    finally:
        ray.shutdown()
    assert killed
    assert sorted(outcome.reason or "" for outcome in told) == ["", ""]
    assert set(_digests(tmp_path)) == {SHORT.digest, LONG.digest}

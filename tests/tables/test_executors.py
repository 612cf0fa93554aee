"""Workers that die, cells that fail: the rest goes on, and a rerun does only what is missing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import ray
import torch

from revar.cli import run
from revar.commands import tables
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


def _contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def _children(parent: int | None = None) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == (parent or os.getpid()) and b"spawn_main" in command:
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
    Here().run([SHORT], tmp_path, "cpu", lambda _: None)
    before = _contents(tmp_path / SHORT.digest)
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
        Ray().run([SHORT, SHORT.seeded(1), LONG], tmp_path, "cpu", told.append)
        watcher.join(5)
    finally:
        ray.shutdown()
    assert killed
    assert [outcome.reason for outcome in told] == [None] * 3
    assert set(_digests(tmp_path)) == {cell.digest for cell in (SHORT, SHORT.seeded(1), LONG)}
    assert _contents(tmp_path / SHORT.digest) == before


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "from pathlib import Path\n"
        "from revar.tables.cell import Cell, DataChoice\n"
        "from revar.tables.executors import Local\n"
        "if __name__ == '__main__':\n"
        "    cell = Cell(data=DataChoice(name='generated'), method='erm', backbone='mlp',\n"
        "                epochs=100_000, settings=(('augment', 'none'),))\n"
        f"    root = Path({str(tmp_path)!r})\n"
        "    Local(2).run([cell, cell.seeded(1)], root, 'cpu', print)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)])
    workers: list[int] = []
    try:
        _wait_until(lambda: len(list(tmp_path.glob("*.run/checkpoint-*"))) > 1)
        workers = _children(parent.pid)
        assert len(workers) == 2
        parent.kill()
        parent.wait()
        _wait_until(lambda: not any(map(_alive, workers)), seconds=20)
        assert not any(map(_alive, workers))
    finally:
        parent.kill()
        parent.wait()
        for pid in filter(_alive, workers):
            os.kill(pid, signal.SIGKILL)


def _wait_until(true: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    """Whether it runs; one that nobody has waited for has ended all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _unused() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "no..host:{}", "variable"])
def test_a_cluster_that_is_not_there_is_one_line(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["paper", "lesion", "--scale", "smoke", "--out", str(tmp_path), "--device", "cpu"]
    address = form.format(_unused())
    named = ["--address", address]
    if form == "variable":
        address, named = f"127.0.0.1:{_unused()}", []
        monkeypatch.setenv("RAY_ADDRESS", address)
    began = time.monotonic()
    assert run([*command, "--executor", "ray", *named]) == 2
    assert time.monotonic() - began < 30
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f'no Ray cluster at address "{address}"' in line


@pytest.mark.parametrize("name", ["here", "local", "none"])
def test_an_address_is_for_ray_only(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["paper", "lesion", "--scale", "smoke", "--out", str(tmp_path)]
    assert run([*command, "--executor", name, "--address", "127.0.0.1:6379"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "--address" in line
    assert name in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("free", "cores", "runs"), [(139, 16, 16), (139, 32, 17), (24, 16, 3), (2, 16, 1)]
)
def test_a_gpu_gets_as_many_runs_as_its_memory_holds(
    free: int, cores: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "choose", lambda _: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free * 2**30, 200 * 2**30))
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert tables.runs_at_once("auto") == runs
    assert tables._executor("local", None, None, "auto") == Local(runs)
    assert tables._executor("local", 5, None, "auto") == Local(5)
    monkeypatch.setattr(tables, "choose", lambda _: torch.device("cpu"))
    assert tables.runs_at_once("auto") == cores

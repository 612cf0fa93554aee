"""When nothing more can be written: one clear line, and the last checkpoint intact."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from revar.cli import run as run_cli
from revar.commands.train import train
from revar.training import InterruptedRun
from support.problems import blobs
from support.survivor import differences

FAST = {"batch_size": "32", "test_passes": "3"}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    x, y = blobs()
    np.savez(tmp_path / "d.npz", x=x, y=y)
    return tmp_path / "d.npz"


def with_quota(arguments: list[str], size: int) -> subprocess.CompletedProcess[str]:
    """The command line with a limit on the size of files, which ends writes as a full disk does."""
    return subprocess.run(
        [sys.executable, "-m", "revar", *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )  # fmt: skip


def options(archive: Path, out: Path) -> list[str]:
    settings = [word for k, v in FAST.items() for word in ("--set", f"{k}={v}")]
    return ["train", "--data", str(archive), "--out", str(out), "--epochs", "4", *settings]


def test_a_full_disk_leaves_the_last_checkpoint_intact(archive: Path, tmp_path: Path) -> None:
    whole = train(str(archive), tmp_path / "whole", epochs=4, settings=FAST)
    out, asked = tmp_path / "run", iter(range(100))
    with pytest.raises(InterruptedRun):
        train(
            str(archive), out, epochs=4, settings=FAST, stop=lambda: next(asked) == 9,
        )  # fmt: skip
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    done = with_quota([*options(archive, out), "--resume"], 20_000)
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f'error: cannot write "{out}')
    assert "File too large; the last checkpoint is intact, make room and use --resume" in error
    after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    changed = {
        path.name for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    }
    assert changed <= {"log.jsonl"}
    assert run_cli([*options(archive, out), "--resume"]) == 0
    assert differences(whole.path, out) == []


def test_a_disk_that_is_full_from_the_start(archive: Path, tmp_path: Path) -> None:
    done = with_quota(options(archive, tmp_path / "run"), 20_000)
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert "there is no checkpoint yet, make room" in error
    assert "Traceback" not in done.stderr


def test_a_folder_nobody_can_write_to(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(options(archive, Path("/proc/nowhere/run"))) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert "/proc/nowhere" in error

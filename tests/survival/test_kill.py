"""A run that is killed and resumed ends with the bits of one that never was."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from support.problems import blobs
from support.survivor import differences

TESTS = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}


def test_killed_at_any_moment_and_resumed_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Twenty random moments, and 40 places just before or after a file takes its name."""
    script = TESTS / "support" / "survivor.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "20"],
        capture_output=True, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["kills"] == 20
    assert report["rename_kills"] >= 36, report
    # The last of the places lies beyond the end of the run.
    assert report["resumes"] == report["kills"] + report["rename_kills"] + 1


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    (x, y), (x_test, y_test) = blobs(1200), blobs(90, seed=1)
    np.savez(path, x=x, y=y, x_test=x_test, y_test=y_test)
    return path


def command(archive: Path, out: Path) -> list[str]:
    return ["train", "--data", str(archive), "--out", str(out), "--epochs", "12"]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "revar", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip


def wait_for_epochs(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    log = out / "log.jsonl"
    deadline = time.monotonic() + 60
    over = False
    while time.monotonic() < deadline and not over:
        over = process.poll() is not None
        if log.exists() and len(log.read_text().splitlines()) >= count:
            return
        time.sleep(0.01)
    pytest.fail(f"no {count} epochs were trained: {process.communicate()}")


def stopped(
    number: signal.Signals, epochs: int, archive: Path, out: Path, *, after: float = 0.0
) -> tuple[int, str]:
    """Its exit code and what it said; where it was done before the signal came, another try."""
    for _ in range(5):
        process = start(command(archive, out))
        wait_for_epochs(out, epochs, process)
        time.sleep(after)
        process.send_signal(number)
        _, err = process.communicate()
        if process.returncode != 0:
            break
        shutil.rmtree(out)
    return process.returncode, err


@pytest.fixture(scope="module")
def reference(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "run"
    process = start(command(archive, out))
    _, err = process.communicate()
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("epochs", [1, 4, 8])
def test_the_command_line_killed_and_resumed(
    epochs: int, archive: Path, reference: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    code, _ = stopped(signal.SIGKILL, epochs, archive, out, after=0.07 * epochs)
    assert code == -signal.SIGKILL
    again = start([*command(archive, out), "--resume"])
    _, err = again.communicate()
    assert again.returncode == 0, err
    assert differences(reference, out) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_signal_saves_and_says_how_to_go_on(
    number: signal.Signals, code: int, archive: Path, reference: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    found, err = stopped(number, 2, archive, out)
    assert found == code, err
    assert "Traceback" not in err
    said = re.search(r"stopped and saved; to go on: revar (.*)", err)
    assert said is not None, err
    (checkpoint,) = out.glob("checkpoint-*")
    assert json.loads((checkpoint / "state.json").read_text())["epoch"] >= 2
    again = start(shlex.split(said.group(1)))
    _, err = again.communicate()
    assert again.returncode == 0, err
    assert differences(reference, out) == []


def test_a_second_process_is_refused(archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    endless = ["train", "--data", str(archive), "--out", str(out), "--epochs", "5000"]
    first = start(endless)
    wait_for_epochs(out, 1, first)
    second = start([*endless, "--resume"])
    _, err = second.communicate()
    assert second.returncode == 2
    assert err.startswith(f'error: "{out}" is in use by another process')
    assert err.count("\n") == 1
    first.kill()
    first.communicate()

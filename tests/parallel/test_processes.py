"""One writer, one line when a process dies, and runs that go on afterwards."""

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
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from revar.commands.train import train
from revar.parallel import LostProcess, _watched
from support.problems import blobs
from support.survivor import differences

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
CORES = os.cpu_count() or 1
TOO_MANY = (
    f"--processes is 50000, this host with {CORES} cores takes at most {max(8, 4 * CORES)}: "
    "give a number up to that of its GPUs or cores"
)
LONG = ["--epochs", "14", "--set", "batch_size=48", "--set", "test_passes=2"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    (x, y), (x_test, y_test) = blobs(241), blobs(90, seed=1)
    np.savez(path, x=x, y=y, x_test=x_test, y_test=y_test)
    return path


def start(archive: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "revar", "train", "--data", str(archive), "--out", str(out)]
    return subprocess.Popen(
        [*command, "--device", "cpu", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def wait_until(met: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert process.poll() is None or met(), finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.01)


def epochs(out: Path) -> int:
    log = out / "log.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def interrupted(
    archive: Path, out: Path, interrupt: Callable[[subprocess.Popen[str]], None]
) -> tuple[int, str, str]:
    """In its third epoch or later; where it was done before that, another try."""
    for _ in range(5):
        process = start(archive, out, *LONG, "--processes", "2")
        wait_until(lambda: epochs(out) >= 2, process)
        if process.poll() is None:
            interrupt(process)
        code, stdout, stderr = finish(process)
        if code != 0:
            break
        shutil.rmtree(out)
    return code, stdout, stderr


def kill_the_second(process: subprocess.Popen[str]) -> None:
    for second in children(process)[1:]:
        os.kill(second, signal.SIGKILL)


def children(process: subprocess.Popen[str]) -> list[int]:
    """In the order they were started, which is that of their ranks."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return sorted(map(int, listed.split()))


def is_alive(number: int) -> bool:
    status = Path(f"/proc/{number}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def again(said: str) -> subprocess.CompletedProcess[str]:
    """Type what a run said to go on."""
    return subprocess.run(
        [sys.executable, "-m", "revar", *shlex.split(said)],
        capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=120,
    )  # fmt: skip


def test_a_run_its_twin_by_torchrun_and_one_in_which_a_process_dies(
    archive: Path, tmp_path: Path
) -> None:
    """All three end with the same bits."""
    whole, twin, broken = (tmp_path / name for name in ("whole", "twin", "broken"))
    code, stdout, stderr = finish(start(archive, whole, *LONG, "--processes", "2"))
    assert code == 0, stderr
    assert stdout.count("all in %") == stdout.count("run   ") == 1, "only one process speaks"
    assert stderr.count("epoch 14/14") == 1
    log = (whole / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in log] == [*range(1, 15)]

    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", "-m", "revar", "train", "--data", str(archive)]
    done = subprocess.run(
        [*command, "--out", str(twin), "--device", "cpu", *LONG],
        capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run   ") == 1
    assert differences(whole, twin) == []

    code, stdout, stderr = interrupted(archive, broken, kill_the_second)
    assert (code, stdout) == (1, "")
    said = [line for line in stderr.splitlines() if " epoch " not in line]
    assert len(said) == 1, stderr
    found = re.fullmatch(
        r"error: process 1 of 2 was killed \(SIGKILL\), so all were stopped; to go on: revar (.*)",
        said[0],
    )
    assert found is not None, stderr
    resumed = again(found.group(1))
    assert resumed.returncode == 0, resumed.stderr
    assert differences(whole, broken) == []


def test_a_signal_stops_all_and_another_number_of_processes_may_go_on(
    archive: Path, tmp_path: Path
) -> None:
    out, reference = tmp_path / "run", tmp_path / "one"
    code, _, stderr = interrupted(archive, out, lambda process: process.terminate())
    assert code == 143, stderr
    assert stderr.count("stopped and saved; to go on: revar train ") == 1, stderr
    assert "Traceback" not in stderr
    (checkpoint,) = out.glob("checkpoint-*")
    assert json.loads((checkpoint / "state.json").read_text())["epoch"] >= 2
    settings = dict(word.split("=") for word in LONG if "=" in word)
    for folder in (out, reference):
        train(str(archive), folder, epochs=14, settings=settings, resume=True, device="cpu")
    expected, found = (load_file(run / "weights.safetensors") for run in (reference, out))
    # In float32 the rounding of all steps adds up.
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0.05, atol=0.05, err_msg=name)


def test_a_signal_before_the_first_step_is_one_line(archive: Path, tmp_path: Path) -> None:
    process = start(archive, tmp_path / "run", *LONG, "--processes", "2")
    wait_until(lambda: len(children(process)) >= 2, process)
    process.terminate()
    code, stdout, stderr = finish(process)
    said = "stopped before its first step, nothing was lost: to go on use --resume\n"
    assert (code, stdout, stderr) == (143, "", said)


def test_the_processes_end_with_whoever_started_them(archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(archive, out, "--epochs", "5000", "--processes", "2")
    wait_until(lambda: epochs(out) >= 1, process)
    started = children(process)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while any(map(is_alive, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, started))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--processes", "0"], "--processes is 0, it must be at least 1"),
        (["--processes", "50000"], TOO_MANY),
        (
            ["--processes", "2", "--method", "revar-paper", "--set", "engine=double_backward"],
            "engine=double_backward runs in one process: use engine=forward_mode",
        ),
    ],
    ids=["none", "far too many", "engine"],
)
def test_what_cannot_be_is_refused_in_one_line(
    options: list[str], said: str, archive: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    code, stdout, stderr = finish(start(archive, out, *options))
    assert (code, stdout, stderr) == (2, "", f"error: {said}\n")
    assert not out.exists()


def test_what_broke_a_message_is_told() -> None:
    said = r"died or hangs \(Connection closed by peer\); the last"
    with pytest.raises(LostProcess, match=said), _watched():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer\nbut why")
    with pytest.raises(torch.OutOfMemoryError), _watched():
        raise torch.OutOfMemoryError("not theirs")


@pytest.mark.parametrize("one_of", [1, 2])
def test_a_process_of_several_ends_without_what_may_abort_it(one_of: int) -> None:
    """As threads of gloo do now and then; one that is alone ends as usual."""
    lines = "import atexit, os; atexit.register(os.abort); from revar.cli import main; main()"
    several = {"RANK": "0", "WORLD_SIZE": str(one_of)} if one_of > 1 else {}
    done = subprocess.run(
        [sys.executable, "-c", lines, "list", "scores"],
        env=ENVIRONMENT | several, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "softmax" in done.stdout
    assert done.returncode == (0 if one_of > 1 else -signal.SIGABRT)


def test_to_leave_waits_for_nobody_and_loses_no_word() -> None:
    text = """
import sys, threading
from revar.commands.processes import leave
threading.Thread(target=threading.Event().wait).start()
print("said")
print("told", file=sys.stderr)
leave(3)
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "said\n", "told\n")

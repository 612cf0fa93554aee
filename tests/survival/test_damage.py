"""Files that are cut, changed, swapped or gone are refused by name, or do not matter."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revar.commands.evaluate import evaluate
from revar.commands.predict import predict
from revar.commands.train import train
from revar.errors import InputError
from revar.estimator import SelectiveClassifier
from revar.run import RunFolder
from revar.store import Store
from revar.training import InterruptedRun
from support.problems import blobs

FAST = {"batch_size": "32", "test_passes": "3"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a finished run with a threshold, and one that was stopped in its second epoch."""
    root = tmp_path_factory.mktemp("damage")
    (x, y), (x_test, y_test) = blobs(), blobs(60, seed=1)
    np.savez(root / "data.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    np.savez(root / "new.npz", x=blobs(20, seed=2)[0])
    train(str(root / "data.npz"), root / "trained", epochs=2, settings=FAST)
    clf = SelectiveClassifier.load(root / "trained")
    clf.set_threshold(*blobs(50, seed=3), coverage=0.8)
    clf.save(root / "finished")
    for name in ("log.jsonl", "optimiser.safetensors", "state.json"):
        shutil.copy(root / "trained" / name, root / "finished" / name)
        Store(root / "finished").adopt(name)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 9

    with pytest.raises(InterruptedRun):
        train(str(root / "data.npz"), root / "stopped", epochs=2, settings=FAST, stop=stop)
    return root


def use(run: Path, home: Path) -> list[Any]:
    """Everything a user does with a run."""
    table = predict(run, str(home / "new.npz"))
    decided = SelectiveClassifier.load(run).predict_or_abstain(blobs(20, seed=4)[0])
    return [
        evaluate(run).figures,
        table.rows,
        table.note,
        decided.uncertainty.tolist(),
        decided.accepted.tolist(),
        [RunFolder(run).predictions(name).to_bytes() for name in ("train", "calibration")],
    ]


def flip(data: bytes, draw: random.Random) -> bytes:
    where = draw.randrange(len(data))
    return data[:where] + bytes([data[where] ^ (1 << draw.randrange(8))]) + data[where + 1 :]


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "one bit flipped": flip,
    "cut in half": lambda data, _: data[: len(data) // 2],
    "cut by a byte": lambda data, _: data[:-1],
    "emptied": lambda *_: b"",
    "lengthened": lambda data, _: data + b"\0",
}


def attempts(run: Path, draw: random.Random) -> list[tuple[str, str, Callable[[], None]]]:
    """(file, what, do it) for every file of a run."""
    names = sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file())
    names.remove(".lock")
    found: list[tuple[str, str, Callable[[], None]]] = []
    for name in names:
        path = run / name
        data = path.read_bytes()
        for what, damage in DAMAGE.items():
            for _ in range(4 if what == "one bit flipped" else 1):
                new = damage(data, draw)
                found.append((name, what, lambda path=path, new=new: path.write_bytes(new)))  # type: ignore[misc]
        other = run / draw.choice([n for n in names if n != name])

        def swap(path: Path = path, other: Path = other) -> None:
            mine, theirs = path.read_bytes(), other.read_bytes()
            path.write_bytes(theirs)
            other.write_bytes(mine)

        found.append((name, f"swapped with {other.name}", swap))
        found.append((name, "deleted", path.unlink))
    return found


def test_a_damaged_file_of_a_finished_run_is_refused_by_name_or_harmless(
    home: Path, tmp_path: Path
) -> None:
    expected = use(home / "finished", home)
    draw = random.Random(0)
    refused = harmless = 0
    plan = attempts(home / "finished", draw)
    assert len(plan) > 120
    for number in range(len(plan)):
        run = tmp_path / str(number)
        shutil.copytree(home / "finished", run)
        # The same plan, on the copy.
        name, what, act = attempts(run, random.Random(number))[number]
        act()
        try:
            same = use(run, home) == expected
        except InputError as error:
            said = str(error)
            assert "\n" not in said
            assert str(run) in said, f"{name} {what}: {said}"
            refused += 1
        else:
            assert same, f"{name} {what}: used, with another result"
            harmless += 1
        shutil.rmtree(run)
    assert refused > harmless > 0


@pytest.mark.parametrize("file", ["weights.safetensors", "predictions/test.safetensors"])
def test_the_message_names_the_file(file: str, home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / "finished", run)
    (run / file).write_bytes(flip((run / file).read_bytes(), random.Random(1)))
    with pytest.raises(InputError, match=f'"{run / file}" is damaged'):
        use(run, home)


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("file", ["weights.safetensors", "optimiser.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_refused_by_name(
    file: str, what: str, home: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / "stopped", run)
    (checkpoint,) = run.glob("checkpoint-*")
    target = checkpoint / file
    target.write_bytes(DAMAGE[what](target.read_bytes(), random.Random(0)))
    with pytest.raises(InputError, match=f'"{target}" is damaged'):
        train(str(home / "data.npz"), run, epochs=2, settings=FAST, resume=True)
    assert not RunFolder(run).finished


def test_a_checkpoint_without_its_manifest_is_not_trusted(home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / "stopped", run)
    (checkpoint,) = run.glob("checkpoint-*")
    (checkpoint / "manifest.json").unlink()
    with pytest.raises(InputError, match=r'manifest\.json" is missing'):
        train(str(home / "data.npz"), run, epochs=2, settings=FAST, resume=True)


def test_resuming_a_finished_run_with_a_damaged_file_names_it(home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / "trained", run)
    (run / "metrics.csv").unlink()
    with pytest.raises(InputError, match=r'metrics\.csv" is missing'):
        train(str(home / "data.npz"), run, epochs=2, settings=FAST, resume=True)


def test_a_file_of_another_run_is_refused(home: Path, tmp_path: Path) -> None:
    """Both are whole, but they do not belong together."""
    run = tmp_path / "run"
    shutil.copytree(home / "finished", run)
    other = tmp_path / "other"
    train(str(home / "data.npz"), other, epochs=2, settings=FAST, seed=1)
    shutil.copy(other / "weights.safetensors", run / "weights.safetensors")
    with pytest.raises(InputError, match=r'weights\.safetensors" is damaged'):
        use(run, home)

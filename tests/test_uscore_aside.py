"""The report on data that were kept aside, tried on imitations of them."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from revar.errors import InputError
from revar.tables.places import scale_of
from support.layouts import sheet, table
from support.scripts import scripts
from test_uscore_study import write

ROOT = Path(__file__).parents[1]
SETS = {
    "heart": {"test": 12, "hungarian": 9, "switzerland": 8, "va": 7},
    "usps": {"test": 20, "mnist": 15},
    "pacs": {"test": 14, "cartoon": 10, "sketch": 11},
}
"""Examples in the test sets of the imitations."""
TRAIN = {"heart": 48, "usps": 80, "pacs": 56}


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The scripts of the study."""
    with scripts("uscore", "tasks", "store", "run", "tests", "report", "aside") as found:
        yield found


def idx(path: Path, array: NDArray[np.uint8]) -> None:
    head = bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))


@pytest.fixture
def data(tmp_path: Path, study: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Tiny files in the places of those that were kept aside."""
    root, rng = tmp_path / "data", np.random.default_rng(0)
    for hospital, n in (("cleveland", 60), ("hungarian", 9), ("switzerland", 8), ("va", 7)):
        rows = [(*(f"{v:.2f}" for v in rng.normal(k % 2, 1, 3)), "?", k % 2) for k in range(n)]
        table(root / "heart_disease" / f"processed.{hospital}.csv", "age,chol,ca,thal,target", rows)
    (root / "digits").mkdir()
    images = {n: rng.integers(0, 256, (n, 16, 16), dtype=np.uint8) for n in (80, 20)}
    np.savez(
        root / "digits" / "usps.npz", x_train=images[80], y_train=np.arange(80) % 10,
        x_test=images[20], y_test=np.arange(20) % 10,
    )  # fmt: skip
    mnist = root / "digits"
    shape = (15, 28, 28)
    idx(mnist / "mnist-t10k-images-idx3-ubyte.gz", rng.integers(0, 256, shape, dtype=np.uint8))
    idx(mnist / "mnist-t10k-labels-idx1-ubyte.gz", (np.arange(15) % 10).astype(np.uint8))
    listed = []
    for domain, n in (("photo", 70), ("art_painting", 7), ("cartoon", 10), ("sketch", 11)):
        sheet(root / "pacs" / f"{domain}.jpg", n, 64, seed=n)
        listed += [(f"{domain}.jpg", k, "abcdefg"[k % 7], f"{domain}/{k}") for k in range(n)]
    table(root / "pacs" / "labels.csv", "file,index,class,original", listed)
    monkeypatch.setenv("REVAR_DATA", str(root))
    study.run.read_once.cache_clear()
    yield root
    study.run.read_once.cache_clear()


@pytest.fixture
def quick(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of tiny nets."""
    for name, folder in study.aside.ASIDE.items():
        less = {"backbone": "mlp", "settings": (("batch_size", "16"),), "epochs": 2}
        setting = replace(folder.place, **less)
        monkeypatch.setitem(study.aside.ASIDE, name, replace(folder, place=setting))


@pytest.mark.usefixtures("data", "quick")
@pytest.mark.filterwarnings("ignore::revar.errors.DataWarning")
def test_from_training_to_the_report(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, home, told = tmp_path / "far", tmp_path / "home", tmp_path / "told"
    jobs = study.aside.jobs_aside(list(SETS), 1)
    assert len(jobs) == 9
    for job in jobs:
        assert study.run.one_run(job, out, "cpu", "abc1234").reason is None
        assert study.run.is_finished(job, out)
    runs = {(run.folder, run.way): run for run in study.store.runs_in(out)}
    for (folder, way), run in runs.items():
        assert run.about["made"]["commit"] == "abc1234"
        sizes, whole = run.about["sizes"], runs[folder, "erm-all"].about["sizes"]
        assert (
            sum(sizes.values()) == whole["train"] == {"heart": 48, "usps": 80, "pacs": 56}[folder]
        )
        assert sizes["meta"] == 0
        assert (sizes["tune"] > 0) is (way != "erm-all")
        found = {name: len(run.correct(name, "softmax")) for name in run.sets if name != "tune"}
        assert found == SETS[folder]
    # Other domains would be another run.
    pacs = next(job for job in jobs if job.folder == "pacs")
    other = replace(pacs, other=replace(pacs.other, domains={"cartoon": "pacs-sketch"}))
    with pytest.raises(InputError, match="was trained with other settings"):
        study.run.is_finished(other, out)

    main = study.aside.main
    assert main([str(out), "--pack", "1"]) == 0
    assert main([str(home), "--unpack", str(out / "parts" / "part-0.zip")]) == 0
    capsys.readouterr()
    assert main([str(home), "--table", str(told), "--resamples", "40", "--commit", "abc1234"]) == 0
    said = capsys.readouterr().out
    assert said == (told / "aside.md").read_text(encoding="utf-8")
    assert "**81 runs are missing.**" in said
    assert "* pacs: 3 runs, " in said
    report = json.loads((told / "aside.json").read_text(encoding="utf-8"))
    assert (report["commit"], report["command"][:2]) == ("abc1234", ["uscore_aside.py", "home"])
    assert str(tmp_path) not in "".join(path.read_text(encoding="utf-8") for path in told.iterdir())
    asked = {
        f if s == "test" else f"{f}-{s}": n for f, sets in SETS.items() for s, n in sets.items()
    }
    for name, n in asked.items():
        against = report["tasks"].pop(name)
        assert set(against) == {"same classifier", "erm+meta", "erm-all"}
        assert all(one["drawn_as_wholes"] == n for one in against.values())
    assert not report["tasks"]
    rows = list(csv.DictReader((told / "aside.csv").read_text(encoding="utf-8").splitlines()))
    ours = {r["score"] for r in rows if (r["task"], r["way"]) == ("pacs-sketch", "trajectory+meta")}
    assert ours == {"softmax", "uscore", "fused", "dropout_entropy", "mcd", "tta_softmax"}
    assert len((told / "aside.jsonl").read_text(encoding="utf-8").splitlines()) == 9


def test_what_is_asked(study: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    jobs = study.aside.jobs_aside(list(SETS))
    count = {name: sum(job.folder == name for job in jobs) for name in SETS}
    assert count == {"heart": 60, "usps": 15, "pacs": 15}
    assert {(job.folder, job.seed) for job in jobs[:9]} == {(name, 0) for name in SETS}
    cells = {(job.folder, job.way.name): study.run.cell_of(job) for job in jobs[:9]}
    for name in SETS:
        alike = [
            (c.data, c.backbone, c.recipe().budget) for (f, _), c in cells.items() if f == name
        ]
        assert len(alike) == 3
        assert all(one == alike[0] for one in alike)
    photos, pacs = scale_of("small").places["imagenet-r"].setting, cells["pacs", "erm-all"]
    assert (pacs.backbone, pacs.epochs, pacs.settings) == (
        "tf_efficientnet_lite0", 12, photos.settings
    )  # fmt: skip
    # The method as users get it, and nothing of this in the six tasks.
    assert all(job.way.settings == () for job in jobs)
    assert not set(SETS) & {*study.tasks.FOLDERS, *study.tasks.TASKS, *study.tasks.BESIDE_TASKS}
    assert study.aside.main([str(tmp_path), "--only", "heart", "--plan"]) == 0
    assert "60 of 60 runs are missing" in capsys.readouterr().out


def planted(study: Any, out: Path, gain: float) -> None:
    """USPS runs, their accuracy alike, in which our score has less noise than softmax, or more."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        truth = rng.normal(-1.5, 1.5, 600)
        correct = rng.random(600) > 1 / (1 + np.exp(-truth))

        def score(noise: float, rng: Any = rng, truth: Any = truth) -> Any:
            return truth + rng.normal(0, noise, len(truth))

        for way, scores in {
            "trajectory+meta": {"softmax": score(1.5), "fused": score(1.5 - gain)},
            "erm-all": {"softmax": score(1.5)},
        }.items():
            scored = study.store.Scored(correct=correct, scores=scores)
            made = {"commit": "", "date": "2026-01-02T03:04", "torch": "2", "processor": ""}
            write(
                study, out, "usps", way, seed, {"test": scored, "mnist": scored},
                made={**made, "command": ["uscore_aside.py"]},
            )  # fmt: skip


@pytest.mark.parametrize("gain", [1.2, -2.5])
def test_a_planted_difference_is_told(study: Any, tmp_path: Path, gain: float) -> None:
    planted(study, tmp_path / "study", gain)
    arguments = [str(tmp_path / "study"), "--table", str(tmp_path), "--resamples", "200"]
    assert study.aside.main(arguments) == 0
    tasks = json.loads((tmp_path / "aside.json").read_text(encoding="utf-8"))["tasks"]
    for one in (tasks[name][who] for name in ("usps", "usps-mnist") for who in tasks[name]):
        assert one["low"] * gain > 0 < one["high"] * gain
    assert not any(tasks[name] for name in tasks if not name.startswith("usps"))
    one = tasks["usps-mnist"]["erm-all"]
    line = f"| usps-mnist | erm-all | {one['difference']:+.2f} | {one['low']:+.2f} to "
    assert line in (tmp_path / "aside.md").read_text(encoding="utf-8")


def test_runs_of_the_study_are_no_part_of_it(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted(study, tmp_path, 1.0)
    (tmp_path / "usps").rename(tmp_path / "cifar10")
    assert study.aside.main([str(tmp_path), "--table", str(tmp_path / "told")]) == 2
    assert "has runs of something else: cifar10" in capsys.readouterr().err

"""The study of the U-Score: its runs, and tables that find what was planted and nothing else."""

from __future__ import annotations

import copy
import csv
import itertools
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from revar.data.source import Part, Source
from revar.errors import InputError
from revar.metrics import auarc
from revar.predictions import Predictions
from revar.scores.learned import Fitted, fit_fusion
from revar.tables import sources
from support.scripts import driven, scripts

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The scripts of the study."""
    with scripts("uscore", "tasks", "store", "run", "tests", "report", main="uscore") as found:
        yield found


def rows_in(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))


def test_a_field_that_is_younger_than_a_run_leaves_it_finished(study: Any, tmp_path: Path) -> None:
    """Only in recipes, and only if it is new: a value that differs, or a field gone, is told of."""
    job = study.tasks.Job(
        folder="cifar10n-worst", way=study.tasks.way_named("trajectory"), seed=0, scale="smoke"
    )

    def finished(asked: dict[str, Any]) -> bool:
        scored = study.store.Scored(correct=np.array([True]), scores={"softmax": np.zeros(1)})
        about = {"asked": asked, "own": "uscore", "default": "softmax"}
        study.store.write_run(job.file(tmp_path), about, {"tune": scored})
        answer: bool = study.run.is_finished(job, tmp_path)
        return answer

    asked = study.run.asked(job)
    assert finished(asked)
    older = copy.deepcopy(asked)
    del older["recipe"]["method"]["default_score"], older["recipe"]["budget"]["graphs"]
    assert finished(older)
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda kept: kept["recipe"]["method"].update(early=2.0),
        lambda kept: kept["recipe"]["method"].update(gone=1),
        lambda kept: kept.pop("member"),
    ]
    for change in changes:
        other = copy.deepcopy(asked)
        change(other)
        with pytest.raises(InputError, match="was trained with other settings"):
            finished(other)


@pytest.mark.parametrize("folder", ["cifar10n-worst", "eyepacs"])
def test_a_method_may_train_on_its_meta_set(study: Any, tmp_path: Path, folder: str) -> None:
    """Taken off the training data, or a part of its own; the tune set is left alone."""
    plain, more = (
        study.tasks.Job(folder=folder, way=study.tasks.way_named(name), seed=0, scale="smoke")
        for name in ("erm", "erm+meta")
    )
    sizes = {}
    for job in (plain, more):
        assert study.run.one_run(job, tmp_path, "cpu").reason is None
        sizes[job] = study.store.Run(job.file(tmp_path)).about["sizes"]
    assert sizes[more]["train"] == sizes[plain]["train"] + sizes[plain]["meta"]
    assert sizes[more]["tune"] == sizes[plain]["tune"]
    assert sizes[more]["meta"] == 0 < sizes[plain]["meta"]


def test_both_scripts_from_training_to_tables(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(main: Any, *arguments: object) -> tuple[int, str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    out, home, told = tmp_path / "far", tmp_path / "home", tmp_path / "told"
    early = tmp_path / "pilot.json"
    early.write_text(json.dumps({
        "early": {"method": "trajectory", "start": 0.2},
        "never": {"method": "trajectory", "start_epochs": 99},
    }))  # fmt: skip
    plan = ["--scale", "smoke", "--tasks", "cifar10n-worst", "eyepacs-aptos", "--seeds", "1"]
    plan += ["--device", "cpu", "--workers", "2", "--ways", "erm", "erm-all"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "uscore.py"), str(out), *plan, "--variants", str(early)],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "8 of 8 runs are missing" in done.stdout
    assert "6 finished, 2 failed" in done.stdout
    assert "test" not in done.stdout
    for folder in ("cifar10n-worst", "eyepacs"):
        made = {path.name for path in (out / folder).iterdir()}
        assert made == {"erm-0.npz", "erm-all-0.npz", "early-0.npz", "never-0.txt"}
        assert "nothing would be averaged" in (out / folder / "never-0.txt").read_text()

    (out / "eyepacs" / "erm-0.npz").unlink()
    train, report = study.main.main, study.report.main
    _, said = here(train, out, *plan, "--variants", early, "--plan")
    missing = {line.split("  ")[-1] for line in said.splitlines()[1:]}
    assert missing == {"eyepacs erm 0", "eyepacs never 0", "cifar10n-worst never 0"}

    early.write_text(json.dumps({"early": {"method": "trajectory", "start": 0.3}}))
    code, said = here(train, out, *plan, "--variants", early)
    assert (code, "was trained with other settings" in said) == (2, True)

    assert here(train, out, "--pack", 8)[0] == 0
    parts = sorted((out / "parts").glob("*.zip"))
    assert here(train, home, "--unpack", *parts) == (0, "5 runs are new, 0 were there\n")
    assert "| early | fused |" in here(report, home, "--out", told, "--select")[1]
    code, said = here(report, home, "--out", told, "--ours", "early:fused", "--resamples", 50)
    assert code == 0, said
    tests = json.loads((told / "tests.json").read_text())
    assert set(tests["tasks"]) == {"cifar10n-worst", "eyepacs", "eyepacs-aptos", "eyepacs-deepdrid"}
    assert set(tests["tasks"]["cifar10n-worst"]["against"]) == {"same classifier", "erm", "erm-all"}
    assert set(tests["tasks"]["eyepacs"]["against"]) == {"same classifier", "erm-all"}
    rows = rows_in(told / "runs.csv")
    assert {row["task"] for row in rows} == set(tests["tasks"])
    assert all((told / f"{name}.png").stat().st_size > 5_000 for name in ("curves", "differences"))
    recipes = [json.loads(line) for line in (told / "recipes.jsonl").read_text().splitlines()]
    # The folder of the runs by its name only: where it lay concerns nobody.
    assert {run["made"]["command"][1] for run in recipes} == {"far"}
    found = {(r["folder"], r["way"]): r for r in recipes}
    assert found["eyepacs", "early"]["recipe"]["method"]["start"] == 0.2
    sizes = {way: found["cifar10n-worst", way]["sizes"] for way in ("erm", "erm-all")}
    assert sizes["erm-all"] == {"train": sum(sizes["erm"].values()), "meta": 0, "tune": 0}


def test_a_worker_that_dies_dies_alone(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(
        "import os\nfrom pathlib import Path\nfrom uscore_run import Told\n"
        "def work(job):\n"
        "    mark = Path('begun') / job.folder / str(os.getpid())\n"
        "    mark.parent.mkdir(parents=True, exist_ok=True)\n    mark.touch()\n"
        "    begun = len(list(mark.parent.iterdir()))\n"
        "    if job.folder == 'eyepacs' or (job.folder == 'cifar10' and begun == 1):\n"
        "        os._exit(9)\n"
        "    return Told(job=job)\n"
    )
    printed = driven(
        tmp_path,
        "from pathlib import Path\nfrom dying import work\nfrom side_by_side import run_all\n"
        "from uscore import died\nfrom uscore_run import start_worker\n"
        "from uscore_tasks import FOLDERS, Job, way_named\n"
        "if __name__ == '__main__':\n"
        "    jobs = [Job(folder=name, way=way_named('erm'), seed=0) for name in FOLDERS]\n"
        "    tell = lambda told: print(told.job.folder, told.reason, sep=': ')\n"
        "    note = lambda job: died(job, Path('.'))\n"
        "    run_all(jobs, work, 2, tell, note, start_worker)\n",
    )
    reason = "its worker died 3 times (killed, or memory?)"
    told = dict(line.split(": ") for line in printed.splitlines())
    assert told.pop("eyepacs") == reason
    assert list(told.values()) == ["None"] * 4
    assert (tmp_path / "eyepacs" / "erm-0.txt").read_text() == f"{reason}\n"
    begun = {path.name: len(list(path.iterdir())) for path in (tmp_path / "begun").iterdir()}
    assert begun == {**dict.fromkeys(told, 1), "cifar10": 2, "eyepacs": 3}


def test_jobs_are_shared_and_begin_with_the_longest(study: Any) -> None:
    tasks = study.tasks

    def jobs(*names: str, seeds: int = 2, **more: Any) -> list[Any]:
        options = {"clean_meta": False, "scale": "small", **more}
        found: list[Any] = tasks.jobs_of(names, tasks.standard_ways(), seeds, **options)
        return found

    assert len(jobs("eyepacs")) == len(jobs("eyepacs", "eyepacs-aptos"))
    every = jobs(*tasks.TASKS)
    assert [job.seed for job in every] == sorted(job.seed for job in every)
    of_first = [job.seconds for job in every if job.seed == 0]
    assert of_first == sorted(of_first, reverse=True)
    members = {(job.folder, job.seed) for job in every if job.way.member}
    assert members == {(folder, seed) for folder in tasks.FOLDERS for seed in (0, 1)}
    clean = jobs(*tasks.TASKS, clean_meta=True)
    assert not any(job.way.member for job in clean)
    assert {job.folder for job in clean} == {"cifar10n-worst", "cifar10-instance20"}
    assert clean[0].file(Path()).parent.name.endswith("+clean-meta")
    assert not {"history", "revar-paper", "ibr"} & {job.way.method for job in every}
    with pytest.raises(InputError, match="unknown task"):
        jobs("cifar")
    with pytest.raises(InputError, match="for tasks with noisy labels"):
        jobs("cifar10", clean_meta=True)


def test_a_list_of_runs(study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "list.txt"
    file.write_text("eyepacs fsr-full 3\ncifar10 erm-m2 1\neyepacs fsr-full 3\n")
    jobs = study.tasks.listed(file, clean_meta=False, scale="small")
    assert list(map(str, jobs)) == ["eyepacs fsr-full 3", "cifar10 erm-m2 1"]
    command = [str(tmp_path / "out"), "--jobs", str(file), "--plan"]
    assert study.main.main(command) == 0
    assert "2 of 2 runs are missing" in capsys.readouterr().out
    for line in ("eyepacs fsr-full", "eyes erm 0", "eyepacs nothing 0", "eyepacs erm -1", ""):
        file.write_text(line)
        assert study.main.main(command) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_variants_that_cannot_be_used_are_named(study: Any, tmp_path: Path) -> None:
    file = tmp_path / "pilot.json"
    for content, said in (
        ('{"a/b": {"method": "erm"}}', "use letters"),
        ('{"erm": {"method": "erm"}}', "standard ways"),
        ('{"early": {"start": 0.2}}', 'no "method"'),
        ('{"early": {"method": "trajektory"}}', 'did you mean "trajectory"'),
        ("{", "holds no variants"),
    ):
        file.write_text(content)
        with pytest.raises(InputError, match=said):
            study.tasks.variants(file)


def _labelled(n: int, first: int = 0) -> Part:
    return Part(np.arange(first, first + n)[:, None], np.arange(n) % 2)


def test_everything_is_train_meta_and_tune(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Source(_labelled(6), _labelled(4, 10), {"test": _labelled(4, 30)},
                   splits={"tune": _labelled(2, 20)})  # fmt: skip
    monkeypatch.setattr(study.run, "source_of", lambda *_: given)
    job = study.tasks.Job(folder="eyepacs", way=study.tasks.way_named("erm-all"), seed=0)
    cell = study.run.cell_of(job)
    assert cell.data.tests == ("test", "aptos", "deepdrid")
    found = study.run.source_for(job, cell, cell.recipe())
    assert found.train.x[:, 0].tolist() == [*range(6), *range(10, 14), 20, 21]
    assert (found.meta, dict(found.splits)) == (None, {})
    plain = replace(job, way=study.tasks.way_named("erm"))
    assert study.run.source_for(plain, cell, cell.recipe()) is given


def test_a_clean_meta_set_of_labels_by_people(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 25_000
    true = np.arange(n) % 10
    wrong = np.random.default_rng(0).random(n) < 0.4
    labels = {"cifar10": true, "cifar10n-worst": np.where(wrong, (true + 1) % 10, true)}

    def read(name: str) -> Source:
        rows = np.arange(n)[:, None]
        return Source(Part(rows, labels[name]), tests={"test": Part(rows[:10], true[:10])})

    monkeypatch.setattr(sources, "load_source", read)
    monkeypatch.setattr(study.run, "read_once", read)
    job = study.tasks.Job(
        folder="cifar10n-worst", way=study.tasks.way_named("erm"), seed=3, clean_meta=True
    )
    cell = study.run.cell_of(job)
    found = study.run.source_for(job, cell, cell.recipe())
    noisy = study.run.source_for(replace(job, clean_meta=False), cell, cell.recipe())
    meta, train = found.meta.x[:, 0], found.train.x[:, 0]
    assert len(meta) == 2_000
    assert (found.meta.y == true[meta]).all()
    assert (found.train.y == labels["cifar10n-worst"][train]).all()
    assert np.mean(found.train.y != true[train]) == pytest.approx(0.4, abs=0.02)
    assert sorted([*meta, *train]) == sorted(noisy.train.x[:, 0])


def test_the_fused_score_of_tune_data_has_not_seen_its_labels(study: Any) -> None:
    rng, n = np.random.default_rng(0), 200
    logits = rng.normal(0, 2, (n, 3))
    labels = (logits / 2 + rng.gumbel(size=(n, 3))).argmax(1)
    columns = {"uscore": rng.normal(size=n)}
    tune = Predictions(index=np.arange(n), logits=logits, labels=labels, columns=columns)
    fitted = Fitted(default_score="fused")
    fitted = replace(fitted, fusion=fit_fusion(tune, fitted))
    patients = np.arange(n) // 2
    before = study.run.crossed(tune, fitted, patients)
    other = labels.copy()
    other[:2] = (other[:2] + 1) % 3
    after = study.run.crossed(replace(tune, labels=other), fitted, patients)
    assert after[:2] == pytest.approx(before[:2])
    assert (after != before).any()


def write(
    study: Any, out: Path, folder: str, way: str, seed: int, sets: dict[str, Any], **about: Any
) -> None:
    told = {
        "method": way, "own": "softmax", "default": "softmax", "recipe": {}, "digest": "",
        "fusion": None, "sizes": {}, "made": {"command": ["uscore.py", "/far/away/out"]},
        "seconds": 1.0, **about,
    }  # fmt: skip
    study.store.write_run(out / folder / f"{way}-{seed}.npz", told, sets)


def planted(study: Any, out: Path, noise: float, *, n: int = 1500, seeds: int = 3) -> None:
    """Runs of all tasks in which the fused score is that much noisier than the truth."""
    for number, (name, folder) in enumerate(study.tasks.FOLDERS.items()):
        shared = np.random.default_rng(number)
        truth = shared.normal(-1.5, 1.5, n)
        patients = np.arange(n) // 2 if name == "eyepacs" else None
        for seed in range(seeds):
            rng = np.random.default_rng((number, seed))
            correct = rng.random(n) > 1 / (1 + np.exp(-truth))
            softmax = truth + rng.normal(0, 1.5, n)
            fused = softmax if noise == 1.5 else truth + rng.normal(0, noise, n)
            for way, scores in {
                "trajectory": {"softmax": softmax, "fused": fused},
                "erm": {"softmax": truth + rng.normal(0, 1.5, n)},
                "erm-all": {"softmax": truth + rng.normal(0, 1.5, n)},
                "sat": {"softmax": truth + rng.normal(0, 3, n)},
            }.items():
                scored = study.store.Scored(correct=correct, scores=scores, patients=patients)
                sets = dict.fromkeys(folder.sets, scored) | {"tune": scored}
                if way == "erm-all":
                    del sets["tune"]
                default = "fused" if "fused" in scores else "softmax"
                write(study, out, name, way, seed, sets, default=default)


def reported(study: Any, tmp_path: Path, noise: float) -> dict[str, Any]:
    planted(study, tmp_path / "study", noise)
    arguments = [str(tmp_path / "study"), "--out", str(tmp_path / "told"), "--resamples", "300"]
    assert study.report.main(arguments) == 0
    found: dict[str, Any] = json.loads((tmp_path / "told" / "tests.json").read_text())["tasks"]
    return found


def test_a_planted_gain_is_found(study: Any, tmp_path: Path) -> None:
    tasks = reported(study, tmp_path, 0.3)
    for name in ("cifar10n-worst", "cifar10-instance20", "eyepacs-aptos"):
        assert 1 < tasks[name]["against"]["same classifier"]["difference"] < 5
        assert tasks[name]["all"]["p_holm"] == pytest.approx(3 / 301)
        assert tasks[name]["met"] is True
    assert all(tasks[name]["met"] for name in study.tasks.TASKS)
    assert "met" not in tasks["eyepacs-deepdrid"]
    best = tasks["cifar10"]["best_comparable"]
    assert best["name"] == "erm:softmax"
    assert best["ours_highest"] is True
    run = study.store.Run(tmp_path / "study" / "cifar10" / "trajectory-0.npz")
    default = run.uncertainty("test", "default"), run.correct("test", "default")
    assert run.figures("test")["fused"]["auarc"] == auarc(*default)
    assert tasks["eyepacs"]["against"]["erm"]["drawn_as_wholes"] == 750
    assert tasks["cifar10"]["against"]["erm"]["drawn_as_wholes"] == 1500


def test_equal_scores_are_no_gain(study: Any, tmp_path: Path) -> None:
    tasks = reported(study, tmp_path, 1.5)
    for name, task in study.tasks.TASKS.items():
        same = tasks[name]["against"]["same classifier"]
        assert (same["difference"], same["low"], same["p"]) == (0, 0, 0.5)
        assert same["met"] is (task.goal == "not inferior")
        assert not (task.goal == "superior" and tasks[name]["met"])


def test_a_planted_loss_is_inferior(study: Any, tmp_path: Path) -> None:
    tasks = reported(study, tmp_path, 4.0)
    assert not any(tasks[name]["met"] for name in study.tasks.TASKS)
    assert tasks["cifar10"]["against"]["erm"]["p"] > 0.99
    assert tasks["cifar10"]["best_comparable"]["ours_highest"] is False


def test_selection_opens_no_test_set(study: Any, tmp_path: Path) -> None:
    planted(study, tmp_path / "study", 0.3, n=400, seeds=2)
    for path in (tmp_path / "study").glob("*/*.npz"):
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                opened = name.startswith(("tune/", "about"))
                archive.writestr(name, content if opened else b"no array")
    arguments = [str(tmp_path / "study"), "--out", str(tmp_path / "told")]
    assert study.report.main([*arguments, "--select"]) == 0
    rows = rows_in(tmp_path / "told" / "select.csv")
    assert (rows[0]["way"], rows[0]["score"]) == ("trajectory", "fused")
    assert (rows[-1]["way"], float(rows[-1]["mean"]) < float(rows[0]["mean"])) == ("sat", True)
    assert study.report.main(arguments) == 2


def test_ways_that_lack_a_run_are_not_ranked(study: Any, tmp_path: Path) -> None:
    planted(study, tmp_path, 0.3, n=300, seeds=2)
    (tmp_path / "cifar10" / "trajectory-1.npz").unlink()
    table = study.report.selection(study.report.by_folder(tmp_path))
    assert [(line["way"], np.isnan(line["mean"])) for line in table] == [
        ("erm", False), ("sat", False), ("trajectory", True), ("trajectory", True)
    ]  # fmt: skip


def test_holm_counts_the_tests_that_were_meant(study: Any) -> None:
    names = ("cifar10n-worst", "cifar10-instance20", "eyepacs-aptos")

    def judged(p_values: dict[str, float]) -> list[float]:
        found: dict[str, Any] = {n: {"against": {"erm": {"p": p}}} for n, p in p_values.items()}
        study.tests.judge(study.tasks.TASKS, found)
        return [result["all"]["p_holm"] for result in found.values()]

    three = judged(dict(zip(names, (0.01, 0.04, 0.02), strict=True)))
    assert three == pytest.approx([0.03, 0.04, 0.04])
    assert judged({names[0]: 0.02}) == pytest.approx([0.06])


def test_ensembles_average_probabilities(study: Any, tmp_path: Path) -> None:
    """Of two seeds; a third has four members only, and is none."""
    labels = np.array([0, 1, 1, 0])
    first = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
    second = np.array([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9], [0.2, 0.8]])

    def scored(p: NDArray[np.float64]) -> Any:
        return study.store.Scored(
            correct=p.argmax(1) == labels, scores={"softmax": -p.max(1)}, labels=labels,
            log_probabilities=np.log(p),
        )  # fmt: skip

    for seed, way in itertools.product(range(3), study.tests.ENSEMBLE):
        p = first if way in ("erm", "erm-m1") else second
        if (seed, way) != (2, "erm-m4"):
            write(study, tmp_path, "cifar10", way, seed, {"test": scored(p)}, method="erm")
    for seed in range(3):
        without = replace(scored(second), log_probabilities=None)
        write(study, tmp_path, "cifar10", "sat", seed, {"test": without})
    runs = study.report.by_folder(tmp_path)["cifar10"]
    found = study.tests.ensembles(runs, "test")
    assert list(found) == [0, 1]
    uncertainty, correct = found[1]
    mean = ((2 * first + 3 * second) / 5)[np.arange(4), [0, 1, 1, 1]]
    assert correct.tolist() == [True, True, True, False]
    assert uncertainty == pytest.approx(np.log(1 - mean) - np.log(mean), abs=2e-3)
    rows, figures = study.report.rows_of(runs, "test"), study.tests.ensemble_figures(runs, "test")
    line = next(one for one in study.report.table_of(rows, figures) if one["beside"])
    assert (line["way"], line["seeds"]) == ("ensemble of five", 2)
    closed = study.tests.gap_closed(rows, study.tests.Choice("sat", "softmax"), figures)
    whole = 100 * auarc(uncertainty, correct)
    one, other = (100 * auarc(-p.max(1), p.argmax(1) == labels) for p in (first, second))
    single = (2 * one + 3 * other) / 5
    assert closed["ensemble"] == pytest.approx(whole)
    assert closed["share"] == pytest.approx((other - single) / (whole - single))
    assert closed["seeds"] == [0, 1]
    more = study.tests.Choice("sat+meta", "softmax")
    assert study.tests.gap_closed(rows, more, figures)["way"] == "sat"
    assert study.tests.gap_closed(rows, study.tests.Choice("sat-all", "softmax"), figures) is None
    assert list(study.tests.references(more)) == ["same classifier", "erm+meta", "erm-all"]
    every = study.tests.Choice("sat-all", "softmax")
    assert list(study.tests.references(every)) == ["same classifier", "erm-all"]


def test_a_report_goes_on_from_an_earlier_one(study: Any, tmp_path: Path) -> None:
    """Runs that are only known by it stand in the tables; tests of the setting are taken over."""
    earlier, whole, told = (tmp_path / name for name in ("earlier", "whole", "told"))
    planted(study, tmp_path / "study", 0.3, n=300, seeds=2)

    def report(of: Path, to: Path, *more: str) -> int:
        words = [str(of), "--out", str(to), "--resamples", "50", *more]
        return int(study.report.main(words))

    assert report(tmp_path / "study", earlier) == 0
    for path in (tmp_path / "study").glob("*/*.npz"):
        if not path.name.startswith("sat"):
            path.unlink()
    rng = np.random.default_rng(0)
    for seed in (1, 2):
        scored = study.store.Scored(
            correct=rng.random(300) > 0.2, scores={"softmax": rng.random(300)}
        )
        write(study, tmp_path / "study", "cifar10", "sat", seed, {"test": scored})
    assert report(tmp_path / "study", whole) == 2
    assert report(tmp_path / "study", whole, "--known", str(tmp_path)) == 2
    assert report(tmp_path / "study", told, "--known", str(earlier)) == 0
    before, after = (json.loads((d / "tests.json").read_text())["tasks"] for d in (earlier, told))
    assert {n: t["against"] for n, t in after.items()} == {
        n: t["against"] for n, t in before.items()
    }
    assert not (told / "curves.png").exists()
    old, new = (rows_in(d / "tables.csv") for d in (earlier, told))

    def seeds(rows: list[dict[str, str]], task: str, way: str) -> set[str]:
        return {row["seeds"] for row in rows if (row["task"], row["way"]) == (task, way)}

    assert (seeds(old, "cifar10", "sat"), seeds(new, "cifar10", "sat")) == ({"2"}, {"3"})

    def others(rows: list[dict[str, str]]) -> list[dict[str, str]]:
        return [row for row in rows if (row["task"], row["way"]) != ("cifar10", "sat")]

    assert others(new) == others(old)
    lines = (told / "recipes.jsonl").read_text().splitlines()
    assert len(lines) == 1 + len((earlier / "recipes.jsonl").read_text().splitlines())
    # Another setting has no tests there.
    known = ("--known", str(earlier), "--ours", "trajectory:softmax")
    assert report(tmp_path / "study", whole, *known) == 2


def test_tests_of_fewer_seeds_do_not_replace_those_of_more(study: Any, tmp_path: Path) -> None:
    """Some of the runs again, and others new: each test is of as many seeds as are known."""
    out, earlier, told = (tmp_path / name for name in ("study", "earlier", "told"))

    def report(to: Path, *more: str) -> dict[str, Any]:
        words = [str(out), "--out", str(to), "--resamples", "50", *more]
        assert study.report.main(words) == 0
        return dict(json.loads((to / "tests.json").read_text())["tasks"])

    planted(study, out, 0.3, n=300, seeds=2)
    before = report(earlier)
    for path in out.glob("cifar10/*-1.npz"):
        path.unlink()
    fewer = report(told, "--known", str(earlier))
    assert {n: t["against"] for n, t in fewer.items()} == {
        n: t["against"] for n, t in before.items()
    }
    # Drawn of the tasks that have as many, which is all but this one.
    assert (told / "curves.png").exists()
    planted(study, out, 0.3, n=300, seeds=3)
    newer = report(told, "--known", str(earlier))
    assert {tuple(one["seeds"]) for one in newer["cifar10"]["against"].values()} == {(0, 1, 2)}


def test_parts_hold_what_is_new_and_are_small(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, home = tmp_path / "far", tmp_path / "home"
    planted(study, far, 0.3, n=200, seeds=1)
    (far / "cifar10" / "mwn-0.txt").write_text("out of memory\n")
    largest = max(path.stat().st_size for path in far.glob("*/*.npz"))
    monkeypatch.setattr(study.store, "PART_BYTES", 4 * largest)
    parts = study.store.pack(far, 3)
    assert len(parts) == 3
    assert all(part.stat().st_size < 5 * largest for part in parts)
    first, _ = study.store.unpack(parts, home)
    more = study.store.pack(far, 99)
    second, there = study.store.unpack(more, home)
    assert (first + second, there) == (20, 0)
    names = {path.relative_to(far) for path in far.glob("[ct]*/*.*")}
    assert {path.relative_to(home) for path in home.glob("[ct]*/*.*")} == names
    assert study.store.unpack(more, home) == (0, second)
    (again,) = study.store.pack(far, 99)
    with zipfile.ZipFile(again) as archive:
        assert archive.namelist() == ["cifar10/mwn-0.txt"]
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("../x.npz", b"")
    with pytest.raises(InputError, match="no part of a study"):
        study.store.unpack([tmp_path / "odd.zip"], home)

"""What stands beside the methods of the study: augmented copies, ensembles, paintings of PACS."""

from __future__ import annotations

import csv
import inspect
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revar.model import Model
from support.layouts import sheet, table
from support.scripts import scripts
from test_uscore_study import write


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The scripts of the study."""
    with scripts("uscore", "tasks", "store", "run", "tests", "report", "art", "known") as found:
        yield found


def rows_in(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


ODDS = np.log(3.0)
"""Of an answer with probability 3/4."""


def copied(study: Any, **changes: Any) -> Any:
    """Four examples: one pass has two of them right and ranks badly, copies three and rank well."""
    return study.store.Scored(
        correct=np.array([True, False, False, True]),
        scores={
            "softmax": np.array([-ODDS, -ODDS, -ODDS, -ODDS]),
            "tta_softmax": np.array([-ODDS, -ODDS, 0.0, -ODDS]),
        },
        correct_augmented=np.array([True, True, False, True]),
        **changes,
    )


def test_copies_have_answers_of_their_own(study: Any, tmp_path: Path) -> None:
    write(study, tmp_path, "cifar10", "erm+meta", 0, {"test": copied(study)}, method="erm")
    run = study.store.Run(tmp_path / "cifar10" / "erm+meta-0.npz")
    figures = run.figures("test")
    assert (figures["softmax"]["accuracy"], figures["tta_softmax"]["accuracy"]) == (0.5, 0.75)
    # Equal scores know nothing of errors, the other ones everything.
    assert figures["softmax"]["failure_auroc"] == 0.5
    assert figures["tta_softmax"]["failure_auroc"] == 1.0
    assert run.correct("test", "softmax").tolist() == [True, False, False, True]
    assert run.correct("test", "tta_softmax").tolist() == [True, True, False, True]
    assert run.uncertainty("test", "tta_softmax")[2] == 0
    assert run.calibration_error("test") == pytest.approx(0.75 - 0.5)
    # Three answers at 3/4 that are all right, one at a half that is wrong.
    assert run.calibration_error("test", "tta_softmax") == pytest.approx((3 * 0.25 + 0.5) / 4)
    rows = {row["score"]: row for row in study.report.rows_of({("erm+meta", 0): run}, "test")}
    assert rows["tta_softmax"]["ece"] == pytest.approx((3 * 0.25 + 0.5) / 4)


def test_copies_stand_beside(study: Any, tmp_path: Path) -> None:
    """In the tables with their price, and nowhere else, though they are the best there is."""
    plain = replace(copied(study), scores={"softmax": np.arange(4.0)}, correct_augmented=None)
    for way in ("erm+meta", "erm-all", "trajectory+meta"):
        method = way.removesuffix("+meta").removesuffix("-all")
        sets = {"test": copied(study), "tune": plain}
        write(study, tmp_path, "cifar10", way, 0, sets, method=method)
    # As one that was trained before copies were asked.
    write(study, tmp_path, "cifar10", "sat", 0, {"test": plain, "tune": plain})
    folders = study.report.by_folder(tmp_path)
    rows = study.report.rows_of(folders["cifar10"], "test")
    lines = study.report.table_of(rows, {})
    beside = {(line["way"], line["score"]): line["beside"] for line in lines}
    assert beside == {
        ("erm+meta", "softmax"): "", ("erm+meta", "tta_softmax"): "9 passes",
        ("erm-all", "softmax"): "more labels", ("erm-all", "tta_softmax"): "9 passes, more labels",
        ("trajectory+meta", "softmax"): "", ("trajectory+meta", "tta_softmax"): "9 passes",
        ("sat", "softmax"): "",
    }  # fmt: skip
    assert lines[0]["score"] == "tta_softmax"
    best = study.tests.best_comparable(rows, study.tests.Choice("trajectory+meta", "softmax"))
    assert best["name"] in ("erm+meta:softmax", "sat:softmax")
    assert {line["score"] for line in study.report.selection(folders)} == {"softmax"}


def trained(
    study: Any, monkeypatch: pytest.MonkeyPatch, out: Path, way: str, **settings: str
) -> tuple[Model, Any]:
    """A run on generated pictures: its network, and its file."""
    kept: list[Model] = []
    fit = study.run.fit_prepared

    def fit_and_keep(*arguments: Any, **options: Any) -> Model:
        kept.append(fit(*arguments, **options))
        return kept[-1]

    with monkeypatch.context() as patch:
        patch.setattr(study.run, "fit_prepared", fit_and_keep)
        named = replace(study.tasks.way_named(way), settings=tuple(settings.items()))
        job = study.tasks.Job(folder="eyepacs", way=named, seed=0, scale="smoke")
        told = study.run.one_run(job, out, "cpu")
    assert told.reason is None
    assert "tta_softmax" not in told.figures
    return kept[0], study.store.Run(job.file(out))


def test_a_run_scores_copies_as_users_do(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, run = trained(study, monkeypatch, tmp_path, "erm+meta", augment="shift+flip")
    job = study.tasks.Job(
        folder="eyepacs", way=study.tasks.way_named("erm+meta"), seed=0, scale="smoke"
    )
    cell = study.run.cell_of(job)
    source = study.run.source_for(job, cell, cell.recipe())
    for name, own in {"test": "test", "aptos": "shifted", "deepdrid": "shifted"}.items():
        part = source.tests[own]
        # As many copies as `revar.model.Model` makes unless told.
        found = model.predict_augmented(part.x, part.y)
        assert run.uncertainty(name, "tta_softmax") == pytest.approx(found.scores["tta_softmax"])
        right = found.logits.argmax(axis=1) == model.classes.encode(part.y)
        assert (run.correct(name, "tta_softmax") == right).all()
        assert (run.uncertainty(name, "tta_softmax") != run.uncertainty(name, "softmax")).any()
    assert "tta_softmax" not in run.figures("tune")
    default = inspect.signature(Model.predict_augmented).parameters["copies"].default
    assert default == study.tasks.COPIES


def test_runs_that_are_not_asked_copies_have_none(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other ways, and those that were trained without."""
    _, other = trained(study, monkeypatch, tmp_path / "a", "history", augment="shift+flip")
    assert set(other.figures("test")) >= {"softmax", "history"}
    assert "tta_softmax" not in other.figures("test")
    _, without = trained(study, monkeypatch, tmp_path / "b", "erm+meta")
    assert "tta_softmax" not in without.figures("test")
    asked = {name: study.tasks.way_named(name).augmented for name in ("erm", "erm-m1", "mwn")}
    assert asked == {"erm": True, "erm-m1": False, "mwn": False}
    for name in ("erm+meta", "erm-all", "trajectory+meta", "trajectory-all"):
        assert study.tasks.way_named(name).augmented


def test_snapshots_stand_beside(study: Any, tmp_path: Path) -> None:
    for way, right in (("history", True), ("sat", False)):
        scored = study.store.Scored(
            correct=np.array([right, right, False, True]), scores={"softmax": np.arange(4.0)}
        )
        write(study, tmp_path, "cifar10n-worst", way, 0, {"test": scored})
    rows = study.report.rows_of(study.report.by_folder(tmp_path)["cifar10n-worst"], "test")
    snapshots = [{**row, "score": "history"} for row in rows if row["way"] == "history"]
    lines = study.report.table_of([*rows, *snapshots], {}, scores=("softmax", "history"))
    said = {(line["way"], line["score"]): line["beside"] for line in lines}
    # The classifier of it is asked once.
    assert said == {
        ("history", "history"): "four passes", ("history", "softmax"): "", ("sat", "softmax"): "",
    }  # fmt: skip
    ours = study.tests.Choice("trajectory", "fused")
    more = [*rows, {**rows[0], "way": "trajectory", "method": "trajectory", "score": "fused"}]
    assert study.tests.best_comparable(more, ours)["name"] == "sat:softmax"


def members(study: Any, out: Path, folder: str, seeds: int) -> None:
    """Each member errs on another one of five examples, all on a sixth, and ours on three."""
    labels = np.zeros(6, dtype=int)
    for seed, (number, way) in itertools.product(range(seeds), enumerate(study.tests.ENSEMBLE)):
        first = np.where(np.arange(6) == number, 0.4, [0.9, 0.88, 0.86, 0.84, 0.82, 0.45])
        p = np.stack([first, 1 - first], axis=1)
        scored = study.store.Scored(
            correct=first > 0.5, scores={"softmax": -np.maximum(first, 1 - first)}, labels=labels,
            log_probabilities=np.log(p),
        )  # fmt: skip
        sets = dict.fromkeys(study.tasks.FOLDERS[folder].sets, scored)
        write(study, out, folder, way, seed, sets, method="erm")
        ours = study.store.Scored(correct=np.arange(6) < 3, scores={"softmax": np.arange(6.0)})
        for other in ("trajectory", "erm-all"):
            write(study, out, folder, other, seed, dict.fromkeys(sets, ours))


def test_ensembles_stay_when_their_members_are_gone(study: Any, tmp_path: Path) -> None:
    """On noisy labels and on other sets as well; new ones count where they are as many."""
    out, earlier, told = (tmp_path / name for name in ("study", "earlier", "told"))
    folders = ("cifar10", "cifar10n-worst", "eyepacs")
    for folder in folders:
        members(study, out, folder, 2)

    def report(to: Path, *more: object) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
        words = [out, "--out", to, "--ours", "trajectory:softmax", "--resamples", 20, *more]
        assert study.report.main(list(map(str, words))) == 0
        tests = json.loads((to / "tests.json").read_text(encoding="utf-8"))["tasks"]
        lines = [row for row in rows_in(to / "tables.csv") if row["way"] == "ensemble of five"]
        return tests, {row["task"]: row for row in lines}

    def gaps(tests: dict[str, Any]) -> dict[str, Any]:
        key = "gap_to_ensemble_closed"
        return {name: found[key] for name, found in tests.items() if key in found}

    before, lines = report(earlier)
    assert set(lines) == {
        "cifar10", "cifar10n-worst", "eyepacs", "eyepacs-aptos", "eyepacs-deepdrid"
    }  # fmt: skip
    for line in lines.values():
        # Together they are right on five, and least certain of the sixth.
        assert float(line["accuracy"]) == pytest.approx(100 * 5 / 6)
        assert float(line["auarc"]) == pytest.approx(100 * (5 + 5 / 6) / 6)
        assert (line["seeds"], line["beside"]) == ("2", "5 passes")
    assert set(gaps(before)) == {"cifar10", "eyepacs"}
    for path in out.glob("*/erm-[m0-9]*.npz"):
        path.unlink()
    after, still = report(told, "--known", earlier)
    assert still == lines
    assert gaps(after) == gaps(before)
    assert gaps(before)["cifar10"]["share"] < 0
    members(study, out, "cifar10", 3)
    newer, more = report(told, "--known", earlier)
    assert more["cifar10"]["seeds"] == "3"
    assert {**more, "cifar10": lines["cifar10"]} == lines
    assert gaps(newer)["cifar10"]["seeds"] == [0, 1, 2]
    # Of another setting the gap was never asked.
    members(study, out, "cifar10", 1)
    for path in out.glob("*/erm-[m0-9]*.npz"):
        path.unlink()
    other = json.loads((earlier / "tests.json").read_text(encoding="utf-8"))
    other["ours"] = "sat:softmax"
    (earlier / "tests.json").write_text(json.dumps(other), encoding="utf-8")
    assert set(gaps(report(told, "--known", earlier)[0]).values()) == {None}


@pytest.mark.filterwarnings("ignore::revar.errors.DataWarning")
def test_photos_to_paintings(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = []
    for domain, n in (("photo", 70), ("art_painting", 21)):
        sheet(tmp_path / "data" / "pacs" / f"{domain}.jpg", n, 64, seed=n)
        listed += [(f"{domain}.jpg", k, "abcdefg"[k % 7], f"{domain}/{k}") for k in range(n)]
    table(tmp_path / "data" / "pacs" / "labels.csv", "file,index,class,original", listed)
    monkeypatch.setenv("REVAR_DATA", str(tmp_path / "data"))
    art, out, told = study.art, tmp_path / "out", tmp_path / "told"
    cells = [study.run.cell_of(job) for job in art.jobs_of_art()]
    assert [(cell.method, cell.seed) for cell in cells] == [
        (way, seed) for seed in range(5) for way in ("erm", "trajectory")
    ]
    assert {(cell.backbone, cell.epochs, cell.data.tests) for cell in cells} == {
        ("tf_efficientnet_lite0", 12, ("test", "art_painting"))
    }
    less = {"backbone": "mlp", "settings": (("batch_size", "16"),), "epochs": 2}
    quick = replace(art.PHOTOS, place=replace(art.PHOTOS.place, **less))
    monkeypatch.setattr(art, "PHOTOS", quick)
    study.run.read_once.cache_clear()
    for job in art.jobs_of_art(1):
        assert study.run.one_run(job, out, "cpu", "abc1234").reason is None
    assert art.main([str(out), "--table", str(told), "--resamples", "40"]) == 0
    assert "### pacs-photo, art_painting, test data, %" in capsys.readouterr().out
    rows = rows_in(told / "art.csv")
    found = {(row["set"], row["way"], row["score"]) for row in rows}
    both = itertools.product(("test", "art_painting"), ("softmax", "uscore", "tta_softmax"))
    assert found >= {(split, "trajectory", score) for split, score in both}
    assert ("art_painting", "erm", "softmax") in found
    sets = json.loads((told / "art.json").read_text(encoding="utf-8"))["sets"]
    against = sets["art_painting"]["trajectory:uscore"]
    assert set(against) == {"same classifier", "erm"}
    assert against["erm"]["drawn_as_wholes"] == 21
    value = {row["way"]: float(row["auarc"]) for row in rows
             if (row["set"], row["score"]) == ("art_painting", "softmax")}  # fmt: skip
    gained = sets["art_painting"]["trajectory:softmax"]["erm"]["difference"]
    assert gained == pytest.approx(100 * (value["trajectory"] - value["erm"]))
    assert len((told / "art.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    (out / "pacs-photo").rename(out / "pacs")
    assert art.main([str(out), "--table", str(told)]) == 2
    assert "has runs of something else: pacs" in capsys.readouterr().err

"""What the study of the U-Score takes from the tables of the paper, and what its page repeats."""

from __future__ import annotations

import csv
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revar.errors import InputError
from revar.metrics import ece
from support.scripts import scripts
from test_uscore_study import planted, write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "uscore"


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The scripts of the study."""
    with scripts("uscore", "tasks", "store", "run", "tests", "report", "cells") as found:
        yield found


def cell(study: Any, folder: str, method: str, seed: int = 0) -> dict[str, Any]:
    """``cell.json`` of a run of the study, with what a run fills in."""
    job = study.tasks.Job(folder=folder, way=study.tasks.way_named(method), seed=seed)
    asked = study.run.cell_of(job)
    recipe = asked.recipe().to_json()
    recipe["budget"]["learning_rate"] = 0.1
    del recipe["budget"]["graphs"]
    made: dict[str, Any] = json.loads(json.dumps({**asked.to_json(), "recipe": recipe}))
    made["data"]["tests"].append("test+fog:3")
    return made


def packed(file: Path, cells: list[dict[str, Any]], auarc: float) -> Path:
    figures = {
        "auarc": auarc, "normalised_auarc": 0.5, "augrc": 0.1, "failure_auroc": 0.8,
        "accuracy_at_coverage": {"1.0": 0.7},
    }  # fmt: skip
    scores = dict.fromkeys(("softmax", "uscore", "abstention", "mcd", "fused"), figures)
    of_set = {"own_score": "abstention", "default_score": "fused", "ece": 0.04, "scores": scores}
    metrics = dict.fromkeys(("test", "aptos", "deepdrid"), of_set)
    with zipfile.ZipFile(file, "w") as archive:
        for number, made in enumerate(cells):
            archive.writestr(f"{number}/cell.json", json.dumps(made))
            archive.writestr(f"{number}/metrics.json", json.dumps(metrics))
    return file


def test_a_cell_counts_only_if_the_study_would_train_it(study: Any, tmp_path: Path) -> None:
    def other(**changes: Any) -> dict[str, Any]:
        made = cell(study, "cifar10-instance20", "sat", 1)
        for path, value in changes.items():
            *folders, name = path.split("__")
            place = made
            for folder in folders:
                place = place[folder]
            place[name] = value
        return made

    others = [
        other(epochs=21), other(backbone="resnet50"), other(timed=True), other(version=0),
        other(settings=[["batch_size", "64"]]), other(data__label_noise="instance:0.4"),
        other(data__train=5_000), other(data__clean_meta=True), other(data__meta="aptos"),
        other(recipe__method__target_momentum=0.5), other(recipe__splits__meta=0.2),
        other(recipe__budget__batch_size=64), other(method="one-that-went"),
        cell(study, "cifar10-instance20", "revar-paper"),
    ]  # fmt: skip
    assert not any(study.cells.is_of(made, name) for made in others for name in study.tasks.FOLDERS)
    file = packed(tmp_path / "cells.zip", [*others, other(), cell(study, "eyepacs", "sat")], 0.9)
    found = study.cells.cell_rows(file)
    rows = found.pop(("cifar10-instance20", "test"))
    assert set(found) == {("eyepacs", name) for name in ("test", "aptos", "deepdrid")}
    assert [(row["way"], row["seed"], row["score"], row["own"]) for row in rows] == [
        ("sat", 1, "abstention", True), ("sat", 1, "fused", False), ("sat", 1, "softmax", False)
    ]  # fmt: skip
    assert [row["ece"] for row in rows] == [None, None, 0.04]
    assert rows[0]["accuracy"] == 0.7
    with pytest.raises(InputError, match="holds no cells"):
        study.cells.cell_rows(ROOT / "README.md")


def test_recipes_agree_where_both_speak(study: Any) -> None:
    agree = study.cells.agree
    wanted = {"a": 1, "b": {"rate": None, "new": "auto", "c": [1, 2]}, "data": {"x": 1}}
    assert agree(wanted, {"a": 1, "b": {"rate": 0.1, "c": [1, 2]}, "data": {}, "format": 3})
    assert not agree(wanted, {"a": 1, "b": {"rate": 0.1, "c": [2, 1]}, "data": {}})
    assert not agree({"a": {"b": 1}}, {"a": None})
    assert not agree({"a": {"b": 1}}, {"a": {"b": 1, "gone": 2}})


@pytest.mark.parametrize(("auarc", "first"), [(0.999, "sat:abstention"), (0.1, "erm:softmax")])
def test_cells_stand_in_the_tables(study: Any, tmp_path: Path, auarc: float, first: str) -> None:
    """Those of a way and seed that the study trained itself are left out."""
    planted(study, tmp_path / "study", 0.3, n=200, seeds=2)
    for path in (tmp_path / "study").iterdir():
        if path.name != "cifar10":
            for file in path.iterdir():
                file.unlink()
    for file in (tmp_path / "study" / "cifar10").glob("sat-*"):
        file.unlink()
    cells = [cell(study, "cifar10", name, seed) for name in ("sat", "erm") for seed in range(3)]
    packed(tmp_path / "cells.zip", cells, auarc)
    told = tmp_path / "told"
    arguments = [tmp_path / "study", "--cells", tmp_path / "cells.zip", "--out", told]
    assert study.report.main([*map(str, arguments), "--resamples", "50"]) == 0
    best = json.loads((told / "tests.json").read_text())["tasks"]["cifar10"]["best_comparable"]
    assert (best["name"], best["of"]) == (first, 2)
    assert best["seeds"] == 3
    rows = list(csv.DictReader((told / "tables.csv").read_text().splitlines()))
    said = {row["way"]: row["from"] for row in rows if row["from"]}
    assert said == {"sat": "tables of the paper, 3 seeds", "erm": "tables of the paper, 1 seeds"}
    both = [row for row in rows if row["way"] == "erm" and row["score"] == "softmax"]
    assert [row["seeds"] for row in both] == ["3"]


def test_the_calibration_error_of_log_odds(study: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(10, 0.3), 400)
    labels = np.where(rng.random(400) < 0.5, p.argmax(1), rng.integers(0, 10, 400))
    top = p.max(1)
    scored = study.store.Scored(
        correct=p.argmax(1) == labels, scores={"softmax": np.log1p(-top) - np.log(top)}
    )
    write(study, tmp_path, "cifar10", "erm", 0, {"test": scored})
    run = study.store.Run(tmp_path / "cifar10" / "erm-0.npz")
    assert run.calibration_error("test") == pytest.approx(ece(p, labels), abs=1e-6)


# What is published ----------------------------------------------------------------------------

TASKS = {
    "CIFAR-10": "cifar10", "CIFAR-10N worst": "cifar10n-worst",
    "CIFAR-10, 20 % instance noise": "cifar10-instance20",
    "Tiny ImageNet-100": "tiny-imagenet-100", "EyePACS": "eyepacs",
    "EyePACS to APTOS": "eyepacs-aptos",
}  # fmt: skip


def pages() -> str:
    """What is told of the study."""
    names = ("uscore.md", "uscore-details.md")
    return "\n\n".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in names)


def lines_of(heading: str) -> list[list[str]]:
    """Cells of the one table of the pages whose first row holds that."""
    tables = [part for part in pages().split("\n\n") if part.startswith("|")]
    table, *others = [part for part in tables if heading in part.splitlines()[0]]
    assert not others, f"several tables say {heading!r}"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return rows[2:]


def published() -> dict[tuple[str, str, str], dict[str, str]]:
    text = (RESULTS / "tables.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["task"], row["way"], row["score"]): row for row in rows}


def test_the_page_shows_the_tests_of_the_default() -> None:
    names = ("all-labels.json", "all-labels-uscore.json")
    both = [json.loads((RESULTS / name).read_text(encoding="utf-8"))["tasks"] for name in names]
    rows = lines_of("the default, all labels")
    assert len(rows) == len(TASKS)
    for asked, *cells in rows:
        task = TASKS[asked.partition(":")[0]]
        for tests, said, verdict in zip(both, cells[::2], cells[1::2], strict=True):
            one = tests[task]["against"]["erm-all"]
            low, high = f"{one['low']:+.2f}", f"{one['high']:+.2f}"
            assert said == f"{one['difference']:+.2f} ({low} to {high})"
            assert (verdict == "**yes**") is one["met"]


def test_the_page_shows_the_tests() -> None:
    tests = json.loads((RESULTS / "tests.json").read_text(encoding="utf-8"))["tasks"]
    rows = lines_of("less the same classifier")
    assert len(rows) == len(TASKS)
    for asked, *cells in rows:
        against = tests[TASKS[asked.partition(":")[0]]]["against"]
        for name, said, verdict in zip(
            ("erm+meta", "erm-all", "same classifier"), cells[::2], cells[1::2], strict=True
        ):
            one = against[name]
            low, high = f"{one['low']:+.2f}", f"{one['high']:+.2f}"
            assert said == f"{one['difference']:+.2f} ({low} to {high})"
            assert (verdict == "**yes**") is one["met"]


def test_the_page_shows_the_means() -> None:
    table = published()
    for label, *cells in lines_of("| best other |"):
        task = TASKS[label]
        plain, other, ours, whole, default = (cell.replace("*", "") for cell in cells)
        for way, score, said in (
            ("erm+meta", "softmax", plain), ("trajectory+meta", "fused", ours),
            ("erm-all", "softmax", whole), ("trajectory-all", "softmax", default),
        ):  # fmt: skip
            assert said == f"{float(table[task, way, score]['auarc']):.2f}"
        best = max(
            (float(row["auarc"]), way, score)
            for (of, way, score), row in table.items()
            if of == task and not row["beside"] and not way.startswith(("erm", "trajectory"))
        )
        found = re.fullmatch(r"([\d.]+) \(`([\w+-]+)`, (\w+)\)", other)
        assert found is not None
        assert found.groups() == (f"{best[0]:.2f}", *best[1:])


def test_the_page_shows_the_classifiers() -> None:
    table = published()
    figures = ("accuracy", "failure_auroc", "ece")
    rows = lines_of("| figure | CIFAR-10 |")
    assert len(rows) == len(figures)
    for figure, (_, *cells) in zip(figures, rows, strict=True):
        for task, said in zip(TASKS.values(), cells, strict=True):
            ways = ("erm+meta", "trajectory+meta")
            both = [float(table[task, way, "softmax"][figure]) for way in ways]
            assert said == f"{both[0]:.1f} → {both[1]:.1f}"


def test_the_page_shows_g_alone() -> None:
    table = published()
    tasks = [*TASKS.values(), "eyepacs-deepdrid"]
    for way, *cells in lines_of("| g of |"):
        for task, said in zip(tasks, cells, strict=True):
            alone, softmax = (
                float(table[task, way.strip("`"), score]["auarc"])
                for score in ("uscore", "softmax")
            )
            assert said.split()[0] == f"{alone - softmax:+.2f}"


def test_the_page_shows_the_pilot() -> None:
    rows = csv.DictReader((RESULTS / "pilot.csv").read_text(encoding="utf-8").splitlines())
    found: dict[str, list[float]] = {}
    for row in rows:
        if (row["weights"], row["score"]) == ("mean", "softmax"):
            found.setdefault(row["config"], []).append(float(row["auarc"]))
    order = ("label", "ratio", "sat", "self8", "self8m", "self8mr", "self10mr", "elr1")
    shown = lines_of("| training |")
    for name, (_, *cells) in zip(order, shown, strict=True):
        *values, mean = (float(cell.replace("*", "")) for cell in cells)
        assert values == found[name]
        assert mean == pytest.approx(np.mean(values), abs=0.0051)


def test_the_page_shows_what_was_kept_aside() -> None:
    told = json.loads((RESULTS / "aside.json").read_text(encoding="utf-8"))["tasks"]
    rows = lines_of("| | same labels | all labels |")
    assert len(rows) == len(told) == 9
    for found, (_, *cells) in zip(told.values(), rows, strict=True):
        for way, said in zip(("erm+meta", "erm-all"), cells, strict=True):
            one = found[way]
            low, high = f"{one['low']:+.2f}", f"{one['high']:+.2f}"
            assert said == f"{one['difference']:+.2f} ({low} to {high})"


def test_the_page_shows_the_second_readers() -> None:
    text = (RESULTS / "readers.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    auarc = {(row["pilot"], row["score"], row["task"]): float(row["auarc"]) for row in rows}
    order = (("first", "full.label"), ("first", "full.avg"), ("second", "r20.label"),
             ("second", "r20"), ("second", "conv"))  # fmt: skip
    tasks = [task for task in TASKS.values() if task != "eyepacs-aptos"]
    for (pilot, name), (_, *cells) in zip(order, lines_of("| second network |"), strict=True):
        gains = [auarc[pilot, f"fuse:{name}", t] - auarc[pilot, "softmax", t] for t in tasks]
        assert cells == [f"{gain:+.2f}" for gain in gains]


def test_the_page_counts_the_regimes() -> None:
    page = " ".join(pages().split())
    text = (RESULTS / "regimes.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["method"] == "revar-paper"]
    g = [float(row["failure_auroc"]) for row in rows if row["score"] == "uscore"]
    softmax = [float(row["failure_auroc"]) for row in rows if row["score"] == "softmax"]
    assert f"{len({row['regime'] for row in rows})} regimes" in page
    assert f"Over {len(g)} pairs of run and test set" in page
    mean, low, high = np.mean(g), min(g), max(g)
    said = f"of g is {mean:.2f} on average ({low:.2f} to {high:.2f}), that of softmax response"
    assert f"{said} {np.mean(softmax):.2f}" in page
    assert all(ours < theirs for ours, theirs in zip(g, softmax, strict=True))


def test_the_page_shows_what_unlabelled_points_of_the_target_add() -> None:
    page = " ".join(pages().split())
    gains = json.loads((RESULTS / "target.json").read_text(encoding="utf-8"))["gains"]
    for way, said in (
        ("trajectory", "{:+.1f}, {:+.1f} and {:+.1f} points on average with `trajectory`"),
        ("plain", "by {:+.1f}, {:+.1f} and {:+.1f} after plain training"),
    ):
        assert said.format(*(mean for mean, _ in gains[way].values())) in page
    spreads = [spread for found in gains.values() for _, spread in found.values()]
    assert f"with spreads of {min(spreads):.1f} to {max(spreads):.1f}" in page


def test_the_page_shows_what_unlabelled_retinas_add() -> None:
    runs = json.loads((RESULTS / "target-retinas.json").read_text(encoding="utf-8"))["runs"]
    columns = [(w, d) for w in ("trajectory", "plain") for d in ("aptos", "deepdrid")]
    rows = lines_of("| g taught on |")
    for taught, (_, *cells) in zip(("train", "target", "both"), rows, strict=True):
        for column, said in zip(columns, cells, strict=True):
            some = [row for row in runs if (row["way"], row["domain"]) == column]
            gains = [row[f"g, {taught}"] - row["softmax"] for row in some]
            assert len(gains) == 5
            assert said == f"{np.mean(gains):+.2f} ± {np.std(gains, ddof=1):.2f}"


def test_the_page_shows_second_readers_of_retinas() -> None:
    page = " ".join(pages().split())
    gains = json.loads((RESULTS / "readers-retinas.json").read_text(encoding="utf-8"))["gains"]
    for reader, found in gains.items():
        first, second, third = (f"{np.mean(values):+.2f}" for values in found.values())
        assert f"{first}, {second} and {third} (`{reader}`)" in page
        assert {len(values) for values in found.values()} == {5}


def test_the_page_shows_the_gap_to_an_ensemble() -> None:
    page = " ".join(pages().split())
    tests = json.loads((RESULTS / "tests.json").read_text(encoding="utf-8"))["tasks"]
    for title in ("CIFAR-10", "Tiny ImageNet-100", "EyePACS"):
        found = tests[TASKS[title]]["gap_to_ensemble_closed"]
        three = ", ".join(f"{found[name]:.2f}" for name in ("single", "ours", "ensemble"))
        assert f"{title.removesuffix('-100')} {three}, **{100 * found['share']:.0f} %**" in page
        gained, gap = np.array(found["gained_by_seed"]), np.array(found["gap_by_seed"])
        # As the page says: a third on average, and in four seeds of five.
        assert found["share"] > 1 / 3
        assert (gained > gap / 3).sum() == 4


def test_the_page_shows_what_the_variance_term_adds_to_teachers() -> None:
    found = json.loads((RESULTS / "limits.json").read_text(encoding="utf-8"))["summary"]

    def two(teacher: str) -> str:
        """On noisy and on clean labels."""
        path = f"taught/{teacher}/evidence/auroc"
        return "; ".join(f"{found[labels][path][0]:.1f}" for labels in ("noisy", "clean"))

    alone = "cross-fitting, whole set, regression"
    both = "trajectory and alignments"
    rows = {label: cells for label, *cells in lines_of("| | without | with it |")}
    for label, plain, weighted in (
        ("g taught alignments, as question 2, noisy; clean labels", alone, f"{alone}, lambda"),
        ("g taught trajectory *and* alignments", f"{both}, lambda 0", f"{both}, lambda"),
    ):
        one, ten = two(f"{weighted} 1"), two(f"{weighted} 10")
        lam = "`lambda` 1" if plain == alone else "1"
        assert rows[label] == [two(plain), f"{one} ({lam}), {ten} (10)"]
    page = " ".join(pages().split())
    assert f"g has {two('no alignment: trajectory').replace('; ', ' and ')}:" in page
    softmax = [found[labels]["references/softmax/auroc"][0] for labels in ("noisy", "clean")]
    assert f"softmax response having {softmax[0]:.1f} and {softmax[1]:.1f}." in page


def test_published_rows_of_other_methods_are_of_five_seeds(study: Any) -> None:
    """Those from the tables of the paper are those of their cells."""
    cells = study.cells.cell_rows(ROOT / "results" / "cells.zip")
    known = {
        (place, row["way"], row["score"], row["seed"]): row["auarc"]
        for place, rows in cells.items()
        for row in rows
    }
    tasks = {**study.tasks.TASKS, **study.tasks.BESIDE_TASKS}
    text = (RESULTS / "runs.csv").read_text(encoding="utf-8")
    values: dict[tuple[str, str, str], dict[int, float]] = {}
    seen = 0
    for row in csv.DictReader(text.splitlines()):
        seed, auarc = int(row["seed"]), float(row["auarc"])
        values.setdefault((row["task"], row["way"], row["score"]), {})[seed] = auarc
        if row["from"]:
            task = tasks[row["task"]]
            place = (task.folder, task.split)
            assert auarc == known[place, row["way"], row["score"], seed]
            seen += 1
    assert seen > 400
    for key, line in published().items():
        if key[1] == "ensemble of five":
            continue
        assert float(line["auarc"]) == pytest.approx(100 * np.mean(list(values[key].values())))
        # Two of these ways were trained once more to be asked with augmentation, as far as it went.
        looked_at = key[2] == "tta_softmax" and key[1].endswith("+meta")
        seeds = ([0], [0, 1]) if looked_at else (list(range(5)),)
        assert sorted(values[key]) in seeds, key

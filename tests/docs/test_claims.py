"""Figures that pages repeat are those of the files they come from."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from revar import ReVaR
from revar.studies.controlled import ENTRANTS
from support.results import tables

ROOT = Path(__file__).parents[2]


def test_nothing_published_names_a_path_of_the_machine_that_made_it() -> None:
    place = re.compile(r"(?<![\w.:/])/(root|home|tmp|work|Users)/")
    kinds = {".json", ".jsonl", ".csv", ".md"}
    files = [path for path in (ROOT / "results").rglob("*") if path.suffix in kinds]
    assert len(files) > 50
    named = [str(path.relative_to(ROOT)) for path in files if place.search(path.read_text("utf-8"))]
    assert named == []


def test_the_gain_of_own_scores_over_softmax() -> None:
    page = (ROOT / "docs" / "choosing-a-method.md").read_text(encoding="utf-8")
    sources = [*tables("methods"), *tables("methods_gpu")]
    assert len(sources) == 4
    shown = re.findall(r"^\| `([\w-]+)` \|((?: [+-]\d+\.\d\d \|){4})$", page, re.MULTILINE)
    assert len(shown) == 9
    for method, cells in shown:
        values = [float(cell) for cell in cells.strip("|").split("|")]
        expected = [t[method]["AUARC"] - t[method]["AUARC softmax"] for t in sources]
        assert [round(v, 2) for v in expected] == values, method


def test_the_cost_of_a_meta_step() -> None:
    """The page of the engine shows what was measured."""
    page = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\| \**(\d+)\** \| \**(\d+\.\d)\** \|", page))
    file = ROOT / "results" / "meta_step" / "resnet50-224px-bfloat16.json"
    engines = json.loads(file.read_text(encoding="utf-8"))["engines"]
    found = {(f"{e['ms']:.0f}", f"{e['bytes'] / 2**30:.1f}") for e in engines.values()}
    assert len(shown) == 10
    assert shown <= found


def test_how_much_less_a_meta_step_takes() -> None:
    """Than peers with whole passes; with the trunk shared in both; with whole passes in both."""
    page = " ".join((ROOT / "docs" / "engine.md").read_text(encoding="utf-8").split())
    file = ROOT / "results" / "meta_step" / "resnet50-224px-bfloat16.json"
    engines = json.loads(file.read_text(encoding="utf-8"))["engines"]
    peers = [
        engines[f"{name}, T full passes"] for name in ("double backward", "higher", "TorchOpt")
    ]

    def of(ratio: str) -> tuple[float, float]:
        return min(peer[ratio] for peer in peers), max(peer[ratio] for peer in peers)

    (least, most), (memory, _) = of("time_ratio"), of("memory_ratio")
    assert f"takes {least:.0f} to {most:.0f} times less time and {memory:.1f} times less" in page
    shared = engines["double backward, shared trunk"]
    said = f"{shared['time_ratio']:.1f} times less time and {shared['memory_ratio']:.1f} times less"
    assert said in page
    (least, most), (memory, _) = of("time_ratio_full_passes"), of("memory_ratio_full_passes")
    assert f"{least:.1f} to {most:.1f} times less time and {memory:.1f} times less memory" in page


def test_the_controlled_study_keeps_the_fields_it_was_made_with() -> None:
    """Also where the defaults have changed since."""
    made = json.loads((ROOT / "results" / "controlled" / "study.json").read_text("utf-8"))
    assert set(made["entrants"]) == set(ENTRANTS)
    for name, entrant in made["entrants"].items():
        stored = {field: value for field, value in entrant["method"].items() if field != "name"}
        now = ENTRANTS[name].method
        assert {field: getattr(now, field) for field in stored} == stored, name
    # Younger than the study.
    assert not getattr(ENTRANTS["revar"].method, "shares_gradient", True)


def test_what_other_networks_gain_on_tables() -> None:
    page = (ROOT / "docs" / "backbones.md").read_text(encoding="utf-8")
    folder = ROOT / "results" / "table_nets"
    with (folder / "runs.csv").open(encoding="utf-8", newline="") as lines:
        runs = list(csv.DictReader(lines))
    tables = sorted({run["table"] for run in runs})
    nets = ("mlp", "mlp-256x3", "mlp-256x4", "mlp-512x4", "tabular")
    assert len(runs) == len(tables) * len(nets) * 2 * 5 == 1150

    def mean(what: str, net: str, table: str | None = None) -> float:
        chosen = [run for run in runs if run["net"] == net and table in (None, run["table"])]
        return float(np.mean([float(run[what]) for run in chosen]))

    def over(what: str, net: str) -> tuple[float, float, float]:
        each = [mean(what, net, table) - mean(what, "mlp", table) for table in tables]
        half = student.ppf(0.975, len(each) - 1) * np.std(each, ddof=1) / np.sqrt(len(each))
        return float(np.mean(each)), float(np.mean(each) - half), float(np.mean(each) + half)

    assert f"| `mlp` | | | {mean('seconds', 'mlp'):.1f} |" in page
    for net in nets[1:]:
        cells = [
            "{:+.2f} ({:+.2f} to {:+.2f})".format(*over(w, net)) for w in ("auarc", "accuracy")
        ]
        assert f"| `{net}` | {cells[0]} | {cells[1]} | {mean('seconds', net):.1f} |" in page
        # The rule: nothing ranks better by an interval that excludes zero.
        assert over("auarc", net)[1] < 0
    glass, sonar = (
        mean("auarc", "tabular", table) - mean("auarc", "mlp", table)
        for table in ("Glass", "Sonar")
    )
    assert f"has {glass:.1f} points of AUARC more on pieces of glass and {-sonar:.1f} less" in page
    large, small = (mean("accuracy", net, "LetterRecognition") for net in ("mlp-512x4", "mlp"))
    assert f"right on {large:.1f} % where `mlp` is on {small:.1f}." in page


def test_the_fields_of_revar() -> None:
    page = (ROOT / "docs" / "methods" / "revar.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)` \| (\S+) \| (\S+) \|", page, re.MULTILINE)
    assert len(shown) >= 15
    for field, *values in shown:
        for method, value in zip((ReVaR(), ReVaR.paper()), values, strict=True):
            found = getattr(method, field)
            text = f"{found:g}" if isinstance(found, float) else str(found).lower()
            assert text == value, field


def test_what_stands_beside_the_comparable_methods() -> None:
    page = (ROOT / "docs" / "uscore.md").read_text(encoding="utf-8")
    with (ROOT / "results" / "uscore" / "tables.csv").open(encoding="utf-8") as file:
        found = {(r["task"], r["way"], r["score"]): r for r in csv.DictReader(file)}
    tasks = ("cifar10", "cifar10n-worst", "cifar10-instance20", "tiny-imagenet-100", "eyepacs",
             "eyepacs-aptos")  # fmt: skip
    lines = page[page.index("## Beside") :].split("\n\n")[2].splitlines()[2:]
    wanted = [
        ("erm", "softmax"), ("history", "history"), ("ensemble of five", "softmax"),
        ("erm", "tta_softmax"), ("trajectory", "softmax"),
    ]  # fmt: skip
    for line, (way, score) in zip(lines, wanted, strict=True):
        rows = [found.get((task, way, score)) for task in tasks]
        expected = ["" if row is None else f"{float(row['auarc']):.2f}" for row in rows]
        assert [cell.strip().strip("*") for cell in line.split("|")[2:8]] == expected, way
        assert {row["seeds"] for row in rows if row is not None} == {"5"}


def test_augmentation_is_compared_on_the_same_seeds() -> None:
    page = (ROOT / "docs" / "uscore-details.md").read_text(encoding="utf-8")
    with (ROOT / "results" / "uscore" / "runs.csv").open(encoding="utf-8") as file:
        found = {(r["task"], r["way"], r["score"], r["seed"]): r for r in csv.DictReader(file)}
    tasks = {
        "cifar10": "01", "cifar10n-worst": "01", "cifar10-instance20": "0",
        "tiny-imagenet-100": "01", "eyepacs": "0", "eyepacs-aptos": "0", "eyepacs-deepdrid": "0",
    }  # fmt: skip
    lines = page[page.index("## Augmentation") :].split("\n\n")[2].splitlines()[2:]
    ways = [(w, s) for w in ("erm+meta", "trajectory+meta") for s in ("softmax", "tta_softmax")]
    for line, (way, score) in zip(lines, ways, strict=True):
        values = [
            np.mean([100 * float(found[task, way, score, seed]["auarc"]) for seed in seeds])
            for task, seeds in tasks.items()
        ]
        assert [cell.strip() for cell in line.split("|")[3:10]] == [f"{v:.2f}" for v in values]

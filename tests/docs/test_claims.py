"""Figures that pages repeat are those of the files they come from."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np

from revar import ReVaR

ROOT = Path(__file__).parents[2]


def test_nothing_published_names_a_path_of_the_machine_that_made_it() -> None:
    place = re.compile(r"(?<![\w.:/])/(root|home|tmp|work|Users)/")
    kinds = {".json", ".jsonl", ".csv", ".md"}
    files = [path for path in (ROOT / "results").rglob("*") if path.suffix in kinds]
    assert len(files) > 50
    named = [str(path.relative_to(ROOT)) for path in files if place.search(path.read_text("utf-8"))]
    assert named == []


def tables(folder: str) -> list[dict[str, dict[str, float]]]:
    """Rows of each table of a folder of results: method, then column, then its mean."""
    text = (ROOT / "results" / folder / "table.md").read_text(encoding="utf-8")
    found: list[dict[str, dict[str, float]]] = []
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip().replace("*", "") for cell in line.strip("|").split("|")]
        if line.startswith("| method"):
            columns = cells
            found.append({})
        elif line.startswith("|") and not line.startswith("|---"):
            row = dict(zip(columns, cells, strict=True))
            numbers = {k: float(v.split()[0]) for k, v in row.items() if re.match(r"-?\d", v)}
            found[-1][row["method"]] = numbers
    return found


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
    assert len(shown) == 9
    assert shown <= found


def ratios(files: str) -> dict[str, list[float]]:
    """Of every setting of `benchmarks/epoch.py`, by file."""
    found: dict[str, list[float]] = {}
    for path in sorted((ROOT / "results" / "epoch").glob(f"{files}.json")):
        for name, one in json.loads(path.read_text(encoding="utf-8"))["settings"].items():
            found.setdefault(name, []).append(one["ratio"])
    return found


def test_the_cost_of_training() -> None:
    """The page about performance shows what was measured: the mean over processes, the range."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    first = ("| features", "| evidence", "| inputs", "| `revar` as")
    table = [line.split("|") for line in page.splitlines() if line.startswith(first)]
    names = ("features", "evidence", "features, upper layers", "network", "network, upper layers",
             "network, half size")  # fmt: skip
    alone = ratios("resnet18-32px-resnet18")
    single = [
        [*alone["network"], *alone["network, upper layers"]],
        alone["features, own look-ahead"],
        alone["revar (default)"],
    ]
    for column, files, more in (
        (5, "resnet50-224px-?", [[], [], []]),
        (6, "resnet18-32px-?", single),
    ):
        found = ratios(files)
        wanted = [[np.mean(found[name]), min(found[name]), max(found[name])] for name in names]
        shown = [re.findall(r"\d\.\d+", line[column]) for line in table]
        assert shown == [[f"{value:.3f}" for value in values] for values in [*wanted, *more]]


def test_ways_to_make_g_cheaper() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    table = page[page.index("**Ways to make g cheaper**") :].split("\n\n")[1].splitlines()[2:]
    shown = [[cell.strip() for cell in line.split("|")[2:6]] for line in table]
    columns = []
    for file in ("resnet50-224px", "resnet18-32px"):
        path = ROOT / "results" / "scorer_pass" / f"{file}.json"
        ways = json.loads(path.read_text(encoding="utf-8"))["ways"]
        ours = [way for name, way in ways.items() if name != "erm"]
        columns.append([f"{way['ratio']:.3f}" for way in ours])
        columns.append([f"{way['g_alone_ms']:.2f}" for way in ours])
    assert shown == [list(row) for row in zip(*columns, strict=True)]


def test_the_floors_of_a_step() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    file = ROOT / "results" / "floors" / "floors.json"
    nets = json.loads(file.read_text(encoding="utf-8"))["nets"].values()
    for name in ("arithmetic", "bytes"):
        cells = " | ".join(f"{net[f'{name}_ms']:.2f} ms" for net in nets)
        assert f"| {name} | {cells} |" in page


def test_the_cost_of_training_on_a_cpu() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = {"features": "| paper's setting, g on features", "trajectory": "| `trajectory`, our",
            "evidence": "| paper's setting, g on evidence"}  # fmt: skip
    for setting, start in rows.items():
        line = next(line for line in page.splitlines() if line.startswith(start))
        for file, said in zip(
            ("resnet18-32px", "tabular", "mlp"), line.split("|")[2:5], strict=True
        ):
            path = ROOT / "results" / "epoch" / f"{file}-cpu.json"
            found = json.loads(path.read_text(encoding="utf-8"))["settings"].get(setting)
            assert said.strip() == ("" if found is None else f"{found['ratio']:.2f}")


def test_where_the_time_of_a_step_goes_on_a_cpu() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    found = {
        net: json.loads((ROOT / "results" / "kernels" / f"{net}-cpu.json").read_text("utf-8"))
        for net in ("resnet18-32px", "tabular", "mlp")
    }
    plain = {net: figures["settings"]["erm"] for net, figures in found.items()}
    large, middle, small = (
        round(100 * one["kinds"]["convolutions and products"] / one["profiled"])
        for one in plain.values()
    )
    shares = f"{large} % of a plain step of the ResNet-18, {middle} % of `tabular` and {small} % of"
    between = round(100 * (1 - plain["mlp"]["busy"] / plain["mlp"]["profiled"]))
    counts = [round(one["kernels"]) for one in found["mlp"]["settings"].values()]
    said = (
        shares,
        f"Of the last, {between} % lies between",
        f"{counts[0]} operations of a few microseconds each, {counts[1]} with g on features",
        f"{counts[2]} with `trajectory`",
    )
    for words in said:
        assert words in " ".join(page.split())


def test_the_cost_of_the_default_and_of_answers_on_a_gpu() -> None:
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    results = ROOT / "results"
    for file, said in (
        ("resnet50-224px", "{:.2f} times plain training** for the ResNet-50"),
        ("resnet18-32px", "{:.2f} times for the ResNet-18"),
    ):
        text = (results / "epoch" / f"trajectory-{file}.json").read_text(encoding="utf-8")
        assert said.format(json.loads(text)["settings"]["trajectory"]["ratio"]) in page
    text = (results / "inference" / "h200-resnet50.json").read_text(encoding="utf-8")
    found = json.loads(text)["scorers"].values()
    for calls, said in (
        ("64", "{} to {} times in calls of 64"),
        ("512", "{} to {} in calls of 512"),
    ):
        ratios = sorted(f"{scorer[calls]['uscore']['ratio']:.2f}" for scorer in found)
        assert said.format(*ratios) in page


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

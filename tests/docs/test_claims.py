"""Figures that pages repeat are those of the files they come from."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np

from revar import ReVaR
from revar.studies.controlled import ENTRANTS

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
             "network, half size", "features, own look-ahead", "revar (default)")  # fmt: skip
    before = ratios("revar-512-resnet18-32px")["revar, 512 every 5 steps"]
    for column, files, last in (
        (5, "resnet50-224px-?", []),
        (6, "resnet18-32px-?", before),
    ):
        found = ratios(files)
        several = [*(found[name] for name in names), last]
        wanted = [
            [] if not one else one if len(one) == 1 else [np.mean(one), min(one), max(one)]
            for one in several
        ]
        shown = [re.findall(r"\d\.\d+", line[column]) for line in table]
        assert shown == [[f"{value:.3f}" for value in values] for values in wanted]


def test_a_network_as_large_as_f() -> None:
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    found = ratios("resnet18-32px-resnet18-?")
    large, upper, half = (
        np.mean(found[name]) for name in ("network", "network, upper layers", "network, half size")
    )
    said = (
        f"it was {large:.2f}, {upper:.2f} with the upper layers and {half:.2f} with half the size"
    )
    assert said in page


def test_memory_of_a_shared_step() -> None:
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    found = json.loads((ROOT / "results" / "memory" / "resnet50-224px.json").read_text("utf-8"))
    shared, again, parts = (
        found["settings"][f"shared gradient{way}"]
        for way in ("", ", recompute", ", micro_batch=32")
    )
    own = found["settings"]["revar-paper"]["made_mib"]
    made = shared["made_mib"]
    assert f"makes {made:,.0f} MiB for the ResNet-50 instead of {own:,.0f}" in page
    said = (
        f"makes {made:,.0f} MiB on the H200, {again['made_mib']:,.0f} with `recompute=true` in "
        f"{again['ratio_replayed']:.2f} times the time, {parts['made_mib']:,.0f} with "
        f"`micro_batch=32` in {parts['ratio_replayed']:.2f} times"
    )
    assert said in page


def test_loops_by_hand() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    ways = ("ours", "by hand", "by hand, compiled, replayed", "ours, not replayed")
    for file, start in (
        ("resnet18-32px", "| ResNet-18, 32 px, b"),
        ("resnet50-224px", "| ResNet-50, 224 px, b"),
    ):
        line = next(line for line in page.splitlines() if line.startswith(start))
        found = json.loads((ROOT / "results" / "loop" / f"{file}.json").read_text("utf-8"))
        medians = [np.median(found["milliseconds"][way]) for way in ways]
        assert [cell.strip() for cell in line.split("|")[2:6]] == [f"{m:.2f}" for m in medians]


def test_memory_on_a_gpu() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    found = json.loads((ROOT / "results" / "memory" / "resnet50-224px.json").read_text("utf-8"))
    of = found["settings"]
    for start, way in (
        ("| H200, as usual", ""),
        ("| `recompute=true`", ", recompute"),
        ("| `micro_batch=32`", ", micro_batch=32"),
    ):
        line = next(line for line in page.splitlines() if line.startswith(start))
        plain, meta = of[f"erm{way}"], of[f"revar-paper{way}"]
        ratios = ["1" if not way else f"{one['ratio_replayed']:.2f}" for one in (plain, meta)]
        wanted = [f"{plain['kept_mib']:,.0f}", f"{plain['made_mib']:,.0f}", ratios[0],
                  f"{meta['made_mib']:,.0f}", ratios[1]]  # fmt: skip
        assert [cell.strip() for cell in line.split("|")[2:7]] == wanted


def test_the_meta_steps_of_revar() -> None:
    """Both ways, in pairs of runs: mean difference and standard error, in points of AUARC."""
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    folder = ROOT / "results" / "revar_meta_steps"

    def differences(file: str, figure: str, **chosen: str) -> tuple[int, str]:
        runs: dict[tuple[str, str], dict[str, float]] = {}
        with (folder / file).open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if all(row[name] == value for name, value in chosen.items()):
                    place = (row.get("task", ""), row["seed"])
                    runs.setdefault(place, {})[row["meta_steps"]] = 100 * float(row[figure])
        new, earlier = "a batch every 10 steps", "512 every 5 steps"
        pairs = [run[new] - run[earlier] for run in runs.values()]
        error = np.std(pairs, ddof=1) / np.sqrt(len(pairs))
        return len(pairs), f"{np.mean(pairs):+.2f} ± {error:.2f}"

    for count, said in (
        (7, differences("cifar10.csv", "auarc", score="uscore")),
        (7, differences("cifar10.csv", "auarc", score="softmax")),
        (5, differences("fashion_mnist.csv", "auarc_uscore", label_noise="0.0")),
        (5, differences("fashion_mnist.csv", "auarc_uscore", label_noise="0.4")),
    ):
        assert said[0] == count
        assert said[1] in page


def test_what_the_meta_steps_of_revar_cost_before() -> None:
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    (small,) = ratios("revar-512-resnet18-32px")["revar, 512 every 5 steps"]
    (large,) = ratios("revar-512-resnet50-224px")["revar (default)"]
    assert f"{small:.1f} times at 32 px and {large:.1f} at 224 px" in page


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


def test_what_g_learns_with_a_shared_gradient() -> None:
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    file = ROOT / "results" / "shared_gradient" / "clusters.json"
    found = json.loads(file.read_text(encoding="utf-8"))["relative_weights"]
    own, shared = (sum(v < 0.8 for v in found["mlp"][w]) for w in ("its own", "the training step"))
    assert f"in {own} seeds of 8 with a look-ahead of its own and in {shared} of 8 with" in page
    assert all(v < 0.8 for values in found["perceptron"].values() for v in values)


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
            ("resnet18-32px", "tabular", "mlp-512x4", "mlp"), line.split("|")[2:6], strict=True
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
        ("resnet50-224px-?", "{:.2f} times plain training** for the ResNet-50"),
        ("resnet18-32px-?", "{:.2f} times for the ResNet-18"),
    ):
        assert said.format(np.mean(ratios(file)["trajectory"])) in page
    text = (results / "inference" / "h200-resnet50.json").read_text(encoding="utf-8")
    found = json.loads(text)["scorers"].values()
    for calls, said in (
        ("64", "{} to {} times in calls of 64"),
        ("512", "{} to {} in calls of 512"),
    ):
        both = sorted(f"{scorer[calls]['uscore']['ratio']:.2f}" for scorer in found)
        assert said.format(*both) in page


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

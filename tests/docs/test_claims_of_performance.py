"""Figures on the page about performance are those of the files they come from."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]


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
    """Now, and with what computes again, which was measured before passes were folded."""
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())

    def settings(file: str) -> dict[str, dict[str, float]]:
        text = (ROOT / "results" / "memory" / f"{file}.json").read_text(encoding="utf-8")
        found: dict[str, dict[str, float]] = json.loads(text)["settings"]
        return found

    now, before = settings("resnet50-224px"), settings("resnet50-224px-unfolded")
    made, own = (now[name]["made_mib"] for name in ("shared gradient", "revar-paper"))
    assert f"makes {made:,.0f} MiB for the ResNet-50 instead of {own:,.0f}" in page
    whole, again, parts = (
        before[f"shared gradient{way}"] for way in ("", ", recompute", ", micro_batch=32")
    )
    said = (
        f"makes {made:,.0f} MiB on the H200; before passes were folded it was "
        f"{whole['made_mib']:,.0f}, {again['made_mib']:,.0f} with `recompute=true` in "
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


ON_CPUS = ("resnet18-32px", "tabular", "mlp-512x4", "mlp")


def test_the_cost_of_training_on_a_cpu() -> None:
    """The mean over processes, and the range."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = {"features": "| paper's setting, g on features", "trajectory": "| `trajectory`, our",
            "evidence": "| paper's setting, g on evidence"}  # fmt: skip
    for setting, start in rows.items():
        line = next(line for line in page.splitlines() if line.startswith(start))
        for net, said in zip(ON_CPUS, line.split("|")[2:6], strict=True):
            found = ratios(f"{net}-cpu-?").get(setting, [])
            wanted = [np.mean(found), min(found), max(found)] if found else []
            assert re.findall(r"\d\.\d+", said) == [f"{value:.2f}" for value in wanted]


def test_the_milliseconds_of_plain_training_on_a_cpu() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("| plain training, a step"))
    for net, said in zip(ON_CPUS, line.split("|")[2:6], strict=True):
        last = sorted((ROOT / "results" / "epoch").glob(f"{net}-cpu-?.json"))[-1]
        times = json.loads(last.read_text(encoding="utf-8"))["settings"]["erm"]["milliseconds"]
        shown = said.split()[0]
        digits = len(shown.partition(".")[2])
        assert shown == f"{np.median(times):.{digits}f}"


def test_which_nets_meet_the_goal_on_a_cpu() -> None:
    """The page says that all processes of the first three do, and none of the last."""
    *others, small = (ratios(f"{net}-cpu-?")["features"] for net in ON_CPUS)
    assert [len(found) for found in (*others, small)] == [2, 3, 3, 3]
    assert all(max(found) <= 1.25 for found in others)
    assert min(small) > 1.25


def test_loops_by_hand_on_a_cpu() -> None:
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    small, *others = (
        json.loads((ROOT / "results" / "loop" / f"{net}-cpu.json").read_text("utf-8"))["ratio"]
        for net in ("mlp", "tabular", "mlp-512x4")
    )
    said = " and ".join(f"{ratio:.2f}" for ratio in others)
    assert f"takes {said} times as long as ours for `tabular` and `mlp-512x4`" in page
    assert f"and {small:.2f} times as long for `mlp`" in page


def test_how_the_cost_of_a_meta_step_grows() -> None:
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    text = (ROOT / "results" / "cost_growth" / "h200.json").read_text(encoding="utf-8")
    rows = json.loads(text)["rows"]
    of = {(row["quantity"], row["value"]): row["meta_step_in_steps"] for row in rows}
    several = [worth for (quantity, _), worth in of.items() if quantity in ("batch", "backbone")]
    assert f"worth {min(several):.1f} to {max(several):.1f} plain steps over all" in page
    # What g costs besides meta steps, from one in every step and one in 50.
    between = of["interval", 50] - of["interval", 1]
    said = f"what g adds comes to {of['interval', 50]:.1f} for each, some {between:.1f} of which"
    assert said in page


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
        ("64", "{} times in calls of 64"),
        ("512", "{} in calls of 512"),
    ):
        each = sorted({f"{scorer[calls]['uscore']['ratio']:.2f}" for scorer in found})
        assert said.format(" to ".join(each)) in page

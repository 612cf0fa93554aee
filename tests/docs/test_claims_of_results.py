"""Figures that pages draw from results, and what they say of them."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from support.results import tables

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    """With single spaces."""
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def test_the_best_classifiers_of_plain_cost() -> None:
    text = page("methods/README.md")
    clean, noisy = tables("methods")
    abstain = ("sat", "selectivenet", "gamblers")
    ranked = [sorted(abstain, key=lambda m, t=t: -t[m]["accuracy"]) for t in (clean, noisy)]  # type: ignore[misc]
    assert [names[:2] for names in ranked] == [["selectivenet", "sat"], ["sat", "selectivenet"]]
    for table, names in zip((clean, noisy), ranked, strict=True):
        one, other = (f"{table[name]['accuracy']:.1f}" for name in names[:2])
        assert f"({one} against {other} %" in text
    clean, noisy = tables("methods_gpu")
    plain = [name for name in clean if clean[name]["epoch / ERM"] <= 1.2]
    for table, best in ((clean, "selectivenet"), (noisy, "adafocal")):
        assert max(plain, key=lambda name, t=table: t[name]["accuracy"]) == best  # type: ignore[misc]
    said = f"({clean['selectivenet']['accuracy']:.2f} %; under noise `adafocal` does, "
    ours, theirs = (noisy[name]["accuracy"] for name in ("adafocal", "selectivenet"))
    assert f"{said}{ours:.2f} against {theirs:.2f} %)" in text


def test_how_often_few_seeds_mislead() -> None:
    found = json.loads((ROOT / "results" / "metrics" / "few_seeds.json").read_text())
    lines = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines()
    for name, by_seeds in found["intervals"].items():
        cells = [
            f"{100 * one['before_holds']:.0f}, {100 * one['now_holds']:.0f} %"
            for one in by_seeds.values()
        ]
        assert f"| {name} | {' | '.join(cells)} |" in lines
    for name in ("not at all", "much more"):
        widths = [
            f"{one['before_width']:.1f}, {one['now_width']:.1f}"
            for one in found["intervals"][name].values()
        ]
        assert f"| *width*, {name} | {' | '.join(widths)} |" in lines
    assert f"in {found['studies']} simulated studies" in page("metrics.md")
    told = found["told"]
    alike = [100 * share for name, share in told.items() if "alike" in name]
    others = [100 * share for name, share in told.items() if "alike" not in name]
    assert f"{min(alike):.0f} to {max(alike):.0f} % of simulated columns" in page("tables.md")
    assert f"in up to {max(others):.0f} % if some spread" in page("tables.md")


def test_what_earlier_intervals_of_the_study_would_be() -> None:
    """How much wider, from the figures by seed, where single examples are not kept.

    Examples are what is left of the published width when seeds are taken off.
    """
    folder = ROOT / "results" / "uscore"
    by_seed: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    with (folder / "runs.csv").open(encoding="utf-8", newline="") as content:
        for row in csv.DictReader(content):
            by_seed[row["task"], f"{row['way']}:{row['score']}"][int(row["seed"])] = float(
                row["auarc"] or "nan"
            )
    shown = page("uscore.md")
    wider = {}
    for file in ("tests.json", "all-labels.json", "all-labels-uscore.json"):
        report = json.loads((folder / file).read_text())
        for task, result in report["tasks"].items():
            for name, one in result["against"].items():
                ends = f"{one['difference']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f})"
                pairs = [
                    100 * (by_seed[task, report["ours"]][s] - by_seed[task, one["reference"]][s])
                    for s in one["seeds"]
                ]
                seeds = len(pairs)
                of_seeds = float(np.var(pairs, ddof=1)) / seeds
                before = ((one["high"] - one["low"]) / 3.92) ** 2
                now = max(before - of_seeds * (seeds - 1) / seeds, 0.0) + of_seeds
                freedom = (seeds - 1) * (now / of_seeds) ** 2
                scale = np.sqrt(now / before) * student.ppf([0.975, 0.95], freedom)
                width, one_sided = scale / student.ppf([0.975, 0.95], np.inf)
                if f"{ends} |" in shown:
                    wider[file, task, name] = width, one["difference"]
                lower = one["difference"] - one_sided * (one["difference"] - one["lower_95"])
                if "met" in one and result["goal"] == "not inferior":
                    assert one["met"] == (lower > -result["margin"])
                if "met" in one and result["goal"] == "superior":
                    chance = student.sf(one["difference"] / np.sqrt(now), freedom)
                    assert one["met"] == (3 * chance < 0.05), (file, task, name)
    widths = sorted(width for width, _ in wider.values())
    said = re.search(
        r"would be (\d\.\d) to (\d\.\d) times as wide, one \((-0\.04)\) (\d\.\d)", shown
    )
    assert said
    assert (f"{widths[0]:.1f}", f"{widths[-2]:.1f}", f"{widths[-1]:.1f}") == (
        said[1], said[2], said[4],
    )  # fmt: skip
    assert max(wider.values())[1] == float(said[3]) or round(max(wider.values())[1], 2) == -0.04

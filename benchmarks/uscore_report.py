"""Tables, tests and pictures of the study of the U-Score.

    python benchmarks/uscore_report.py OUT --select --out results/uscore
    python benchmarks/uscore_report.py OUT --ours trajectory:fused --out results/uscore \
        --cells results/cells.zip

``--select`` reads tune data only, to fix one setting. Without it the test sets are read: for the
setting that was fixed, once. ``--cells`` adds what the tables of the paper know of other methods,
``--known`` what an earlier report tells of runs that are not in OUT: tests and ensembles are its,
where it had more seeds of them, and all figures can be made anew. What stands beside the comparable
methods says why: passes at inference, or more labels.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from revar.errors import InputError
from uscore_cells import cell_rows
from uscore_figures import curves_figure, differences_figure
from uscore_known import ENSEMBLES, Known
from uscore_store import FIGURES, Run, runs_in
from uscore_tasks import (
    AUGMENTED,
    BESIDE,
    BESIDE_TASKS,
    COPIES,
    FOLDERS,
    MEMBERS,
    ON_ALL,
    TASKS,
)
from uscore_tests import (
    Choice,
    Runs,
    best_comparable,
    differences,
    ensemble_figures,
    gap_closed,
    judge,
    references,
    seeds_of,
)
from where import told

_HEADS = {
    "auarc": "AUARC", "normalised_auarc": "norm. AUARC", "augrc": "AUGRC",
    "failure_auroc": "failure AUROC", "accuracy": "accuracy", "ece": "ECE",
}  # fmt: skip
Row = dict[str, Any]


def by_folder(out: Path) -> dict[str, dict[tuple[str, int], Run]]:
    """Finished runs.

    Raises:
        InputError: there are none.
    """
    found: dict[str, dict[tuple[str, int], Run]] = {}
    for run in runs_in(out):
        found.setdefault(run.folder, {})[run.way, run.seed] = run
    if not found:
        raise InputError(f'"{out}" has no finished runs')
    return found


def rows_of(runs: Runs, split: str) -> list[Row]:
    """One row for each run and score, with its figures on a set; nothing else is opened."""
    rows = []
    for (way, seed), run in sorted(runs.items()):
        if split not in run.sets:
            continue
        about = run.about
        for score, figures in run.figures(split).items():
            rows.append({
                "folder": run.folder, "set": split, "way": way, "method": about["method"],
                "score": score, "own": score == about["own"], "default": score == about["default"],
                "seed": seed, **figures,
                "ece": run.calibration_error(split, score)
                if score in ("softmax", AUGMENTED) else None,
                "seconds": about["seconds"], "recipe": about["digest"],
            })  # fmt: skip
    return rows


def _mean(rows: Sequence[Mapping[str, Any]], figure: str) -> tuple[float, float]:
    """Over seeds, in percent, and the standard deviation; NaN where something is undefined."""
    values = 100 * np.array([row[figure] for row in rows], dtype=float)
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan


def _grouped(rows: Sequence[Row]) -> dict[Choice, list[Row]]:
    found: dict[Choice, list[Row]] = {}
    for row in rows:
        found.setdefault(Choice(row["way"], row["score"]), []).append(row)
    return found


def selection(folders: Mapping[str, Runs]) -> list[Row]:
    """Ways and scores by their mean AUARC over tasks on tune data, the best first.

    Those that lack a task or a seed stand at the end, without a mean.
    """
    names = [name for name in FOLDERS if name in folders]
    rows = {name: _grouped(rows_of(folders[name], "tune")) for name in names}
    most = {name: max((len(r) for r in rows[name].values()), default=0) for name in names}
    table = []
    for choice in dict.fromkeys(choice for name in names for choice in rows[name]):
        if choice.way in MEMBERS:
            continue
        there = {name: rows[name][choice] for name in names if choice in rows[name]}
        line: Row = {"way": choice.way, "score": choice.score}
        line["default"] = any(row["default"] for some in there.values() for row in some)
        for name in names:
            some = there.get(name, [])
            line[name] = _mean(some, "auarc")[0] if some else math.nan
            line[f"{name} accuracy"] = _mean(some, "accuracy")[0] if some else math.nan
            line[f"{name} seeds"] = len(some)
        whole = all(line[f"{name} seeds"] == most[name] for name in names)
        line["mean"] = float(np.mean([line[name] for name in names])) if whole else math.nan
        table.append(line)
    return sorted(table, key=lambda line: (math.isnan(line["mean"]), -line["mean"]))


def table_of(
    rows: Sequence[Row],
    ensembles: Mapping[int, Mapping[str, float]],
    scores: Sequence[str] = ("softmax",),
    ours: Choice | None = None,
    known: Row | None = None,
) -> list[Row]:
    """One line for each way and score that counts: default, own, these, and ours of its method.

    The mean over augmented copies stands beside, as the ensembles do: of these there is one line,
    the one of an earlier report where that has more seeds.
    """
    table: list[Row] = []
    method = {row["method"] for row in rows if ours is not None and row["way"] == ours.way}
    grouped = _grouped(rows)
    for choice, some in grouped.items():
        counts = some[0]["own"] or some[0]["default"] or choice.score in scores
        counts |= ours is not None and choice.score == ours.score and some[0]["method"] in method
        counts |= choice.score == AUGMENTED
        # Of plain training all scores, but for those that some of its seeds do not have.
        plain = choice.way == "erm" and len(some) == len(grouped[Choice("erm", "softmax")])
        if choice.way in MEMBERS or not (counts or plain):
            continue
        line: Row = {"way": choice.way, "score": choice.score, "seeds": len(some)}
        line["beside"] = _beside(choice, some[0]["method"])
        told = [row["from"] for row in some if "from" in row]
        line["from"] = f"{told[0]}, {len(told)} seeds" if told else ""
        for figure in _HEADS:
            line[figure], line[f"{figure} deviation"] = _mean(some, figure)
        table.append(line)
    if known is not None and known["seeds"] > len(ensembles):
        table.append(known)
    elif ensembles:
        line = {"way": ENSEMBLES, "score": "softmax", "seeds": len(ensembles)}
        line |= {"beside": "5 passes", "from": ""}
        for figure in FIGURES:
            line[figure], line[f"{figure} deviation"] = _mean(list(ensembles.values()), figure)
        table.append(line)
    return sorted(table, key=lambda line: -line["auarc"])


def _beside(choice: Choice, method: str) -> str:
    """Why a line is no match for one pass of training on train and meta."""
    if choice.score == AUGMENTED:
        price = f"{1 + COPIES} passes"
    else:
        # The classifier is asked once, whatever else its method can do.
        price = "" if choice.score == "softmax" else BESIDE.get(method, "")
    more = "more labels" if choice.way.endswith(ON_ALL) else ""
    return ", ".join(reason for reason in (price, more) if reason)


def markdown(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table with a title."""
    head = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return "\n".join([f"### {title}", "", *head, *(f"| {' | '.join(line)} |" for line in lines)])


def _number(value: float, deviation: float = math.nan) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if math.isnan(deviation) else f"{value:.2f} ± {deviation:.2f}"


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """All rows, under the names of all their columns."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, keys, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_selection(folders: Mapping[str, Runs], out: Path) -> str:
    """``select.csv`` and ``select.md``, and what the latter says."""
    table = selection(folders)
    if not table:
        raise InputError("no finished run has tune data")
    names = [name for name in FOLDERS if name in folders]
    heads = ["", "way", "score", "mean", *names, *(f"{name} accuracy" for name in names)]
    lines = [
        [str(place), line["way"], line["score"], *(_number(line[head]) for head in heads[3:])]
        for place, line in enumerate(table, 1)
    ]
    text = markdown("Tune data, AUARC and accuracy in %, mean over seeds", heads, lines)
    write_csv(out / "select.csv", table)
    (out / "select.md").write_text(text + "\n", encoding="utf-8")
    return text


def write_report(
    folders: Mapping[str, Runs],
    ours: Choice,
    resamples: int,
    out: Path,
    cells: Path | None = None,
    known: Path | None = None,
) -> str:
    """All files of a report on test data, and what the Markdown says."""
    of_cells = {} if cells is None else cell_rows(cells)
    earlier = Known() if known is None else Known.read(known)
    asked = {**TASKS, **BESIDE_TASKS}
    every, tables, texts = [], [], []
    results: dict[str, dict[str, Any]] = {}
    for name, task in asked.items():
        runs = folders.get(task.folder, {})
        rows = [*rows_of(runs, task.split), *earlier.without(name, runs)]
        there = {(row["way"], row["seed"]) for row in rows}
        others = of_cells.get((task.folder, task.split), ())
        rows += [row for row in others if (row["way"], row["seed"]) not in there]
        if not there:
            continue
        rows.sort(key=lambda row: (row["way"], row["seed"]))
        every += [{"task": name, **row} for row in rows]
        ensembles = ensemble_figures(runs, task.split)
        lines = table_of(rows, ensembles, ours=ours, known=earlier.ensembles.get(name))
        tables += [{"task": name, **line} for line in lines]
        texts.append(task_text(name, lines))
        against = _tested(runs, ours, task.split, resamples, earlier.tests(ours, name))
        if not against:
            continue
        results[name] = {"against": against, "best_comparable": best_comparable(rows, ours)}
        if task.goal == "not inferior":
            gap = gap_closed(rows, ours, ensembles)
            before = earlier.gaps.get(name) if str(ours) == earlier.ours else None
            if before is not None and (gap is None or len(gap["seeds"]) < len(before["seeds"])):
                gap = before
            results[name]["gap_to_ensemble_closed"] = gap
    if not results:
        raise InputError(f'no task has runs of "{ours.way}"')
    judge(asked, results)
    tests = {"ours": str(ours), "resamples": resamples, "tasks": results}
    (out / "tests.json").write_text(json.dumps(tests, indent=1) + "\n", encoding="utf-8")
    write_csv(out / "runs.csv", every)
    write_csv(out / "tables.csv", tables)
    write_recipes(folders, out / "recipes.jsonl", earlier)
    text = "\n\n".join([_tests_text(results, ours), *texts])
    (out / "tables.md").write_text(text + "\n", encoding="utf-8")
    differences_figure(results, asked, ours, out / "differences.png")
    panels = {
        name: (folders[asked[name].folder], asked[name].split)
        for name, result in results.items()
        if seeds_of(folders.get(asked[name].folder, {}), ours.way)
        # Not of fewer seeds than the tests that it goes with.
        >= next(iter(result["against"].values()))["seeds"]
    }
    if panels:
        main_ones = {name: panel for name, panel in panels.items() if name in TASKS}
        curves_figure(main_ones or panels, ours, out / "curves.png")
    return text


def _tested(
    runs: Runs, ours: Choice, split: str, resamples: int, earlier: Mapping[str, Any]
) -> dict[str, Any]:
    """Differences of runs at hand; those of an earlier report where that had more seeds."""
    there = bool(seeds_of(runs, ours.way))
    new = differences(runs, ours, split, resamples=resamples) if there else {}
    found = {}
    for which in references(ours):
        known = [tests[which] for tests in (new, earlier) if which in tests]
        if known:
            found[which] = max(known, key=lambda test: len(test["seeds"]))
    return found


def task_text(name: str, lines: Sequence[Row]) -> str:
    """What `table_of` found, as Markdown."""
    heads = ["way", "score", *_HEADS.values(), "seeds", "beside", "from"]
    cells = [
        [
            line["way"], line["score"],
            *(_number(line.get(f, math.nan), line.get(f"{f} deviation", math.nan)) for f in _HEADS),
            str(line["seeds"]), line["beside"], line["from"],
        ]
        for line in lines
    ]  # fmt: skip
    return markdown(f"{name}, test data, %", heads, cells)


def _tests_text(results: Mapping[str, dict[str, Any]], ours: Choice) -> str:
    heads = ["task", "goal", "against", "difference", "95 % interval", "lower 95 %", "p one-sided",
             "p Holm", "met", "best comparable"]  # fmt: skip
    lines = []
    for name, result in results.items():
        best = result["best_comparable"]
        said = (
            "-" if best is None else f"{best['name']} {best['auarc']:.2f}, ours {best['ours']:.2f}"
        )
        for reference, one in result["against"].items():
            p_holm = f"{one['p_holm']:.4f}" if "p_holm" in one else "-"
            met = ("yes" if one["met"] else "no") if "met" in one else "-"
            lines.append([
                name, result["goal"], reference, f"{one['difference']:+.2f}",
                f"{one['low']:+.2f} to {one['high']:+.2f}", f"{one['lower_95']:+.2f}",
                f"{one['p']:.4f}", p_holm, met, said,
            ])  # fmt: skip
    title = f"AUARC of {ours} less softmax response, points"
    return markdown(title, heads, lines)


def write_recipes(folders: Mapping[str, Runs], path: Path, earlier: Known | None = None) -> None:
    """One line of JSON for each run: how it was made, where and when."""
    lines = {} if earlier is None else dict(earlier.recipes)
    for folder, runs in folders.items():
        for (way, seed), run in runs.items():
            kept = {key: run.about[key] for key in ("recipe", "fusion", "sizes", "made", "seconds")}
            kept["made"] = {**kept["made"], "command": told(kept["made"]["command"])}
            whole = {"folder": folder, "way": way, "seed": seed, **kept}
            lines[folder, way, seed] = json.dumps(whole)
    path.write_text("".join(f"{lines[key]}\n" for key in sorted(lines)), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Select, or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, help="what uscore.py wrote")
    parser.add_argument("--select", action="store_true", help="tune data only")
    parser.add_argument("--ours", default="trajectory:fused", metavar="WAY:SCORE")
    parser.add_argument("--cells", type=Path, metavar="FILE", help="results/cells.zip")
    parser.add_argument("--known", type=Path, metavar="FOLDER", help="of an earlier report")
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("results/uscore"))
    options = parser.parse_args(arguments)
    try:
        folders = by_folder(options.study)
        options.out.mkdir(parents=True, exist_ok=True)
        if options.select:
            print(write_selection(folders, options.out))
        else:
            ours = Choice.parse(options.ours)
            print(write_report(
                folders, ours, options.resamples, options.out, options.cells, options.known
            ))  # fmt: skip
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The data that were kept aside until the setting of the U-Score was fixed: run and told once.

    python benchmarks/uscore_aside.py OUT --only heart usps --device cpu
    python benchmarks/uscore_aside.py OUT --only pacs --device cuda --workers 14 --commit abc1234
    python benchmarks/uscore_aside.py OUT --pack 8
    python benchmarks/uscore_aside.py OUT --unpack part-0.zip
    python benchmarks/uscore_aside.py OUT --table results/uscore

Runs are files like those of uscore.py, by the same protocol: all ways on one data set have the
same net and schedule, and differ in the labels they see and in what they do with them. ``--table``
writes ``aside.csv`` (every run and score), ``aside.json`` (differences), ``aside.jsonl`` (recipes)
and ``aside.md``, and prints the last.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from revar.errors import InputError
from revar.recipe import Budget
from revar.tables.cell import DataChoice
from revar.tables.places import Setting, scale_of
from uscore import add_options, is_carried, train
from uscore_report import (
    by_folder,
    markdown,
    rows_of,
    table_of,
    task_text,
    write_csv,
    write_recipes,
)
from uscore_run import SCORES
from uscore_store import Run
from uscore_tasks import WHOLE, Folder, Job, way_named
from uscore_tests import Choice, Runs, differences
from where import made_here

WAYS = (WHOLE, "erm+meta", "trajectory+meta")
OURS = Choice("trajectory+meta", "fused")
"""As it was fixed on tune data of the study."""
_PHOTOS = scale_of("small").places["imagenet-r"].setting
ASIDE: dict[str, Folder] = {
    "heart": Folder(
        # What a user who says nothing gets.
        place=Setting(
            data=DataChoice(name="heart-disease"), backbone="auto", epochs=Budget().epochs
        ),
        sets={name: name for name in ("test", "hungarian", "switzerland", "va")},
        seconds=2,
    ),
    "usps": Folder(
        # Epochs and batch of CIFAR-10 in the study.
        place=Setting(
            data=DataChoice(name="usps-to-mnist"), backbone="resnet20", epochs=20,
            settings=(("batch_size", "128"),),
        ),
        sets={"test": "test", "mnist": "mnist"},
        seconds=20,
    ),
    "pacs": Folder(
        place=_PHOTOS, sets={"test": "test"},
        domains={"cartoon": "pacs-cartoon", "sketch": "pacs-sketch"}, seconds=25,
    ),
}  # fmt: skip
SEEDS = {"heart": 20, "usps": 5, "pacs": 5}
"""More where a run is short and its splits are tiny. Test sets are the same for all seeds."""


def jobs_aside(only: Sequence[str], seeds: int | None = None) -> list[Job]:
    """All runs, those of the first seed first and of each seed the longest first.

    Args:
        only: names of `ASIDE`.
        seeds: of each, instead of `SEEDS`.
    """
    jobs = [
        Job(folder=name, way=way_named(way), seed=seed, other=ASIDE[name])
        for name in only
        for seed in range(SEEDS[name] if seeds is None else seeds)
        for way in WAYS
    ]
    return sorted(jobs, key=lambda job: (job.seed, -job.seconds))


def tasks_aside() -> dict[str, tuple[str, str]]:
    """Folder and set of everything that is asked, by name."""
    return {
        name if split == "test" else f"{name}-{split}": (name, split)
        for name, folder in ASIDE.items()
        for split in (*folder.sets, *folder.domains)
    }


def write_aside(
    folders: Mapping[str, Runs], resamples: int, out: Path, made: Mapping[str, Any], missing: int
) -> str:
    """All files of the report, and what the Markdown says.

    Args:
        folders: finished runs.
        resamples: of the bootstrap.
        out: a folder.
        made: what made the report.
        missing: how many runs are.
    """
    every: list[dict[str, Any]] = []
    texts: list[str] = []
    results: dict[str, dict[str, Any]] = {}
    for name, (folder, split) in tasks_aside().items():
        runs = folders.get(folder, {})
        rows = rows_of(runs, split)
        every += [{"task": name, **row} for row in rows]
        if rows:
            texts.append(task_text(name, table_of(rows, {}, SCORES)))
        results[name] = differences(runs, OURS, split, resamples=resamples)
    found = {
        **made, "ours": str(OURS), "resamples": resamples, "missing": missing, "tasks": results
    }  # fmt: skip
    (out / "aside.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_csv(out / "aside.csv", every)
    write_recipes(folders, out / "aside.jsonl")
    runs_made = [f"* {name}: {_made(list(runs.values()))}" for name, runs in folders.items()]
    lacking = [f"**{missing} runs are missing.**"] if missing else []
    text = "\n\n".join([*lacking, _tests_text(results), "\n".join(runs_made), *texts])
    (out / "aside.md").write_text(text + "\n", encoding="utf-8")
    return text


def _tests_text(results: Mapping[str, dict[str, dict[str, Any]]]) -> str:
    heads = ["set", "less softmax of", "difference", "95 % interval", "seeds", "examples"]
    lines = [
        [
            name, reference, f"{one['difference']:+.2f}",
            f"{one['low']:+.2f} to {one['high']:+.2f}", str(len(one["seeds"])),
            str(one["drawn_as_wholes"]),
        ]
        for name, against in results.items()
        for reference, one in against.items()
    ]  # fmt: skip
    return markdown(f"Kept aside: AUARC of {OURS} less softmax response, points", heads, lines)


def _made(runs: Sequence[Run]) -> str:
    """Where, when and from what."""
    made = [run.about["made"] for run in runs]

    def all_of(key: str, unknown: str) -> str:
        return ", ".join(sorted({one[key] or unknown for one in made}))

    dates = sorted({one["date"][:10] for one in made})
    return (
        f"{len(made)} runs, {' and '.join(dict.fromkeys((dates[0], dates[-1])))}, "
        f"commit {all_of('commit', 'unknown')}, torch {all_of('torch', '')}, "
        f"{all_of('processor', 'a CPU')}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run, pack, unpack or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--only", nargs="+", choices=list(ASIDE), default=list(ASIDE))
    parser.add_argument("--seeds", type=int, help="fewer than planned, to try it")
    parser.add_argument("--table", type=Path, metavar="DIR", help="report all finished runs")
    parser.add_argument("--resamples", type=int, default=2000)
    options = parser.parse_args(arguments)
    try:
        if is_carried(options):
            return 0
        if options.table is None:
            return train(jobs_aside(options.only, options.seeds), options)
        folders = by_folder(options.out)
        odd = [name for name in folders if name not in ASIDE]
        if odd:
            raise InputError(f'"{options.out}" has runs of something else: {", ".join(odd)}')
        planned = jobs_aside(list(ASIDE))
        missing = sum(not job.file(options.out).exists() for job in planned)
        options.table.mkdir(parents=True, exist_ok=True)
        made = made_here(__file__, arguments or sys.argv[1:], options.commit)
        print(write_aside(folders, options.resamples, options.table, made, missing))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

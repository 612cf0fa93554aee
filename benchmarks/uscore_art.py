"""PACS, photos to art paintings: where the U-Score could beat softmax response, run on its own.

    python benchmarks/uscore_art.py OUT --device cuda --workers 10 --commit abc1234
    python benchmarks/uscore_art.py OUT --pack 8
    python benchmarks/uscore_art.py OUT --unpack part-0.zip
    python benchmarks/uscore_art.py OUT --table results/uscore

Plain training and `trajectory` on the same labels, five seeds, by net and schedule of the photos of
uscore_aside.py. Unlike cartoons and sketches, paintings were not kept aside: the tables of the
paper have other methods on them. ``--table`` writes ``art.csv`` (every run and score), ``art.json``
(differences) and ``art.jsonl`` (recipes), and prints tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from revar.errors import InputError
from revar.tables.places import scale_of
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
from uscore_tasks import Folder, Job, way_named
from uscore_tests import Choice, Runs, differences
from where import made_here

FOLDER = "pacs-photo"
PHOTOS = Folder(
    place=scale_of("small").places["imagenet-r"].setting,
    sets={"test": "test", "art_painting": "art_painting"}, seconds=25,
)  # fmt: skip
WAYS = ("erm", "trajectory")
SEEDS = 5
TESTED = tuple(Choice("trajectory", score) for score in ("uscore", "fused", "softmax"))
"""Each against softmax response of the same classifier and of plain training."""


def jobs_of_art(seeds: int = SEEDS) -> list[Job]:
    """All runs, those of the first seed first."""
    return [
        Job(folder=FOLDER, way=way_named(way), seed=seed, other=PHOTOS)
        for seed in range(seeds)
        for way in WAYS
    ]


def write_art(runs: Runs, resamples: int, out: Path, made: Mapping[str, Any]) -> str:
    """All files of the report, and what is to be said of them.

    Args:
        runs: finished, by way and seed.
        resamples: of the bootstrap.
        out: a folder.
        made: what made the report.
    """
    every: list[dict[str, Any]] = []
    texts: list[str] = []
    results: dict[str, dict[str, Any]] = {}
    for split in PHOTOS.sets:
        rows = rows_of(runs, split)
        every += rows
        texts.append(task_text(f"{FOLDER}, {split}", table_of(rows, {}, SCORES)))
        results[split] = {
            str(ours): differences(runs, ours, split, resamples=resamples) for ours in TESTED
        }
    found = {**made, "resamples": resamples, "sets": results}
    (out / "art.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_csv(out / "art.csv", every)
    write_recipes({FOLDER: runs}, out / "art.jsonl")
    heads = ["set", "score", "less softmax of", "difference", "95 % interval", "seeds"]
    lines = [
        [
            split, ours, reference, f"{one['difference']:+.2f}",
            f"{one['low']:+.2f} to {one['high']:+.2f}", str(len(one["seeds"])),
        ]
        for split, of_scores in results.items()
        for ours, against in of_scores.items()
        for reference, one in against.items()
    ]  # fmt: skip
    return "\n\n".join([markdown("AUARC less softmax response, points", heads, lines), *texts])


def main(arguments: list[str] | None = None) -> int:
    """Run, pack, unpack or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="fewer than planned, to try it")
    parser.add_argument("--table", type=Path, metavar="DIR", help="report all finished runs")
    parser.add_argument("--resamples", type=int, default=2000)
    options = parser.parse_args(arguments)
    try:
        if is_carried(options):
            return 0
        if options.table is None:
            return train(jobs_of_art(options.seeds), options)
        folders = by_folder(options.out)
        if set(folders) != {FOLDER}:
            raise InputError(f'"{options.out}" has runs of something else: {", ".join(folders)}')
        options.table.mkdir(parents=True, exist_ok=True)
        made = made_here(__file__, arguments or sys.argv[1:], options.commit)
        print(write_art(folders[FOLDER], options.resamples, options.table, made))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

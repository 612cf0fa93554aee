"""Train the runs of the study of the U-Score, or what is missing of them.

    python benchmarks/uscore.py OUT --device cuda --workers 15
    python benchmarks/uscore.py OUT --device cuda --workers 15 --variants pilot.json --seeds 2
    python benchmarks/uscore.py OUT --device cuda --workers 15 --jobs list.txt
    python benchmarks/uscore.py OUT --pack 8
    python benchmarks/uscore.py OUT --unpack part-0.zip part-1.zip

Every finished run is one file, ``OUT/<task>/<way>-<seed>.npz``, see uscore_store.py; one that
failed leaves a ``.txt`` with its reason and is tried again by the next call. What is printed while
it goes on is of tune data. uscore_report.py makes tables of it.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from revar.errors import InputError
from side_by_side import DIED, run_all
from uscore_run import Told, is_finished, one_run, start_worker, write_note
from uscore_store import pack, unpack
from uscore_tasks import (
    BESIDE,
    TASKS,
    Job,
    Way,
    jobs_of,
    listed,
    standard_ways,
    variants,
    way_named,
)


def main(arguments: list[str] | None = None) -> int:
    """Run, pack or unpack."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), metavar="TASK")
    names = [way.name for way in standard_ways()]
    parser.add_argument(
        "--ways", nargs="+", metavar="WAY",
        help=f"{', '.join(names)}; beside these {', '.join(BESIDE)}",
    )  # fmt: skip
    parser.add_argument("--variants", type=Path, help="JSON: name to method and fields")
    parser.add_argument("--jobs", type=Path, help="instead: lines of folder, way and seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--scale", default="small", choices=("smoke", "small"))
    parser.add_argument("--clean-meta", action="store_true", help="noisy tasks, clean meta set")
    options = parser.parse_args(arguments)
    try:
        if is_carried(options):
            return 0
        if options.jobs is not None:
            jobs = listed(options.jobs, clean_meta=options.clean_meta, scale=options.scale)
        else:
            jobs = jobs_of(
                options.tasks, _ways(options), options.seeds, clean_meta=options.clean_meta,
                scale=options.scale,
            )  # fmt: skip
        return train(jobs, options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of every script that trains runs: what `is_carried` and `train` are told."""
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--commit", default="", help="of the code, where git cannot tell")
    parser.add_argument("--plan", action="store_true", help="say what would run, and how long")
    parser.add_argument("--pack", type=int, metavar="N", help="at most N parts below 15 MiB")
    parser.add_argument("--unpack", type=Path, nargs="+", metavar="FILE")


def is_carried(options: argparse.Namespace) -> bool:
    """Pack or unpack, if that was asked for.

    Raises:
        InputError: a file is no part of a study.
    """
    if options.unpack is not None:
        new, there = unpack(options.unpack, options.out)
        print(f"{new} runs are new, {there} were there")
        return True
    if options.pack is not None:
        for part in pack(options.out, options.pack):
            print(f"{part} {part.stat().st_size / 2**20:.1f} MiB")
        return True
    return False


def died(job: Job, out: Path) -> Told:
    """Say beside a run, and here, that its workers died."""
    write_note(job.file(out), DIED)
    return Told(job=job, reason=DIED)


def train(jobs: Sequence[Job], options: argparse.Namespace) -> int:
    """Run what is missing of these, and give the exit status: 1 if one failed.

    Raises:
        InputError: a run is there, but was made in another way.
    """
    missing = [job for job in jobs if not is_finished(job, options.out)]
    minutes = sum(job.seconds for job in missing) / max(options.workers, 1) / 60
    known = f", about {minutes:.0f} minutes on a GPU" if jobs[0].scale == "small" else ""
    print(f"{len(missing)} of {len(jobs)} runs are missing{known}", flush=True)
    if options.plan:
        for job in missing:
            print(f"{job.seconds:6.0f} s  {job}")
        return 0
    began, failed, count = time.perf_counter(), 0, 0

    def tell(told: Told) -> None:
        nonlocal failed, count
        count += 1
        failed += told.reason is not None
        said = told.reason or ", ".join(
            f"{score} {100 * value:.2f}"
            for score, value in (told.figures or {}).items()
            if value is not None
        )
        gone = time.perf_counter() - began
        print(
            f"{gone:7.1f} s  {count}/{len(missing)} {told.job}: {told.seconds:.0f} s, "
            f"{'FAILED ' if told.reason else 'tune AUARC ' if said else ''}{said}",
            flush=True,
        )

    work = functools.partial(one_run, out=options.out, device=options.device, code=options.commit)
    run_all(
        missing, work, options.workers, tell, functools.partial(died, out=options.out), start_worker
    )
    print(f"{len(missing) - failed} finished, {failed} failed")
    return 1 if failed else 0


def _ways(options: argparse.Namespace) -> list[Way]:
    named = [way_named(name) for name in options.ways or ()]
    own = [] if options.variants is None else variants(options.variants)
    return [*named, *own] or standard_ways()


if __name__ == "__main__":
    raise SystemExit(main())

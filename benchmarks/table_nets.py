"""Which network should a table get that asks for none?

Trains each network on every table of a folder and on those of scikit-learn, with plain training and
with our default, two fifths of the rows kept for the test, and prints what each has over the first
one. Finished runs are kept in a CSV file and not made again.

    python benchmarks/table_nets.py FOLDER --runs results/table_nets/runs.csv --workers 2 \
        --json results/table_nets/summary.json

A folder holds CSV files with a column "target". Ours were the tables that `tables.R` writes, and
the Cleveland part of UCI's heart disease, disease or none (`docs/backbones.md`).

The rule, written down before the runs: `auto` becomes the net that trains fastest of those whose
AUARC over both methods is above that of the first one by an interval that excludes zero, if its
accuracy is not below.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy.stats import t as student
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

from revar import SelectiveClassifier
from revar.data.files import read_frame
from revar.metrics import auarc
from side_by_side import in_one_line, run_all
from where import here, keep

NETS = ("mlp", "mlp-256x3", "mlp-256x4", "mlp-512x4", "tabular")
METHODS = ("erm", "trajectory")
TARGET, TEST_SHARE = "target", 0.4
LOADERS = {"digits": load_digits, "wine": load_wine, "breast_cancer": load_breast_cancer}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run."""

    table: str
    method: str
    net: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of it; percent, of the test rows, and seconds."""

    table: str
    method: str
    net: str
    seed: int
    rows: int
    accuracy: float
    auarc: float
    nll: float
    seconds: float

    @property
    def job(self) -> Job:
        """Which one it was."""
        return Job(table=self.table, method=self.method, net=self.net, seed=self.seed)


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """With its target."""
    if name in LOADERS:
        frame: pd.DataFrame = LOADERS[name](as_frame=True).frame
        return frame
    return read_frame(folder / f"{name}.csv")


def take(folder: Path, most: int, job: Job) -> Run:
    """Train and ask about the test rows, which are the same for every net and method."""
    x = read_table(folder, job.table)
    if len(x) > most:
        x = x.sample(most, random_state=job.seed)
    y = x.pop(TARGET).astype(str).to_numpy()
    x_train, x_test, y_train, y_test = train_test_split(
        x, y, test_size=TEST_SHARE, random_state=job.seed
    )
    classifier = SelectiveClassifier(job.method, job.net, random_state=job.seed, device="cpu")
    began = time.perf_counter()
    with warnings.catch_warnings():
        # Of tables with few rows of a class, gaps and numbers in text.
        warnings.simplefilter("ignore")
        classifier.fit(x_train, y_train)
        seconds = time.perf_counter() - began
        uncertainty, labels = classifier.uncertainty(x_test), classifier.predict(x_test)
        probabilities = classifier.predict_proba(x_test)
    right = labels == y_test
    # A class that no training row has is given no chance: as little as a single number holds.
    given = (classifier.classes_[None] == y_test[:, None]) * probabilities
    nll = -np.log(np.maximum(given.sum(1), np.finfo(np.float32).tiny)).mean()
    return Run(
        **asdict(job), rows=len(x), accuracy=100 * float(right.mean()),
        auarc=100 * auarc(uncertainty, right), nll=float(nll), seconds=seconds,
    )  # fmt: skip


def _take(folder: Path, most: int, job: Job) -> Run | str:
    try:
        return take(folder, most, job)
    except Exception as error:
        return f"{job}: {in_one_line(error)}"


def _died(job: Job) -> Run | str:
    return f"{job}: its worker died"


def kept_runs(file: Path) -> list[Run]:
    """Those made before."""
    if not file.is_file():
        return []
    kinds = {one.name: {"int": int, "float": float}.get(str(one.type), str) for one in fields(Run)}
    with file.open(encoding="utf-8", newline="") as lines:
        return [Run(**{n: kinds[n](v) for n, v in row.items()}) for row in csv.DictReader(lines)]


def add(file: Path, run: Run) -> None:
    """At the end, with a first line of names where there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = not file.is_file()
    with file.open("a", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, [one.name for one in fields(Run)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({k: round(v, 6) if isinstance(v, float) else v
                         for k, v in asdict(run).items()})  # fmt: skip


def mean_of(runs: Sequence[Run], what: str, **chosen: str) -> float:
    """Over seeds, and methods where none is chosen."""
    values = [
        getattr(run, what) for run in runs
        if all(getattr(run, name) == value for name, value in chosen.items())
    ]  # fmt: skip
    return fmean(values)


def gain(
    runs: Sequence[Run], what: str, net: str, first: str, tables: Sequence[str]
) -> dict[str, float]:
    """What a net has over the first, in the mean over tables, with a 95 % interval over tables."""
    each = [
        mean_of(runs, what, net=net, table=name) - mean_of(runs, what, net=first, table=name)
        for name in tables
    ]  # fmt: skip
    mean, half = fmean(each), float("nan")
    if len(each) > 1:
        half = float(student.ppf(0.975, len(each) - 1)) * stdev(each) / sqrt(len(each))
    return {"mean": mean, "low": mean - half, "high": mean + half,
            "above": sum(value > 0 for value in each)}  # fmt: skip


def main() -> None:
    """Print tables and write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of CSV files")
    parser.add_argument("--tables", nargs="*", help="only these")
    parser.add_argument("--nets", nargs="+", default=NETS, help="all are compared with the first")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=20_000, help="rows of a table")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--runs", type=Path, required=True, help="CSV file")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [*sorted(file.stem for file in options.folder.glob("*.csv")), *LOADERS]
    tables = [name for name in names if options.tables is None or name in options.tables]
    jobs = [
        Job(table=table, method=method, net=net, seed=seed)
        for seed in range(options.seeds) for table in tables
        for method in options.methods for net in options.nets
    ]  # fmt: skip
    runs = [run for run in kept_runs(options.runs) if run.job in set(jobs)]
    made = {run.job for run in runs}
    failed: list[str] = []
    left = [job for job in jobs if job not in made]
    console = Console()

    def tell(found: Run | str) -> None:
        bar.advance(task)
        if isinstance(found, str):
            console.print(found)
            failed.append(found)
        else:
            add(options.runs, found)
            runs.append(found)

    with Progress(console=console) as bar:
        task = bar.add_task("runs", total=len(left))
        if left:
            work = partial(_take, options.folder, options.most)
            run_all(left, work, options.workers, tell, _died, partial(torch.set_num_threads, 1))
    if failed:
        raise SystemExit(f"{len(failed)} runs failed; the others are in {options.runs}")
    show(console, runs, tables, options.nets, options.methods)
    first, *others = options.nets
    gains = {
        net: {
            method: {what: gain([run for run in runs if method in (run.method, "both")], what, net,
                                first, tables) for what in ("auarc", "accuracy", "nll")}
            for method in (*options.methods, "both")
        }
        for net in others
    }  # fmt: skip
    keep(options.json, {**here(), "rows": {t: int(mean_of(runs, "rows", table=t)) for t in tables},
                        "over": first, "gains": gains})  # fmt: skip


def show(
    console: Console, runs: list[Run], tables: list[str], nets: list[str], methods: list[str]
) -> None:
    """AUARC by table, and what each net has over the first."""
    first, *others = nets
    for method in methods:
        chosen = [run for run in runs if run.method == method]
        table = Table(title=f"AUARC, {method}")
        for column in ("table", "rows", *nets):
            table.add_column(column, justify="left" if column == "table" else "right")
        for name in tables:
            rows = f"{mean_of(chosen, 'rows', table=name):.0f}"
            figures = [f"{mean_of(chosen, 'auarc', table=name, net=net):.2f}" for net in nets]
            table.add_row(name, rows, *figures)
        console.print(table)
    table = Table(title=f"over {first}, mean over {len(tables)} tables, 95 % interval")
    for column in ("net", "AUARC", "accuracy", "NLL", "seconds a run"):
        table.add_column(column)
    for net in others:
        cells = []
        for what in ("auarc", "accuracy", "nll"):
            g = gain(runs, what, net, first, tables)
            cells.append(f"{g['mean']:+.3f} ({g['low']:+.3f} to {g['high']:+.3f})")
        table.add_row(net, *cells, f"{mean_of(runs, 'seconds', net=net):.1f}")
    console.print(table)


if __name__ == "__main__":
    main()

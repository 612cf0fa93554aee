"""Time and peak memory of the curve figures of one score, ours against peers, on the same arrays.

Each case runs in a process of its own, which reads its arrays from files, so that none inherits
another's memory. CPU seconds are those of all threads: they differ from the wall's where several
threads worked or the machine was busy. Each case then ranks scores rounded to two decimals, once
with the errors first among tied rows and once last: an exact figure is the expected one in both.

    python benchmarks/metrics.py --json results/metrics/speed.json
    python benchmarks/metrics.py --sizes 1000000 --fd-shifts ~/fd-shifts      # its own code as well

Peers that are absent are named and left out; `benchmarks/peers.py` says how to install them.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import peers
import where

ALL = "revar: all eight figures"
AURC = "revar: AURC alone"
AUGRC = "revar: AUGRC alone"
Answer = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Arrays:
    """One set of examples as every library wants it, none of it counted as work."""

    confidence: peers.Floats
    correct: peers.Bools
    uncertainty: peers.Floats


def read(folder: Path) -> Arrays:
    """Arrays from the files that `write` made; nothing is copied, so no peak is left behind."""
    return Arrays(*(np.load(folder / f"{name}.npy") for name in Arrays.__slots__))


def write(folder: Path, confidence: peers.Floats, correct: peers.Bools) -> None:
    """One file per array."""
    folder.mkdir()
    np.save(folder / "confidence.npy", confidence)
    np.save(folder / "correct.npy", correct)
    np.save(folder / "uncertainty.npy", 1.0 - confidence)


def revar(name: str, key: str | None = None) -> Callable[[Arrays], Answer]:
    """A function of `revar.metrics`; of a table of figures the answer is one."""

    def bind(arrays: Arrays) -> Answer:
        from revar import metrics

        function = getattr(metrics, name)

        def answer() -> float:
            found = function(arrays.uncertainty, arrays.correct)
            if key is not None:
                found = found[key]
            # The mean over all k is the area.
            return float(found.risk.mean() if hasattr(found, "risk") else found)

        return answer

    return bind


def torch_uncertainty(*names: str, only_compute: bool = False) -> Callable[[Arrays], Answer]:
    """Metrics of torch-uncertainty; it takes probabilities and ranks by the largest."""

    def bind(arrays: Arrays) -> Answer:
        import torch

        module = importlib.import_module("torch_uncertainty.metrics.classification")
        probabilities, labels = peers.two_columns(arrays.confidence, arrays.correct)
        scores = torch.from_numpy(arrays.confidence)
        errors = torch.from_numpy(~arrays.correct) * 1.0

        def answer() -> float:
            values = []
            for name in names:
                metric = getattr(module, name)()
                if only_compute:
                    metric.scores, metric.errors, metric._update_count = [scores], [errors], 1
                else:
                    metric.update(probabilities, labels)
                values.append(float(metric.compute()))
            return values[0]

        return answer

    return bind


def mapie(*names: str) -> Callable[[Arrays], Answer]:
    """Functions of MAPIE; of the area under accuracies the answer is that under risks."""

    def bind(arrays: Arrays) -> Answer:
        module = importlib.import_module("mapie.metrics.uncertainty")
        correct = arrays.correct.astype(np.int64)

        def answer() -> float:
            values = [getattr(module, name)(correct, arrays.confidence) for name in names]
            return 1.0 - float(values[0])

        return answer

    return bind


def fd_shifts_formulas(arrays: Arrays) -> Answer:
    """fd-shifts' formulas in NumPy."""
    return lambda: peers.fd_shifts_areas(arrays.confidence, arrays.correct)[0]


def fd_shifts_code(arrays: Arrays) -> Answer:
    """fd-shifts' own code from a checkout: AURC, AUGRC and the excess of both."""
    folder = Path(os.environ["FD_SHIFTS"]).expanduser() / "fd_shifts" / "analysis"
    # Its package imports far more than this module needs.
    package = types.ModuleType("fd_shifts_analysis")
    package.__path__ = [str(folder)]
    sys.modules["fd_shifts_analysis"] = package
    # NumPy has renamed it since.
    vars(np)["trapz"] = np.trapezoid
    module = importlib.import_module("fd_shifts_analysis.rc_stats")
    residuals = (~arrays.correct).astype(np.int64)

    def answer() -> float:
        stats = module.RiskCoverageStats(arrays.confidence, residuals)
        values = [stats.aurc, stats.augrc, stats.eaurc, stats.eaugrc]
        return float(values[0]) / 1000

    return answer


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table; its ratios are to ours that gives at least the same figures.

    Attributes:
        bind: arrays to the work that is timed, which answers with its AURC or AUGRC.
        against: the case of ours that gives at least the same figures.
        library: that must be there.
        is_aurc: whether the answer is an AURC.
    """

    bind: Callable[[Arrays], Answer]
    against: str
    library: str = "revar"
    is_aurc: bool = True


TU = "torch-uncertainty"
FD_CODE = "fd-shifts' own code: AURC, AUGRC, excess"
CASES: dict[str, Case] = {
    ALL: Case(revar("curve_figures", "aurc"), ALL),
    "revar: risk-coverage curve": Case(revar("risk_coverage_curve"), "revar: risk-coverage curve"),
    AURC: Case(revar("aurc"), AURC),
    AUGRC: Case(revar("augrc"), AUGRC, is_aurc=False),
    f"{TU}: AURC and AUGRC": Case(torch_uncertainty("AURC", "AUGRC"), ALL, TU),
    f"{TU}: AURC": Case(torch_uncertainty("AURC"), AURC, TU),
    f"{TU}: AURC, compute() only": Case(torch_uncertainty("AURC", only_compute=True), AURC, TU),
    f"{TU}: AUGRC": Case(torch_uncertainty("AUGRC"), AUGRC, TU, is_aurc=False),
    "MAPIE: AUARC and AUROC": Case(mapie("auarc", "auroc"), ALL, "MAPIE"),
    "MAPIE: AUARC": Case(mapie("auarc"), AURC, "MAPIE"),
    "fd-shifts' formulas: AURC and AUGRC": Case(fd_shifts_formulas, ALL, peers.FD_SHIFTS),
    FD_CODE: Case(fd_shifts_code, ALL, peers.FD_SHIFTS),
}


def peak_bytes() -> int:
    """The most memory this process has held; a child's ``ru_maxrss`` starts at its parent's."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def wait_for_quiet(patience: float) -> None:
    """Return when others leave the cores alone for a moment, or patience is at its end."""
    began = time.perf_counter()
    while time.perf_counter() - began < patience:
        idle, total = _ticks()
        time.sleep(0.3)
        idle_now, total_now = _ticks()
        if idle_now - idle > 0.9 * (total_now - total):
            return


def _ticks() -> tuple[int, int]:
    """Idle and all time of all cores since the start of the machine."""
    numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return numbers[3] + numbers[4], sum(numbers)


def measure(
    name: str,
    folder: Path,
    tied: dict[str, Path],
    repeats: int,
    patience: float,
    answer: Connection,
) -> None:
    """Send seconds, peak bytes and the values of one case."""
    warnings.filterwarnings("ignore")
    bind = CASES[name].bind
    try:
        work = bind(read(folder))
        before = peak_bytes()
        value = work()
        peak = peak_bytes()
        times: list[float] = []
        busy: list[float] = []
        # The first one warms up; very slow ones are not repeated.
        while len(times) < repeats and (not times or sum(times) < 30):
            wait_for_quiet(patience)
            start, start_busy = time.perf_counter(), time.process_time()
            work()
            times.append(time.perf_counter() - start)
            busy.append(time.process_time() - start_busy)
        answer.send(
            {
                "seconds": statistics.median(times),
                "all_seconds": times,
                "cpu_seconds": statistics.median(busy),
                "extra_bytes": peak - before,
                "process_bytes": peak,
                "value": value,
                "tied_values": {order: bind(read(rows))() for order, rows in tied.items()},
            }
        )
    except Exception as error:  # whatever a peer fails with belongs in the table
        reason = str(error).splitlines()[0] if str(error) else ""
        answer.send({"error": f"{type(error).__name__}: {reason}"[:160]})


def bootstrap(
    n_methods: int, folder: Path, resamples: int, patience: float, answer: Connection
) -> None:
    """Send the seconds of one paired bootstrap, and its peak."""
    from revar import metrics

    arrays = read(folder)
    noise = np.random.default_rng(1)
    scores = {
        f"method {number}": arrays.uncertainty + 0.1 * number * noise.random(len(arrays.correct))
        for number in range(n_methods)
    }
    wait_for_quiet(patience)
    start = time.perf_counter()
    start_busy = time.process_time()
    metrics.compare(scores, arrays.correct, n_resamples=resamples)
    found = {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - start_busy,
        "process_bytes": peak_bytes(),
    }
    answer.send(found)


def apart(target: Callable[..., None], *arguments: Any) -> dict[str, Any]:
    """What a function sends from a fresh process."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*arguments, there))
    process.start()
    there.close()
    try:
        found: dict[str, Any] = here.recv()
    except EOFError:
        found = {"error": "the process was killed, probably for memory"}
    process.join()
    return found


def examples(n: int) -> tuple[peers.Floats, peers.Bools]:
    """[n] confidences between a half and one, right as often as they say."""
    generator = np.random.default_rng(0)
    confidence = 0.5 + generator.random(n) / 2
    return confidence, generator.random(n) < confidence


def write_tied(folder: Path, n: int) -> tuple[dict[str, Path], float]:
    """Files with two decimals, errors first and last among ties, and their exact AURC."""
    confidence, correct = examples(n)
    confidence = np.round(confidence, 2)
    orders = {"first": np.argsort(correct), "last": np.argsort(~correct)}
    folders = {name: folder / f"tied-{name}" for name in orders}
    for name, order in orders.items():
        write(folders[name], confidence[order], correct[order])
    return folders, peers.expected_aurc(confidence, correct)


def setting() -> dict[str, Any]:
    """What a reader needs to repeat the run."""
    names = [name for name in peers.LIBRARIES if peers.installed(name)]
    return {
        **where.here(),
        "cores": len(os.sched_getaffinity(0)),
        "numpy": np.__version__,
        **{name: peers.version(name) for name in names if peers.version(name)},
    }


HEADS = ("case", "s", "CPU s", "MiB", "process MiB", "ratio", "CPU ratio", "AURC off under ties")


def table(found: dict[str, dict[str, Any]], exact: float) -> None:
    """Ratios to ours into the figures, and one row per case on the screen, as Markdown."""
    print("| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS))
    for name, figures in found.items():
        if "seconds" not in figures:
            reason = figures.get("skipped") or "failed: " + figures["error"]
            print(f"| {name} | {reason} |" + " |" * (len(HEADS) - 2))
            continue
        ours = found[CASES[name].against]
        for key in ("seconds", "cpu_seconds"):
            figures[f"{key}_ratio"] = figures[key] / ours[key]
        tied = figures["tied_values"].values() if CASES[name].is_aurc else ()
        off = [f"{value - exact:+.1e}" for value in tied]
        cells = (
            name,
            f"{figures['seconds']:.3f}",
            f"{figures['cpu_seconds']:.3f}",
            f"{figures['extra_bytes'] / 2**20:.0f}",
            f"{figures['process_bytes'] / 2**20:.0f}",
            f"{figures['seconds_ratio']:.1f}",
            f"{figures['cpu_seconds_ratio']:.1f}",
            ", ".join(off),
        )
        print("| " + " | ".join(cells) + " |", flush=True)


def why_not(name: str) -> str | None:
    """Why a case cannot be run here."""
    if name == FD_CODE and "FD_SHIFTS" not in os.environ:
        return "no checkout: --fd-shifts DIR"
    return None if peers.installed(CASES[name].library) else "not installed"


def main() -> None:
    """Measure every case at every size and print one table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**6, 10**7])
    parser.add_argument("--tied-size", type=int, default=10**6)
    parser.add_argument("--bootstrap-size", type=int, default=10**5)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--patience", type=float, default=0.0, help="seconds to wait for idle cores, each time"
    )
    parser.add_argument("--fd-shifts", type=Path, help="a checkout of fd-shifts")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    if options.fd_shifts is not None:
        os.environ["FD_SHIFTS"] = str(options.fd_shifts)
    described = setting()
    print(", ".join(f"{key} {value}" for key, value in described.items()))

    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tied, exact = write_tied(folder, options.tied_size)
        for n in options.sizes:
            write(folder / str(n), *examples(n))
            found = results[str(n)] = {}
            for case in CASES:
                reason = why_not(case)
                found[case] = (
                    {"skipped": reason}
                    if reason
                    else apart(
                        measure, case, folder / str(n), tied, options.repeats, options.patience
                    )
                )
            print(f"\nN = {n:,}; exact AURC of N = {options.tied_size:,} tied: {exact:.6f}\n")
            table(found, exact)
        write(folder / "bootstrap", *examples(options.bootstrap_size))
        print(f"\ncompare, {options.resamples:,} resamples of N = {options.bootstrap_size:,}")
        results["compare"] = {}
        for count in (1, 2):
            figures = apart(
                bootstrap, count, folder / "bootstrap", options.resamples, options.patience
            )
            results["compare"][f"{count} methods"] = figures
            print(
                f"{count} methods: {figures['seconds']:.1f} s, CPU {figures['cpu_seconds']:.1f} s, "
                f"{figures['process_bytes'] / 2**20:.0f} MiB"
            )
    if options.json is not None:
        heading = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
        heading = {k: v for k, v in heading.items() if k not in ("json", "fd_shifts")}
        heading["load_at_end"] = round(os.getloadavg()[0], 2)
        written = {"setting": {**described, **heading}, "exact_tied_aurc": exact, **results}
        where.keep(options.json, written)


if __name__ == "__main__":
    main()

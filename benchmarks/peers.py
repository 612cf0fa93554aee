"""Where libraries differ on the same small arrays: one table, ours beside those installed.

    python benchmarks/peers.py                                        # prints Markdown
    python benchmarks/peers.py --csv results/metrics/peers.csv

Peers are no dependencies of the project, and those that are absent are named and left out. To have
them all: ``pip install torch-uncertainty==0.13.0 mapie==1.6.0 torchmetrics==1.9.0 lightning rich``.
fd-shifts cannot be installed beside a recent NumPy; its formulas are written here anew.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.metadata
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Answers = dict[str, Callable[[], Any]]
FD_SHIFTS = "fd-shifts' formulas"
LIBRARIES = {
    "revar": "revar",
    "torch-uncertainty": "torch_uncertainty",
    "MAPIE": "mapie",
    FD_SHIFTS: "numpy",
    "torchmetrics": "torchmetrics",
    "scikit-learn": "sklearn",
}
"""Name in the table, and the module that must be there."""


def installed(library: str) -> bool:
    """Whether the library's module is there."""
    return importlib.util.find_spec(LIBRARIES[library]) is not None


def version(library: str) -> str:
    """Version of an installed library; none for formulas."""
    return "" if library == FD_SHIFTS else importlib.metadata.version(library)


def fd_shifts_areas(confidence: Floats, correct: Bools) -> tuple[float, float]:
    """AURC and AUGRC by fd-shifts' formulas, without its factor of 1000.

    Points only where the confidence changes, trapezoids between them; the selective risk goes on
    flat to coverage 0, the generalised risk starts there at 0 (Traub et al. 2024).
    """
    order = np.argsort(-confidence)
    ordered = confidence[order]
    ends = np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True])
    errors = np.cumsum(~correct[order])[ends]
    kept = ends + 1.0
    coverage = np.r_[0.0, kept / len(confidence)]
    risk = errors / kept
    selective = np.trapezoid(np.r_[risk[0], risk], coverage)
    generalised = np.trapezoid(np.r_[0.0, errors / len(confidence)], coverage)
    return float(selective), float(generalised)


def expected_aurc(confidence: Floats, correct: Bools) -> float:
    """AURC by its definition: at every k the mean risk over all orders of tied examples."""
    order = np.argsort(-confidence, kind="stable")
    _, block, size = np.unique(-confidence[order], return_inverse=True, return_counts=True)
    share = np.bincount(block, ~correct[order]) / size
    return float(np.mean(np.cumsum(share[block]) / np.arange(1, len(order) + 1)))


@dataclass(frozen=True, slots=True)
class Case:
    """One question to all libraries.

    Attributes:
        figure: what is asked.
        data: on which array.
        answers: library to what it says; libraries that have no such figure are left out.
    """

    figure: str
    data: str
    answers: Answers


def tied() -> dict[str, tuple[Floats, Bools]]:
    """200 examples in five blocks of 40 tied ones; the same rows with errors first and last."""
    confidence = np.repeat([0.95, 0.9, 0.8, 0.7, 0.6], 40)
    last = np.concatenate([np.arange(40) < 40 - errors for errors in (2, 4, 8, 12, 16)])
    return {"errors first": (confidence[::-1], last[::-1]), "errors last": (confidence, last)}


def two_columns(confidence: Floats, correct: Bools) -> tuple[Any, Any]:
    """The same examples as tensors [n, 2] of probabilities and [n] of labels."""
    import torch

    probabilities = np.stack([confidence, 1.0 - confidence], axis=1)
    return torch.from_numpy(probabilities), torch.from_numpy((~correct).astype(np.int64))


def of_torch_uncertainty(name: str, confidence: Floats, correct: Bools, **options: Any) -> float:
    """One of its metrics, update and compute."""
    module = importlib.import_module("torch_uncertainty.metrics.classification")
    metric = getattr(module, name)(**options)
    metric.update(*two_columns(confidence, correct))
    return float(metric.compute())


def plotted_augrc(confidence: Floats, correct: Bools) -> float:
    """What torch-uncertainty's ``AUGRC.plot`` prints into the figure."""
    module = importlib.import_module("torch_uncertainty.metrics.classification")
    metric = module.AUGRC()
    metric.update(*two_columns(confidence, correct))
    figure, _ = metric.plot()
    text = figure.axes[0].texts[0].get_text()
    return float(text.split("=")[1].rstrip("%")) / 100


def of_mapie(name: str, confidence: Floats, correct: Bools) -> float:
    """One of its uncertainty metrics; of the area under accuracies, that under risks."""
    module = importlib.import_module("mapie.metrics.uncertainty")
    value = float(getattr(module, name)(correct.astype(int), confidence))
    return 1.0 - value if name == "auarc" else value


def of_fd_shifts(name: str, confidence: Floats, correct: Bools) -> float:
    """One of its areas."""
    return fd_shifts_areas(confidence, correct)[name == "AUGRC"]


def of_torchmetrics(name: str, *arguments: Any, **options: Any) -> float:
    """One of its functional metrics of classification, on arrays."""
    import torch

    module = importlib.import_module("torchmetrics.functional.classification")
    tensors = [torch.from_numpy(np.asarray(a)) for a in arguments]
    return float(getattr(module, name)(*tensors, **options))


def curve_cases() -> list[Case]:
    """Areas and points of the risk-coverage curve under ties, and NaN."""
    from revar import metrics

    cases = []
    for order, (confidence, correct) in tied().items():
        data = f"200 tied scores, {order}"
        mine = (1.0 - confidence, correct)
        theirs = (confidence, correct)
        aurc: Answers = {
            "revar": partial(metrics.aurc, *mine),
            "torch-uncertainty": partial(of_torch_uncertainty, "AURC", *theirs),
            "MAPIE": partial(of_mapie, "auarc", *theirs),
            FD_SHIFTS: partial(of_fd_shifts, "AURC", *theirs),
        }
        augrc: Answers = {
            "revar": partial(metrics.augrc, *mine),
            "torch-uncertainty": partial(of_torch_uncertainty, "AUGRC", *theirs),
            FD_SHIFTS: partial(of_fd_shifts, "AUGRC", *theirs),
        }
        coverage: Answers = {
            "revar": partial(metrics.coverage_at_risk, *mine, 0.1),
            "torch-uncertainty": partial(
                of_torch_uncertainty, "CovAtxRisk", *theirs, risk_threshold=0.1
            ),
        }
        figures = {"AURC": aurc, "AUGRC": augrc, "coverage at risk 0.1": coverage}
        cases += [Case(figure, data, answers) for figure, answers in figures.items()]
    cases.sort(key=lambda case: case.figure)
    confidence, correct = tied()["errors last"]
    cases.append(
        Case(
            "AUGRC, as plotted", "200 tied scores, errors last",
            {"torch-uncertainty": lambda: plotted_augrc(confidence, correct)},
        )
    )  # fmt: skip
    missing = np.full(200, np.nan)
    answers: Answers = {
        "revar": partial(metrics.aurc, missing, correct),
        "torch-uncertainty": partial(of_torch_uncertainty, "AURC", missing, correct),
        "MAPIE": partial(of_mapie, "auarc", missing, correct),
    }
    return [*cases, Case("AURC", "all scores NaN", answers)]


def calibration_cases() -> list[Case]:
    """A confidence of one, and AUC where one class or no error is left."""
    from sklearn.metrics import roc_auc_score

    from revar import metrics

    top, labels = np.array([0.95, 1.0]), np.array([1, 0])
    rows = np.stack([1.0 - top, top], axis=1)

    def ece_of_torch_uncertainty() -> float:
        module = importlib.import_module("torch_uncertainty.metrics.classification")
        metric = module.CalibrationError(task="binary", num_bins=10)
        import torch

        metric.update(torch.from_numpy(top), torch.from_numpy(labels))
        return float(metric.compute())

    def ece_of_mapie() -> float:
        module = importlib.import_module("mapie.metrics.calibration")
        return float(module.expected_calibration_error(labels, top, num_bins=10))

    ece = Case(
        "ECE, 10 bins", "p = [0.95, 1.0], y = [1, 0]",
        {
            "revar": lambda: metrics.ece(rows, labels, n_bins=10),
            "torch-uncertainty": ece_of_torch_uncertainty,
            "MAPIE": ece_of_mapie,
            "torchmetrics": lambda: of_torchmetrics(
                "binary_calibration_error", top, labels, n_bins=10
            ),
        },
    )  # fmt: skip
    p, y = np.array([0.9, 0.8, 0.4, 0.2]), np.array([1, 1, 0, 0])
    kept = np.array([0, 1])
    both = np.stack([1.0 - p, p], axis=1)
    auc = Case(
        "AUC of the kept half", "the two kept are of class 1",
        {
            "revar": lambda: metrics.auc_at_coverage([0.1, 0.2, 0.8, 0.9], both, y, 0.5),
            "torchmetrics": lambda: of_torchmetrics("binary_auroc", p[kept], y[kept]),
            "scikit-learn": lambda: roc_auc_score(y[kept], p[kept]),
        },
    )  # fmt: skip
    right = np.ones(4, dtype=bool)
    failure = Case(
        "failure AUROC", "four examples, no error",
        {
            "revar": lambda: metrics.failure_auroc(1.0 - p, right),
            "MAPIE": lambda: of_mapie("auroc", p, right),
            "torchmetrics": lambda: of_torchmetrics(
                "binary_auroc", 1.0 - p, (~right).astype(np.int64)
            ),
            "scikit-learn": lambda: roc_auc_score(~right, 1.0 - p),
        },
    )  # fmt: skip
    return [ece, auc, failure]


def said(answer: Callable[[], Any]) -> tuple[str, str]:
    """What a library answers, and the first line of its warning or error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = f"{float(answer()):.4f}"
        except Exception as error:  # whatever a peer fails with belongs in the table
            return type(error).__name__, str(error).splitlines()[0]
    notes = [w for w in caught if not issubclass(w.category, DeprecationWarning | FutureWarning)]
    if not notes:
        return value, ""
    return f"{value}, warns", str(notes[0].message).splitlines()[0]


def main() -> None:
    """Ask every installed library and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=Path, help="write one line per answer here too")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    present = [name for name in LIBRARIES if installed(name)]
    absent = [name for name in LIBRARIES if name not in present]
    titles = {name: f"{name} {version(name)}".strip() for name in present}

    lines: list[list[str]] = []
    table = [["figure", "data", *titles.values()]]
    for case in curve_cases() + calibration_cases():
        row = []
        for name in present:
            value, note = said(case.answers[name]) if name in case.answers else ("", "")
            row.append(value)
            if value:
                lines.append([case.figure, case.data, name, version(name), value, note])
        table.append([case.figure, case.data, *row])
    print(f"{datetime.now(tz=UTC):%Y-%m-%d}, NumPy {np.__version__}\n")
    for number, cells in enumerate(table):
        print("| " + " | ".join(cells) + " |")
        if number == 0:
            print("|" + "---|" * len(cells))
    if absent:
        print(f"\nnot installed, left out: {', '.join(absent)}")
    if options.csv is not None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["figure", "data", "library", "version", "answer", "message"])
        writer.writerows(lines)
        options.csv.write_text(text.getvalue())


if __name__ == "__main__":
    main()

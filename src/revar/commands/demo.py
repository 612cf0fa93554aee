"""``revar demo``"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from revar.commands.report import report
from revar.commands.train import train
from revar.evaluation import evaluate
from revar.registry import DEFAULT_METHOD
from revar.report.plots import Curve, risk_coverage_figure
from revar.run import RunFolder
from revar.scores import correct, uncertainty
from revar.training import Observer

DATA = "digits-noisy"
METHODS = ("erm", DEFAULT_METHOD)
SETS = {"test": "clean test set", "shifted": "shifted test set"}
CURVES = {
    "ERM, softmax": ("erm", "softmax"),
    "ERM, dropout entropy": ("erm", "dropout_entropy"),
    f"{DEFAULT_METHOD}, softmax": (DEFAULT_METHOD, "softmax"),
    f"{DEFAULT_METHOD}, U-Score": (DEFAULT_METHOD, "uscore"),
}


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo leaves.

    Attributes:
        figures: method to set to figures.
        figure: the picture.
        page: the report, to open in a browser.
        runs: the run folders.
    """

    figures: dict[str, dict[str, dict[str, Any]]]
    figure: Path
    page: Path
    runs: list[Path]


def demo(
    out: str | Path,
    *,
    seed: int = 0,
    epochs: int = 30,
    watch: Callable[[str], AbstractContextManager[Observer]],
) -> Demo:
    """Train plainly and by the default on noisy digits, test both, draw curves, write the report.

    Runs that are in ``out`` already are not trained again.

    Args:
        out: folder for the runs, the picture and the report.
        seed: of the runs.
        epochs: of each.
        watch: gives an observer for the run of that name.
    """
    root = Path(out)
    folders: dict[str, RunFolder] = {}
    for method in METHODS:
        with watch(method) as observer:
            folders[method] = train(
                DATA, root / f"{method}-seed{seed}", method=method, seed=seed, epochs=epochs,
                resume=True, observer=observer, device="cpu",
            )  # fmt: skip
    figures = {
        method: {name: evaluate(folder.predictions(name), folder.fitted()) for name in SETS}
        for method, folder in folders.items()
    }
    picture = root / "risk-coverage.png"
    risk_coverage_figure({title: _curves(folders, name) for name, title in SETS.items()}, picture)
    runs = [folder.path for folder in folders.values()]
    title = f"erm and {DEFAULT_METHOD} on digits with noisy labels"
    written = report(runs, root / "report.html", title=title)
    return Demo(figures, picture, written.page, runs)


def _curves(folders: dict[str, RunFolder], name: str) -> list[Curve]:
    curves = []
    for label, (method, score) in CURVES.items():
        predictions, fitted = folders[method].predictions(name), folders[method].fitted()
        values = uncertainty(predictions, score, fitted)
        curves.append(Curve(label, values, correct(predictions, score, fitted)))
    return curves

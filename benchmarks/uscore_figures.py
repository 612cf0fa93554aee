"""Pictures of the study: differences with their intervals, and accuracy-rejection curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.metrics import accuracy_rejection_curve
from revar.report.plots import new_figure
from uscore_tasks import CLEAN_META, Task
from uscore_tests import Choice, Runs, ensembles, references, seeds_of, stacked

_COLOURS = ("#b3303f", "#4c6a92", "#d98c5f", "#3d8a66", "#6b6b6b")
_MARKS = ("o", "s", "D")
_LINES = ("-", "--", "-.", (0, (4, 1, 1, 1, 1, 1)), ":")
_TITLES = {
    "cifar10": "CIFAR-10",
    "cifar10n-worst": "CIFAR-10N, worst labels",
    "cifar10-instance20": "CIFAR-10, 20 % instance noise",
    "tiny-imagenet-100": "Tiny ImageNet-100",
    "eyepacs": "EyePACS",
    "eyepacs-aptos": "EyePACS to APTOS",
    "eyepacs-deepdrid": "EyePACS to DeepDRiD",
    f"cifar10n-worst{CLEAN_META}": "CIFAR-10N, clean meta labels",
    f"cifar10-instance20{CLEAN_META}": "instance noise, clean meta labels",
}
_LOWEST = 0.9
"""Share of rejected examples up to which curves are drawn: beyond, they are a few examples."""


def differences_figure(
    found: Mapping[str, dict[str, Any]], tasks: Mapping[str, Task], ours: Choice, path: Path
) -> None:
    """Points of AUARC gained on each reference, a row a task, with 95 % intervals and margins.

    Args:
        found: task to its tests.
        tasks: by name.
        ours: what was tested.
        path: of the PNG.
    """
    figure = new_figure(7.2, 0.42 * len(found) + 1.3)
    axis = figure.subplots()
    names = list(references(ours))
    for number, name in enumerate(names):
        places, values, ends = [], [], []
        for row, result in enumerate(found.values()):
            if name in result["against"]:
                one = result["against"][name]
                places.append(row + 0.22 * (number - 1))
                values.append(one["difference"])
                ends.append((one["difference"] - one["low"], one["high"] - one["difference"]))
        if places:
            axis.errorbar(
                values, places, xerr=np.abs(np.array(ends)).T, fmt=_MARKS[number], markersize=5,
                color=_COLOURS[number], capsize=2.5, linewidth=1.3, label=_said(name),
            )  # fmt: skip
    axis.axvline(0.0, color="0.3", linewidth=0.9)
    for row, name in enumerate(found):
        margin = tasks[name].margin
        if margin:
            axis.plot([-margin] * 2, [row - 0.42, row + 0.42], color="0.3", linestyle=":")
    axis.set_yticks(range(len(found)), [_TITLES.get(name, name) for name in found])
    axis.set_ylim(len(found) - 0.5, -0.5)
    axis.set_xlabel(f"AUARC gained by {ours}, points (dotted: margin)")
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(
        loc="outside upper center", ncols=3, frameon=False, fontsize=9, title="softmax response of"
    )
    figure.savefig(path, dpi=150)


def _said(reference: str) -> str:
    plain = {"erm": "", "erm+meta": ", same labels", "erm-all": " on all labels"}
    return f"plain training{plain[reference]}" if reference in plain else f"the {reference}"


def curves_figure(panels: Mapping[str, tuple[Runs, str]], ours: Choice, path: Path) -> None:
    """Accuracy of what is left against the share that is rejected, mean over seeds.

    Args:
        panels: task to its runs and the set.
        ours: what was tested.
        path: of the PNG.
    """
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(4.3 * columns, 2.9 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (name, (runs, split)) in zip(axes, panels.items(), strict=False):
        curves = {
            label: _curve(*stacked(runs, choice, split, seeds_of(runs, choice.way)))
            for label, choice in _shown(runs, ours, split).items()
        }
        found = ensembles(runs, split)
        if found:
            curves["ensemble of plain training"] = _curve(*zip(*found.values(), strict=True))
        for (label, (rejected, accuracy)), colour, line in zip(
            curves.items(), _COLOURS, _LINES, strict=False
        ):
            kept = rejected <= _LOWEST
            axis.plot(
                100 * rejected[kept], 100 * accuracy[kept], linestyle=line, color=colour,
                linewidth=1.5, label=label,
            )  # fmt: skip
        axis.set_title(_TITLES.get(name, name))
        axis.grid(visible=True, alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[: len(panels)]:
        axis.set_xlabel("rejected, %")
        axis.set_ylabel("accuracy of the rest, %")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
    )
    figure.savefig(path, dpi=150)


def _shown(runs: Runs, ours: Choice, split: str) -> dict[str, Choice]:
    """What is drawn of those that are there, by what is said of it."""
    _, *plainly = (choice.way for choice in references(ours).values())
    plain = next((way for way in plainly if seeds_of(runs, way)), plainly[-1])
    wanted = {
        str(ours): ours,
        "softmax response, same net": Choice(ours.way, "softmax"),
        f"softmax response, {_said(plain)}": Choice(plain, "softmax"),
        "U-Score alone, same net": Choice(ours.way, "uscore"),
    }
    return {
        label: choice
        for label, choice in wanted.items()
        if (seeds := seeds_of(runs, choice.way))
        and choice.score in {*runs[choice.way, seeds[0]].figures(split), ours.score}
    }


def _curve(
    uncertainty: Sequence[NDArray[Any]] | NDArray[Any],
    correct: Sequence[NDArray[Any]] | NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    curves = [accuracy_rejection_curve(*pair) for pair in zip(uncertainty, correct, strict=True)]
    return curves[0].rejection, np.mean([curve.accuracy for curve in curves], axis=0)

"""Pictures one can look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.metrics import auarc, risk_coverage_curve

_COLOURS = ("#4c6a92", "#8fb1d9", "#d98c5f", "#b3303f")
"""Distinguishable without colour vision: also by lightness and by line style."""
_STYLES = ("-", "--", "-.", "-")


@dataclass(frozen=True, slots=True)
class Curve:
    """One score of one run on one set.

    Attributes:
        label: in the legend.
        uncertainty: [n]
        correct: [n]
    """

    label: str
    uncertainty: NDArray[np.float64]
    correct: NDArray[np.bool_]


def new_figure(width: float, height: float) -> Any:
    """A figure of so many inches that is drawn into files; the user's own backend is left alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def risk_coverage_figure(panels: Mapping[str, Sequence[Curve]], path: Path) -> None:
    """Risk against coverage, a panel a test set, AUARC in the legend.

    Args:
        panels: title to curves.
        path: of the PNG.
    """
    figure = new_figure(5.2 * len(panels), 4.4)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for curve, colour, style in zip(curves, _COLOURS, _STYLES, strict=False):
            points = risk_coverage_curve(curve.uncertainty, curve.correct)
            area = auarc(curve.uncertainty, curve.correct)
            axis.plot(
                100 * points.coverage,
                100 * points.risk,
                style,
                color=colour,
                linewidth=1.8,
                label=f"{curve.label} ({100 * area:.1f})",
            )
        axis.set_title(title)
        axis.set_xlabel("coverage: inputs answered, %")
        axis.set_ylabel("risk: wrong answers among them, %")
        axis.set_xlim(0, 100)
        axis.set_ylim(bottom=0)
        axis.grid(visible=True, alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(title="score (AUARC, %)", frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)

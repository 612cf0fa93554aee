"""Rows of pictures with what was decided about each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.report.plots import new_figure

ANSWERED, SILENT = "#2f6f4f", "#9a3b3b"


@dataclass(frozen=True, slots=True)
class Picture:
    """One input.

    Attributes:
        pixels: [h, w] or [h, w, 3] of bytes.
        uncertainty: higher is rejected first.
        accepted: whether it is answered.
        said: the answer that would be given.
        truth: the label.
    """

    pixels: NDArray[Any]
    uncertainty: float
    accepted: bool
    said: str
    truth: str


@dataclass(frozen=True, slots=True)
class Row:
    """Pictures of one set, the most certain first.

    Attributes:
        title: what they are.
        pictures: all rows have as many.
    """

    title: str
    pictures: Sequence[Picture]


def draw_gallery(rows: Sequence[Row], path: Path, note: str = "") -> None:
    """A row of pictures a set; a frame says by colour and line what was decided.

    Args:
        rows: at least one.
        path: of the PNG.
        note: below the pictures, such as whose they are.
    """
    width = max(len(row.pictures) for row in rows)
    figure = new_figure(1.45 * width, 2.05 * len(rows) + (0.3 if note else 0))
    parts = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
    for part, row in zip(parts, rows, strict=True):
        part.suptitle(row.title, fontsize=10, ha="left", x=0.01)
        axes = part.subplots(1, width, squeeze=False)[0]
        for axis in axes:
            axis.set_axis_off()
        for axis, picture in zip(axes, row.pictures, strict=False):
            _draw(axis, picture)
    if note:
        figure.supxlabel(note, fontsize=7, x=0.01, ha="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw(axis: Any, picture: Picture) -> None:
    axis.set_axis_on()
    axis.set_xticks([])
    axis.set_yticks([])
    axis.imshow(np.squeeze(picture.pixels), cmap="gray", vmin=0, vmax=255)
    colour = ANSWERED if picture.accepted else SILENT
    for spine in axis.spines.values():
        spine.set_color(colour)
        spine.set_linewidth(3)
        spine.set_linestyle("-" if picture.accepted else (0, (2, 1)))
    decision = f"says {picture.said}" if picture.accepted else "abstains"
    axis.set_title(f"U {picture.uncertainty:+.2f}: {decision}", fontsize=7, color=colour, pad=3)
    right = picture.said == picture.truth
    wrong = "" if right else (" (wrong)" if picture.accepted else " (would err)")
    axis.set_xlabel(f"truth: {picture.truth}{wrong}", fontsize=6.5, labelpad=2)

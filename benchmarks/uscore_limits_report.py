"""Table and picture of `uscore_limits.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from revar.report.plots import new_figure

_COLOURS = {"last layer": "#b3303f", "last stage": "#d98c5f", "all": "#4c6a92"}
_KINDS = {"features": ("#4c6a92", "o"), "evidence": ("#b3303f", "s"), "layers": ("#3d8a66", "D")}
_LOWEST = 5e-3
"""Where a signal of none is drawn: the axis has no zero."""
_NAMES = {"features": "features", "evidence": "features, log-odds", "layers": "several layers"}


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and deviation over seeds of every figure, by the path to it; of rows by their names."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for labels in dict.fromkeys(run["labels"] for run in runs):
        flat = [dict(_leaves(run, "")) for run in runs if run["labels"] == labels]
        found[labels] = {
            name: (float(np.mean(values)), float(np.std(values, ddof=min(1, len(values) - 1))))
            for name in flat[0]
            if (values := [one[name] for one in flat])
        }
    return found


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(tree, Mapping):
        named = {k: v for k, v in tree.items() if k not in ("labels", "seed", "teacher", "reads")}
        for name, part in named.items():
            yield from _leaves(part, f"{path}/{name}".lstrip("/"))
    elif isinstance(tree, list):
        for row in tree:
            yield from _leaves(row, f"{path}/{row['teacher']}/{row['reads']}")
    else:
        yield path, float(tree)


def rounded(tree: Any) -> Any:
    """To four digits; what is not defined is left out as null."""
    if isinstance(tree, Mapping):
        return {name: rounded(part) for name, part in tree.items()}
    if isinstance(tree, list | tuple):
        return [rounded(part) for part in tree]
    if isinstance(tree, float):
        return float(f"{tree:.4g}") if np.isfinite(tree) else None
    return tree


def teachers(made: Mapping[str, Any]) -> list[str]:
    """Names of the rows, in their order."""
    return list(dict.fromkeys(row["teacher"] for row in made["runs"][0]["taught"]))


def table(made: Mapping[str, Any]) -> str:
    """Markdown: failure AUROC and AUARC, mean and deviation over seeds, a row a teacher."""
    groups = [(labels, kind) for labels in made["summary"] for kind in _KINDS]
    lines = [
        "| teacher | " + " | ".join(f"{labels}: {_NAMES[kind]}" for labels, kind in groups) + " |",
        "|---" * (len(groups) + 1) + "|",
    ]
    for name in made["runs"][0]["references"]:
        cells = [
            _cell(made["summary"][labels], f"references/{name}") if kind == "features" else ""
            for labels, kind in groups
        ]
        lines.append(f"| *{name}* | " + " | ".join(cells) + " |")
    for name in teachers(made):
        cells = [_cell(made["summary"][labels], f"taught/{name}/{kind}") for labels, kind in groups]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(found: Mapping[str, Sequence[float]], path: str) -> str:
    (auroc, spread), (area, about) = found[f"{path}/auroc"], found[f"{path}/auarc"]
    return f"{auroc:.1f} ± {spread:.1f}, {area:.1f} ± {about:.1f}"


def signal_table(made: Mapping[str, Any]) -> str:
    """Markdown: signal to noise of held-out points by batch, and what the whole set ranks."""
    sizes = _sizes(made)
    heads = ["labels", "when", "layers", *sizes, "AUROC, wrong labels", "AUROC, errors"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for labels, found in made["summary"].items():
        for when in made["runs"][0]["alignments"]:
            for layers in _COLOURS:
                path = f"alignments/{when}/{layers}"
                wanted = [f"{path}/held out/snr_order/{size}" for size in sizes]
                wanted += [f"{path}/{points}/auroc/whole" for points in ("train", "held out")]
                cells = [_figure(found[name]) for name in wanted]
                lines.append("| " + " | ".join([labels, when, layers, *cells]) + " |")
    return "\n".join(lines)


def _figure(found: Sequence[float | None]) -> str:
    mean, spread = found
    return "" if mean is None else f"{mean:.3g} ± {spread:.2g}"


def _sizes(made: Mapping[str, Any]) -> list[str]:
    """Of meta batches, ``whole`` last."""
    return list(made["runs"][0]["alignments"]["end"]["all"]["held out"]["snr_order"])


def figure(made: Mapping[str, Any], path: Path) -> None:
    """Signal to noise by meta batch, and failure AUROC by teacher; noisy labels.

    Args:
        made: what was written.
        path: of the PNG.
    """
    found = made["summary"]["noisy"]
    names = teachers(made)
    picture = new_figure(11.5, 0.27 * len(names) + 1.4)
    left, right = picture.subplots(1, 2, width_ratios=(1.0, 1.35))
    _signal(left, made)
    for number, (kind, (colour, mark)) in enumerate(_KINDS.items()):
        values = np.array([found[f"taught/{name}/{kind}/auroc"] for name in names])
        right.errorbar(
            values[:, 0], np.arange(len(names)) + 0.24 * (number - 1), xerr=values[:, 1], fmt=mark,
            color=colour, markersize=4, capsize=2, linewidth=1.1, label=f"g reads {_NAMES[kind]}",
        )  # fmt: skip
    lines = {"softmax": ("softmax response", "-"), "dropout_entropy": ("dropout entropy", ":")}
    for name, (label, style) in lines.items():
        value = found[f"references/{name}/auroc"][0]
        right.axvline(value, color="0.3", linestyle=style, linewidth=1.1, label=label)
    right.axvline(50, color="0.75", linewidth=0.9)
    right.set_yticks(range(len(names)), names, fontsize=8)
    right.set_ylim(len(names) - 0.5, -0.5)
    right.set_xlabel("failure AUROC on clean test data, %")
    right.set_title("what g learns, a fifth of the labels wrong", fontsize=10)
    for axis in (left, right):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    picture.legend(
        *right.get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False,
        fontsize=8,
    )  # fmt: skip
    picture.savefig(path, dpi=150)


def _signal(axis: Any, made: Mapping[str, Any]) -> None:
    """Of held-out points by set of layers, means of seeds as lines and seeds as dots."""
    runs = [run for run in made["runs"] if run["labels"] == "noisy"]
    sizes = _sizes(made)
    meta = round(made["experiment"]["images"] * made["experiment"]["meta"])
    places = [meta if size == "whole" else int(size) for size in sizes]
    for when, style in (("middle", "-"), ("end", "--")):
        for layers, colour in _COLOURS.items():
            found = [run["alignments"][when][layers]["held out"]["snr_order"] for run in runs]
            values = np.array([[one[size] for size in sizes] for one in found])
            dots = np.maximum(values, _LOWEST)
            axis.plot(places, dots.T, ".", color=colour, alpha=0.45, markersize=5)
            label = f"{layers}, {when}"
            axis.plot(places, values.mean(axis=0), color=colour, linestyle=style, label=label)
    axis.axhline(1.0, color="0.3", linewidth=0.9)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(places, [str(place) for place in places[:-1]] + [f"all {meta}"])
    axis.set_xlabel("meta examples in a batch")
    axis.set_ylabel("signal to noise of alignments, held-out points (lowest: none)")
    axis.set_title("middle and end of the run, the same labels", fontsize=10)
    axis.legend(frameon=False, fontsize=8, loc="lower right")

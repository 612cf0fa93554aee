"""How the cost of a U-Score grows with the interval, the passes, the meta batch, the net and batch.

One quantity at a time around the paper's setting with g on the features of f (interval 15, T = 10,
a meta batch as large as the batch). A ratio is the time of a step to that of plain training of the
same net on the same batch, in one run.

    python benchmarks/cost.py --device cuda --json results/cost_growth/h200.json
    python benchmarks/cost.py --draw results/cost_growth/h200.json             # the picture again
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from steps import Setting, Size, paper, timed
from where import here, keep

GRID: dict[str, tuple[Any, ...]] = {
    "interval": (1, 2, 5, 15, 50),
    "passes": (1, 5, 10, 20, 50),
    "meta_batch": (32, 64, 128, 256, 512),
    "batch": (32, 64, 128, 256, 512),
    "backbone": ("resnet20", "resnet56", "resnet18-cifar", "resnet50-cifar"),
}
SMALL: dict[str, tuple[Any, ...]] = {"interval": (1, 5), "passes": (1, 10), "backbone": ("mlp",)}
Figures = dict[str, Any]


def measure(grid: dict[str, tuple[Any, ...]], size: Size, device: torch.device) -> list[Figures]:
    """Every value of every quantity, against plain training."""
    plain: dict[Size, float] = {}
    rows = []
    console = Console()
    for name, values in grid.items():
        for value in values:
            changed, fields = size, {}
            if name in ("batch", "backbone"):
                changed = replace(size, **{name: value})
                changed = replace(changed, train=16 * changed.batch)
            else:
                fields[name] = value
            interval = fields.get("interval", 15)
            # The meta step must have come up often enough to be recorded.
            counts = {"steps": max(30, interval), "warm": 4 * interval + 5, "repeats": 3}
            with console.status(f"{name} {value}"):
                if changed not in plain:
                    plain[changed] = timed(
                        Setting(name="erm"), changed, device, steps=30, warm=8, repeats=3
                    ).median
                ours = timed(
                    paper("", "features", shares_gradient=True, **fields), changed, device, **counts
                ).median
            rows.append(
                {
                    "quantity": name, "value": value, "erm_ms": plain[changed], "revar_ms": ours,
                    "ratio": ours / plain[changed],
                    "meta_step_in_steps": (ours / plain[changed] - 1) * interval,
                }
            )  # fmt: skip
    return rows


def draw(rows: list[Figures], path: Path) -> None:
    """A panel for each quantity."""
    from revar.report.plots import new_figure

    names = list(dict.fromkeys(row["quantity"] for row in rows))
    figure = new_figure(3.0 * len(names), 2.9)
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        chosen = [row for row in rows if row["quantity"] == name]
        labels = [str(row["value"]) for row in chosen]
        axis.plot(labels, [row["ratio"] for row in chosen], "o-")
        axis.axhline(1.0, color="grey", linewidth=0.8)
        axis.set(xlabel=name.replace("_", " "), ylim=(0.9, None))
        if name == "backbone":
            for label in axis.get_xticklabels():
                label.set(rotation=20, ha="right")
    axes[0].set_ylabel("step, relative to plain training")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print a table, write the figures and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="resnet18-cifar")
    parser.add_argument("--size", type=int, default=32, help="of images; 0 for rows of numbers")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--short", action="store_true", help="few values, to see that it runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draw", type=Path, help="draw these figures, measure nothing")
    options = parser.parse_args()
    if options.draw is not None:
        rows = json.loads(options.draw.read_text(encoding="utf-8"))["rows"]
        draw(rows, options.draw.with_suffix(".png"))
        return
    device = torch.device(options.device)
    shape = (3, options.size, options.size) if options.size else (32,)
    size = Size(
        backbone=options.backbone, shape=shape, batch=options.batch, train=16 * options.batch
    )
    rows = measure(SMALL if options.short else GRID, size, device)
    table = Table(title=f"{options.backbone}, {shape}, batch {options.batch}, {options.device}")
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "quantity" else "right")
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    Console().print(table)
    if options.json is None:
        return
    keep(options.json, {**here(device), "rows": rows})
    try:
        draw(rows, options.json.with_suffix(".png"))
    except ImportError:
        print(f"no picture, matplotlib is not installed: --draw {options.json} elsewhere")


if __name__ == "__main__":
    main()

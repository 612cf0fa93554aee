"""What training with a U-Score costs, relative to our own fastest plain training.

All settings train the same net on the same noise in one process, steps of all kinds in their
ordinary order; a repetition is some whole intervals between meta steps. On a GPU one setting comes
after the other. On a CPU they take turns, and a ratio is the median over turns.

    python benchmarks/epoch.py                                                 # a small net, CPU
    python benchmarks/epoch.py --device cuda --backbone resnet50 --scorer resnet18 --size 224 \
        --batch 64 --json results/epoch/h200_224.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from steps import Setting, Size, Timed, paper, timed, timed_in_turns
from where import here, keep

REVAR: dict[str, dict[str, Any]] = {
    "512 every 5 steps": {"interval": 5, "meta_batch": 512, "shares_gradient": False},
    "a batch every 10 steps": {"interval": 10, "meta_batch": None, "shares_gradient": True},
    "a batch every 5 steps, upper layers": {
        "interval": 5, "meta_batch": None, "shares_gradient": True, "aligned_layers": "upper",
    },
}  # fmt: skip
"""Ways to choose its meta steps."""


def settings(scorer: str, names: list[str] | None, *, gpu: bool) -> list[Setting]:
    """All of them, or those asked for."""
    found = [
        Setting(name="erm"),
        paper("features", "features", shares_gradient=True),
        paper("evidence", "evidence", shares_gradient=True),
        paper("features, own look-ahead", "features"),
        paper("features, upper layers", "features", shares_gradient=True, aligned_layers="upper"),
        paper("network", "network", scorer, shares_gradient=True),
        paper("network, own look-ahead", "network", scorer),
        paper("network, upper layers", "network", scorer, shares_gradient=True,
              aligned_layers="upper"),
        paper("network, half size", "network", scorer, shares_gradient=True, scorer_reduction=2),
        Setting(name="revar (default)", method="revar", changes=(("warmup", 0.0),)),
        *(Setting(name=f"revar, {name}", method="revar", changes=(("warmup", 0.0), *fields.items()))
          for name, fields in REVAR.items()),
        Setting(name="trajectory", method="trajectory",
                changes=(("start", 0.0), ("early_from", 0.0))),
    ]  # fmt: skip
    if gpu:
        found += [
            Setting(name="erm, not replayed", graphs=False),
            Setting(name="revar-paper, not replayed", method="revar-paper", graphs=False,
                    changes=(("scorer_backbone", scorer), ("warmup", 0.0))),
        ]  # fmt: skip
    return [one for one in found if names is None or one.name in names]


def problem(description: str | None) -> argparse.ArgumentParser:
    """Options that say what is trained, for how long, and where the figures go."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--backbone", default="resnet20")
    parser.add_argument("--scorer", default="resnet20")
    parser.add_argument("--size", type=int, default=32, help="of images; 0 for rows of 32 numbers")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--intervals", type=int, default=2, help="of 15 steps, in a repetition")
    parser.add_argument("--json", type=Path)
    return parser


def size_of(options: argparse.Namespace) -> Size:
    """A whole number of batches: steps are then of one size."""
    shape = (3, options.size, options.size) if options.size else (32,)
    return Size(
        backbone=options.backbone, shape=shape, batch=options.batch, train=16 * options.batch,
        meta=max(1024, 2 * options.batch),
    )  # fmt: skip


def main() -> None:
    """Print a table and write the figures."""
    parser = problem(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--settings", nargs="*", help="only these")
    options = parser.parse_args()
    device, size = torch.device(options.device), size_of(options)
    chosen = settings(options.scorer, options.settings, gpu=device.type == "cuda")
    steps = 15 * options.intervals
    console = Console()
    if device.type == "cpu":
        found = timed_in_turns(chosen, size, steps=steps, warm=15, repeats=options.repeats)
    else:
        found = {}
        for one in chosen:
            with console.status(one.name):
                found[one.name] = timed(
                    one, size, device, steps=steps, warm=65, repeats=options.repeats
                )
            torch.cuda.empty_cache()
    plain = found.get("erm")
    compare = Timed.over_in_turns if device.type == "cpu" else Timed.over
    ratios = {n: None if plain is None else compare(value, plain) for n, value in found.items()}
    table = Table(
        title=f"{options.backbone}, {size.shape}, batch {options.batch}, {options.device}"
    )
    for column in ("setting", "ms a step", "against erm", "peak GiB"):
        table.add_column(column, justify="left" if column == "setting" else "right")
    for name, value in found.items():
        ratio = "" if ratios[name] is None else f"{ratios[name]:.3f}"
        peak = "" if value.peak_gib is None else f"{value.peak_gib:.2f}"
        table.add_row(name, f"{value.median:.3f}", ratio, peak)
    console.print(table)
    kept = {
        name: {
            "milliseconds": value.milliseconds, "peak_gib": value.peak_gib,
            "ratio": ratios[name], "replayed": value.replayed,
        }
        for name, value in found.items()
    }  # fmt: skip
    keep(options.json, {**here(device), "settings": kept})


if __name__ == "__main__":
    main()

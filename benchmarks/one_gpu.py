"""Times of one GPU for the estimate of ImageNet-1K: `scaling.py --inputs` reads what this writes.

A plain step, a step weighted by a U-Score network, and what a meta step adds, of a ResNet-50 with a
ResNet-18 as g on 1,000 classes, steps as several processes take them, which are not replayed, and
replayed.

    python benchmarks/one_gpu.py --json results/scaling/h200.json
    python benchmarks/scaling.py --processes 1 --inputs results/scaling/h200.json
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from steps import Setting, Size, paper, timed
from where import here, keep

NEVER = 10_000
"""Steps between meta steps, more than are taken: the first step has one, and is not timed."""


def times(
    size: Size, device: torch.device, scorer: str, steps: int, *, graphs: bool
) -> dict[str, float]:
    """Milliseconds of a plain step, a weighted one, and one with a meta step."""
    chosen = {
        "plain": Setting(name="erm"),
        "weighted": paper("weighted", "network", scorer, interval=NEVER),
        "both": paper("both", "network", scorer, interval=1),
    }
    return {
        name: timed(
            replace(setting, graphs=graphs), size, device, steps=steps, warm=8, repeats=3
        ).median
        for name, setting in chosen.items()
    }


def for_the_estimate(found: dict[str, float]) -> dict[str, float]:
    """What a meta step adds is the difference of the last two: noise, where steps are few."""
    return {
        "plain_step_ms": found["plain"],
        "weighted_step_ms": found["weighted"],
        "meta_step_ms": found["both"] - found["weighted"],
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--scorer", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    size = Size(
        backbone=options.backbone, shape=(3, options.size, options.size), batch=options.batch,
        classes=options.classes, train=16 * options.batch, meta=2 * options.batch,
    )  # fmt: skip
    made = here(device)
    usual, replayed = (
        for_the_estimate(times(size, device, options.scorer, options.steps, graphs=graphs))
        for graphs in (False, True)
    )
    name = made["gpu"] or "a CPU"
    figures = {
        "source": f"one {name}, {options.size} px, batch {options.batch}: {options.backbone}, "
        f"{options.scorer}, T = 10; not replayed",
        "batch_per_gpu": options.batch,
        **usual,
    }
    for kind, of_it in (("not replayed", usual), ("replayed", replayed)):
        print(kind, ", ".join(f"{key} {value:.2f}" for key, value in of_it.items()))
    keep(options.json, {**figures, "replayed": replayed, "made": made})


if __name__ == "__main__":
    main()

"""Our plain training against a loop as one writes it by hand, the same net on the same data.

The loop by hand keeps its data on the device too, shifts and mirrors images there, trains in
bfloat16 on a GPU with channels last, and steps torch's own SGD: everything but the replayed steps.
On a GPU it is also compiled, by `torch.compile` as it is and with ``mode="reduce-overhead"``, which
fuses kernels and replays its passes; the first step, in which that is done, is timed by itself.

    python benchmarks/loop.py                                                  # a small net, CPU
    python benchmarks/loop.py --device cuda --backbone resnet18-cifar --batch 128
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from revar.data.augment import Augment
from steps import Setting, Size, make, timed, wait
from where import here, keep


def by_hand(
    size: Size, device: torch.device, *, foreach: bool, compiled: str | None = None
) -> Callable[[int], None]:
    """So many steps of a loop without this package; only net and images are ours.

    Args:
        size: of the problem.
        device: to run on.
        foreach: whether the optimiser moves all parameters at once.
        compiled: a mode of `torch.compile`, if it is to compile the net and its loss.
    """
    _, state, _, _ = make(Setting(name="erm"), size, device)
    net, normalise = state.networks.classifier, state.networks.normalise
    augment = Augment(pad=size.shape[-1] // 8, flip=True)
    x = torch.randint(0, 256, (size.train, *size.shape), dtype=torch.uint8).to(device)
    y = (torch.arange(size.train) % size.classes).to(device)
    optimiser = torch.optim.SGD(
        net.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, foreach=foreach
    )
    net.train()

    def loss_of(inputs: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            return F.cross_entropy(net(inputs), labels)

    objective = loss_of if compiled is None else torch.compile(loss_of, mode=compiled)
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format

    def go(count: int) -> None:
        done = 0
        while done < count:
            order = torch.randperm(size.train, device=device)
            for index in order.split(size.batch)[: count - done]:
                inputs = augment(normalise(x[index])).contiguous(memory_format=layout)
                loss = objective(inputs, y[index])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                done += 1
        wait(device)

    return go


def main() -> None:
    """Print a table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="resnet20")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    shape = (3, options.size, options.size)
    size = Size(backbone=options.backbone, shape=shape, batch=options.batch,
                train=16 * options.batch)  # fmt: skip
    found: dict[str, list[float]] = {}
    for name, setting in (
        ("ours", Setting(name="erm")),
        ("ours, not replayed", Setting(name="erm", graphs=False)),
    ):
        if device.type == "cuda" or setting.graphs:
            found[name] = timed(
                setting, size, device, steps=options.steps, warm=10, repeats=options.repeats
            ).milliseconds
    ways: dict[str, str | None] = {"by hand": None}
    if device.type == "cuda":
        ways |= {"by hand, compiled": "default", "by hand, compiled, replayed": "reduce-overhead"}
    compiling = {}
    for name, compiled in ways.items():
        go = by_hand(size, device, foreach=device.type == "cuda", compiled=compiled)
        began = time.perf_counter()
        go(1)
        compiling[name] = time.perf_counter() - began
        go(10)
        found[name] = []
        for _ in range(options.repeats):
            began = time.perf_counter()
            go(options.steps)
            found[name].append(1000 * (time.perf_counter() - began) / options.steps)
    median = {name: statistics.median(values) for name, values in found.items()}
    table = Table(title=f"{options.backbone}, {shape}, batch {options.batch}, {options.device}")
    for column in ("loop", "ms a step", "times as fast as by hand", "first step, s"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    for name, value in median.items():
        first = f"{compiling[name]:.1f}" if name in compiling else ""
        table.add_row(name, f"{value:.3f}", f"{median['by hand'] / value:.2f}", first)
    Console().print(table)
    ratio = median["by hand"] / median["ours"]
    keep(options.json, {**here(device), "milliseconds": found, "ratio": ratio,
                        "first_step_seconds": compiling})  # fmt: skip


if __name__ == "__main__":
    main()

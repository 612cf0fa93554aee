"""Our plain training against a loop as one writes it by hand, the same net on the same data.

The loop by hand keeps its data on the device too, shifts and mirrors images there, trains in
bfloat16 on a GPU with channels last, and steps torch's own SGD: everything but the replayed steps.
On a GPU it is also compiled, by `torch.compile` as it is and with ``mode="reduce-overhead"``, which
fuses kernels and replays its passes; the first step, in which that is done, is timed by itself.

    python benchmarks/loop.py                                                  # a small net, CPU
    python benchmarks/loop.py --backbone mlp --size 0 --batch 128 --steps 300  # a table
    python benchmarks/loop.py --device cuda --backbone resnet18-cifar --batch 128
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from revar.data.augment import Augment
from steps import Setting, Size, make, running, timed, wait
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
    if len(size.shape) == 3:
        augment = Augment(pad=size.shape[-1] // 8, flip=True)
        x = torch.randint(0, 256, (size.train, *size.shape), dtype=torch.uint8).to(device)
    else:
        augment = Augment()
        x = torch.randn(size.train, *size.shape, device=device)
    y = (torch.arange(size.train) % size.classes).to(device)
    optimiser = torch.optim.SGD(
        net.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, foreach=foreach
    )
    net.train()

    def loss_of(inputs: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            return F.cross_entropy(net(inputs), labels)

    objective = loss_of if compiled is None else torch.compile(loss_of, mode=compiled)
    images_on_gpu = device.type == "cuda" and len(size.shape) == 3
    layout = torch.channels_last if images_on_gpu else torch.contiguous_format

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


def milliseconds(go: Callable[[int], None], steps: int) -> float:
    """Of one step, in the mean over some."""
    began = time.perf_counter()
    go(steps)
    return 1000 * (time.perf_counter() - began) / steps


Times = tuple[dict[str, list[float]], dict[str, float]]
"""Milliseconds of a step, by loop and repetition, and seconds of the first step."""


def in_turns(size: Size, device: torch.device, steps: int, repeats: int) -> Times:
    """On the CPU: what else the machine does, and how fast it is just then, meets both loops."""
    hand = by_hand(size, device, foreach=False)
    first = milliseconds(hand, 1) / 1000
    with running(Setting(name="erm"), size, device) as run:
        loops: dict[str, Callable[[int], float]] = {
            "ours": run.go, "by hand": partial(milliseconds, hand),
        }  # fmt: skip
        for go in loops.values():
            go(10)
        found: dict[str, list[float]] = {name: [] for name in loops}
        for _ in range(repeats):
            for name, go in loops.items():
                found[name].append(go(steps))
        run.check()
    return found, {"by hand": first}


def one_after_the_other(size: Size, device: torch.device, steps: int, repeats: int) -> Times:
    """On a GPU: ours, replayed and not, and three by hand."""
    found: dict[str, list[float]] = {}
    for name, graphs in (("ours", True), ("ours, not replayed", False)):
        setting = Setting(name="erm", graphs=graphs)
        times = timed(setting, size, device, steps=steps, warm=10, repeats=repeats)
        found[name] = times.milliseconds
    ways = {"by hand": None, "by hand, compiled": "default",
            "by hand, compiled, replayed": "reduce-overhead"}  # fmt: skip
    compiling = {}
    for name, compiled in ways.items():
        go = by_hand(size, device, foreach=True, compiled=compiled)
        compiling[name] = milliseconds(go, 1) / 1000
        go(10)
        found[name] = [milliseconds(go, steps) for _ in range(repeats)]
    return found, compiling


def times_as_fast(found: dict[str, list[float]], *, turns: bool) -> dict[str, float]:
    """As the loop by hand, by loop: by medians over repetitions, or the median over turns."""
    hand = found["by hand"]
    if not turns:
        return {n: statistics.median(hand) / statistics.median(v) for n, v in found.items()}
    return {
        name: statistics.median(slow / fast for slow, fast in zip(hand, values, strict=True))
        for name, values in found.items()
    }


def main() -> None:
    """Print a table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="resnet20")
    parser.add_argument("--size", type=int, default=32, help="of images; 0 for rows of 32 numbers")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    shape = (3, options.size, options.size) if options.size else (32,)
    size = Size(backbone=options.backbone, shape=shape, batch=options.batch,
                train=16 * options.batch)  # fmt: skip
    measure = one_after_the_other if device.type == "cuda" else in_turns
    found, compiling = measure(size, device, options.steps, options.repeats)
    faster = times_as_fast(found, turns=device.type != "cuda")
    table = Table(title=f"{options.backbone}, {shape}, batch {options.batch}, {options.device}")
    for column in ("loop", "ms a step", "times as fast as by hand", "first step, s"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    for name, values in found.items():
        first = f"{compiling[name]:.1f}" if name in compiling else ""
        table.add_row(name, f"{statistics.median(values):.3f}", f"{faster[name]:.2f}", first)
    Console().print(table)
    keep(options.json, {**here(device), "milliseconds": found, "ratio": faster["ours"],
                        "first_step_seconds": compiling})  # fmt: skip


if __name__ == "__main__":
    main()

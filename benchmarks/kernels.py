"""Where the time of a step goes: kinds of kernels, the gaps between them, and the host.

On a GPU kernels are those that ran, replayed steps included; *between* is the time in which none
did. On a CPU kernels are torch's operations, each without those it calls, and *between* is Python
and what calls them. *Host* is how long it takes to ask for a step. The profiler itself takes time,
most of it where kernels are many and small: the step as it is without it stands beside.

    python benchmarks/kernels.py                                               # a small net, CPU
    python benchmarks/kernels.py --device cuda --backbone resnet50 --scorer resnet18 --size 224 \
        --batch 64 --json results/kernels/resnet50-224px.json
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from epoch import problem, settings, size_of
from steps import Running, Setting, Size, running, wait
from where import here, keep

KINDS = {
    "copies and casts": ("memcpy", "memset", "copy_", "_to_copy", "nchwtonhwc", "nhwctonchw"),
    "batch norm": ("batch_norm", "bn_fw", "bn_bw", "batchnorm"),
    "optimiser": ("_foreach_", "multi_tensor", "fusedsgd", "_fused_", "fused_sgd"),
    "convolutions and products": (
        "conv", "gemm", "cudnn", "xmma", "cutlass", "wgrad", "dgrad", "fprop", "mkldnn", "addmm",
        "::mm", "::bmm", "matmul", "nvjet", "splitk",
    ),
    "sums and means": ("reduce", "::sum", "::mean", "norm", "softmax"),
    "element by element": (
        "elementwise", "add", "mul", "relu", "threshold", "clamp", "div", "where", "exp", "log",
        "sub", "neg", "sqrt",
    ),
}  # fmt: skip
"""Words of names in lower case; the first kind that has one is taken."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One that ran, in microseconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Of a step, in milliseconds.

    Attributes:
        step: without the profiler.
        profiled: with it.
        host: until the step was asked for, without the profiler.
        busy: in which at least one kernel ran.
        kernels: how many ran.
        kinds: time of kernels by kind; side by side they count twice.
        slowest: the ten names that took most.
    """

    step: float
    profiled: float
    host: float
    busy: float
    kernels: float
    kinds: dict[str, float]
    slowest: dict[str, float]


def kind_of(name: str) -> str:
    """Of a kernel.

    >>> kind_of("void cudnn::bn_fw_tr_1C11_singleread<float>"), kind_of("aten::addmm")
    ('batch norm', 'convolutions and products')
    """
    lower = name.lower()
    return next((k for k, words in KINDS.items() if any(w in lower for w in words)), "rest")


def busy(kernels: Iterable[Kernel]) -> float:
    """Microseconds in which at least one ran.

    >>> busy([Kernel("a", 0, 10), Kernel("b", 5, 12), Kernel("c", 20, 21)])
    13
    """
    total, until = 0.0, -float("inf")
    for one in sorted(kernels, key=lambda kernel: kernel.start):
        total += max(0, one.end - max(one.start, until))
        until = max(until, one.end)
    return total


def recorded(run: Running, device: torch.device, steps: int) -> tuple[list[Kernel], float]:
    """Kernels of some steps, and milliseconds of one of them."""
    cuda = device.type == "cuda"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it tells of every start
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=kinds) as found:
        milliseconds = run.go(steps)
    kernels = []
    for event in found.events() or ():
        if cuda and event.device_type.name == "CUDA" and not event.is_user_annotation:
            kernels.append(Kernel(event.name, event.time_range.start, event.time_range.end))
        elif not cuda and event.name.startswith("aten::"):
            # What an operation does itself is put at its start: operations come one by one.
            start = event.time_range.start
            kernels.append(Kernel(event.name, start, start + event.self_cpu_time_total))
    return kernels, milliseconds


def profiled(setting: Setting, size: Size, device: torch.device, steps: int) -> Profile:
    """Of a run whose steps are all recorded already."""
    with running(setting, size, device) as run:
        run.go(65 if device.type == "cuda" else 15)
        plain = run.go(steps)
        began = time.perf_counter()
        run.ask(steps)
        host = 1000 * (time.perf_counter() - began) / steps
        wait(device)
        kernels, with_it = recorded(run, device, steps)
        run.check()
    of_kinds, of_names = dict.fromkeys((*KINDS, "rest"), 0.0), defaultdict[str, float](float)
    for one in kernels:
        of_kinds[kind_of(one.name)] += one.end - one.start
        of_names[one.name] += one.end - one.start
    slowest = sorted(of_names.items(), key=lambda pair: pair[1], reverse=True)[:10]
    each = 1000 * steps
    alone = sum(of_kinds.values()) if device.type == "cpu" else busy(kernels)
    return Profile(
        step=plain, profiled=with_it, host=host, busy=alone / each, kernels=len(kernels) / steps,
        kinds={kind: value / each for kind, value in of_kinds.items()},
        slowest={name: value / each for name, value in slowest},
    )  # fmt: skip


def main() -> None:
    """Print a table and write the figures."""
    parser = problem(__doc__)
    parser.add_argument("--settings", nargs="+", default=["erm", "features", "trajectory"],
                        help="names of epoch.py")  # fmt: skip
    options = parser.parse_args()
    device, size = torch.device(options.device), size_of(options)
    chosen = settings(options.scorer, options.settings, gpu=device.type == "cuda")
    made = here(device)
    found = {one.name: profiled(one, size, device, 15 * options.intervals) for one in chosen}
    title = f"{options.backbone}, {size.shape}, batch {options.batch}, {options.device}; ms a step"
    table = Table("", *found, title=title)
    for line in ("step", "host", "profiled"):
        table.add_row(line, *(f"{getattr(one, line):.3f}" for one in found.values()))
    table.add_row("between", *(f"{one.profiled - one.busy:.3f}" for one in found.values()))
    table.add_row("busy", *(f"{one.busy:.3f}" for one in found.values()))
    for kind in (*KINDS, "rest"):
        table.add_row(f"  {kind}", *(f"{one.kinds[kind]:.3f}" for one in found.values()))
    table.add_row("kernels", *(f"{one.kernels:.0f}" for one in found.values()))
    Console().print(table)
    keep(options.json, {**made, "settings": {name: asdict(one) for name, one in found.items()}})


if __name__ == "__main__":
    main()

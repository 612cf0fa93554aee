"""The least time of a plain training step: by its arithmetic, and by the bytes its kernels move.

Nothing is computed: a step of forward pass, backward pass and SGD is traced with tensors that have
shapes only, in the precision of a GPU run. Operations are counted one by one, each reading its
inputs and writing its outputs once: what a step costs whose kernels are not fused.

    python benchmarks/floors.py --json results/floors/floors.json
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from revar.nets.base import Dropout
from revar.nets.build import Backbone
from where import here, keep

SIZES = {"resnet50": (224, 64), "resnet18-cifar": (32, 128)}
FLOPS, BANDWIDTH = 790e12, 4.3e12
"""Of an H200, as measured: multiply-adds count as two, of bfloat16; bytes read and written."""
KINDS = {
    "convolution": ("convolution",),
    "batch norm": ("batch_norm",),
    "sums and activations": ("add", "relu", "threshold_backward", "hardtanh", "clamp"),
    "casts": ("_to_copy",),
}


class Bytes(TorchDispatchMode):
    """Counts what operations read and write, by kind."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run, and count."""
        made = func(*args, **(kwargs or {}))
        if func.namespace == "aten" and not func.is_view:
            name = func.overloadpacket.__name__
            kind = next((k for k, words in KINDS.items() if any(w in name for w in words)), "rest")
            tensors = [t for t in tree_leaves((args, kwargs, made)) if isinstance(t, Tensor)]
            self.found[kind] += sum(t.numel() * t.element_size() for t in tensors)
        return made


def counted(backbone: str, size: int, batch: int) -> tuple[float, dict[str, int]]:
    """Floating-point operations of a plain step, and bytes by kind of operation."""
    with FakeTensorMode():
        net = Backbone(backbone, Dropout()).build((3, size, size), 10)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
        x = torch.randn(batch, 3, size, size)
        y = torch.zeros(batch, dtype=torch.int64)
        flops, moved = FlopCounterMode(display=False), Bytes()

        def step() -> None:
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(net(x).float(), y)
            loss.backward()
            optimiser.step()

        step()  # in which the momentum is made
        with flops, moved:
            step()
    return flops.get_total_flops(), dict(moved.found)


def main() -> None:
    """Print a table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kinds = (*KINDS, "rest")
    title = f"a plain step at {FLOPS / 1e12:g} TFLOP/s and {BANDWIDTH / 1e12:g} TB/s, ms"
    table = Table("", *SIZES, title=title)
    found: dict[str, dict[str, Any]] = {}
    for backbone, (size, batch) in SIZES.items():
        flops, moved = counted(backbone, size, batch)
        by_kind = {kind: 1000 * moved.get(kind, 0) / BANDWIDTH for kind in kinds}
        found[backbone] = {
            "size": size, "batch": batch, "flops": flops, "bytes": moved,
            "arithmetic_ms": 1000 * flops / FLOPS, "bytes_ms": sum(by_kind.values()),
            "by_kind_ms": by_kind,
        }  # fmt: skip
    for line, key in (("arithmetic", "arithmetic_ms"), ("bytes", "bytes_ms")):
        table.add_row(line, *(f"{one[key]:.2f}" for one in found.values()))
    for kind in kinds:
        table.add_row(f"  {kind}", *(f"{one['by_kind_ms'][kind]:.2f}" for one in found.values()))
    Console().print(table)
    speeds = {"flops_per_second": FLOPS, "bytes_per_second": BANDWIDTH}
    keep(options.json, {**here(), **speeds, "nets": found})


if __name__ == "__main__":
    main()

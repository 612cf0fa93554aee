"""Ways to make g cheaper, each measured against our own plain training.

g on the inputs runs in every step. It could be folded (batch norm into convolutions), compiled, or
read images of half the size (``scorer_reduction=2``); and the meta step could take a smaller meta
batch, with a running mean of its gradients. They are tried here on the paper's setting with g as a
network, the step itself as look-ahead: whole steps in one process.

    python benchmarks/scorer_pass.py                                           # a small net, CPU
    python benchmarks/scorer_pass.py --device cuda --backbone resnet50 --scorer resnet18 \
        --size 224 --batch 64 --json results/scorer_pass/resnet50-224px.json
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.fx.experimental.optimization import fuse

from revar import bilevel
from revar.functional import Params
from revar.methods import revar as method_file
from revar.nets.scorer import Evidence, NetworkScorer, Scored
from revar.streams import Branch
from revar.training import TrainingState
from steps import Setting, Size, Timed, paper, running, wait
from where import here, keep

KEPT = 0.5
"""Of the running mean of meta gradients, at every new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to train with g on the inputs.

    Attributes:
        name: in tables.
        folded: batch norm is folded into convolutions, weights rounded beforehand.
        compiled: by torch.compile.
        half: g reads images of half the size.
        in_line: g has no branch of its own in a recorded step.
        meta_share: of the meta batch, which is as large as the batch.
    """

    name: str
    folded: bool = False
    compiled: bool = False
    half: bool = False
    in_line: bool = False
    meta_share: float = 1.0


WAYS = (
    Way(name="as it is"),
    Way(name="in line", in_line=True),
    Way(name="folded", folded=True),
    Way(name="compiled", compiled=True),
    Way(name="folded, compiled", folded=True, compiled=True),
    Way(name="half the size", half=True),
    Way(name="folded, compiled, half the size", folded=True, compiled=True, half=True),
    Way(name="half the meta batch, running mean", meta_share=0.5),
    Way(name="a quarter of the meta batch, running mean", meta_share=0.25),
)


def quick_pass(net: nn.Module, way: Way, low: torch.dtype | None) -> nn.Module:
    """A copy of g, with its weights of now, for passes without a gradient.

    In training it would have to be made again after every meta step.

    Args:
        net: that of g.
        way: how.
        low: what weights are rounded to, as autocast would; ``None`` leaves them.
    """
    made = copy.deepcopy(net).eval().requires_grad_(False)
    if way.folded:
        made = fuse(made)
        if low is not None:
            made = made.to(low)
    if way.compiled:
        made = torch.compile(made)  # type: ignore[assignment]
    return made


def change_scorer(state: TrainingState, way: Way) -> None:
    """Let g of a run take its passes in another way."""
    scorer = state.networks.scorer
    assert isinstance(scorer, NetworkScorer)
    low = torch.bfloat16 if state.device.type == "cuda" else None
    quick = quick_pass(scorer.net, way, low) if way.folded or way.compiled else None

    def forward(evidence: Evidence) -> Scored:
        x = scorer.reduced(evidence.x)
        quickly = quick is not None and not torch.is_grad_enabled()
        logit: Tensor = quick(x) if quickly and quick is not None else scorer.net(x)
        return Scored(None, logit.squeeze(1))

    scorer.forward = forward  # type: ignore[method-assign]


@contextmanager
def changed(way: Way) -> Iterator[None]:
    """A block in which steps are taken in this way, as far as it is not g's own."""
    kept: dict[str, Tensor] = {}
    plain = bilevel._meta_gradient

    def with_mean(problem: bilevel.OneStep, ahead: Params) -> tuple[Tensor, Params]:
        loss, gradient = plain(problem, ahead)
        if not kept:
            kept.update({name: value.clone() for name, value in gradient.items()})
        means = [kept[name] for name in gradient]
        torch._foreach_lerp_(means, list(gradient.values()), 1 - KEPT)
        return loss, dict(zip(gradient, means, strict=True))

    class InLine(Branch):
        def __init__(self, device: torch.device) -> None:
            self._begun = None

    with (
        mock.patch.object(bilevel, "_meta_gradient", with_mean if way.meta_share < 1 else plain),
        mock.patch.object(method_file, "Branch", InLine if way.in_line else Branch),
    ):
        yield


def time_of(
    way: Way | None, scorer: str, size: Size, device: torch.device, steps: int, repeats: int
) -> tuple[Timed, float | None]:
    """Of a step of this way, or of plain training; and milliseconds of a pass of g alone."""
    if way is None:
        setting = Setting(name="erm")
    else:
        meta_batch = max(2, round(way.meta_share * size.batch))
        setting = paper("network", "network", scorer, shares_gradient=True, meta_batch=meta_batch,
                        scorer_reduction=2 if way.half else 1)  # fmt: skip
    with changed(way or WAYS[0]), running(setting, size, device) as run:
        if way is not None:
            change_scorer(run.state, way)
        run.go(65 if device.type == "cuda" else 15)
        found = [run.go(steps) for _ in range(repeats)]
        run.check()
        alone = None if way is None else alone_of(run.state, size, device)
    return Timed(found, None, 0 if run.replayed is None else run.replayed.replayed), alone


@torch.no_grad()
def alone_of(state: TrainingState, size: Size, device: torch.device) -> float:
    """Milliseconds of a pass of g alone, recorded on a GPU."""
    scorer = state.networks.scorer
    assert scorer is not None
    scorer.eval()
    x = torch.randn(size.batch, *size.shape, device=device)
    if device.type == "cuda":
        x = x.contiguous(memory_format=torch.channels_last)
    nothing = torch.zeros(0, device=device)

    def one() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            scorer(Evidence(x, nothing, nothing))

    repeat = one
    if device.type == "cuda":
        for _ in range(3):
            one()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            one()
        repeat = graph.replay
    repeat()
    wait(device)
    count = 50 if device.type == "cuda" else 3
    began = time.perf_counter()
    for _ in range(count):
        repeat()
    wait(device)
    return 1000 * (time.perf_counter() - began) / count


def main(arguments: list[str] | None = None) -> None:
    """Print a table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="resnet20")
    parser.add_argument("--scorer", default="resnet20")
    parser.add_argument("--size", type=int, default=32, help="of images")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--intervals", type=int, default=2, help="of 15 steps, in a repetition")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="*", help="only these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    size = Size(backbone=options.backbone, shape=(3, options.size, options.size),
                batch=options.batch, train=16 * options.batch,
                meta=max(1024, 2 * options.batch))  # fmt: skip
    ways = [way for way in WAYS if options.ways is None or way.name in options.ways]
    console = Console()
    rows: dict[str, dict[str, Any]] = {}
    plain: float | None = None
    for way in (None, *ways):
        name = "erm" if way is None else way.name
        with console.status(name):
            try:
                found, alone = time_of(
                    way, options.scorer, size, device, 15 * options.intervals, options.repeats
                )
            except Exception as error:
                # A compiler may be lacking, or not know a net.
                rows[name] = {"failed": str(error).splitlines()[0][:200]}
                continue
        plain = plain or found.median
        rows[name] = {
            "milliseconds": found.milliseconds, "ratio": found.median / plain,
            "g_alone_ms": alone, "replayed": found.replayed,
        }  # fmt: skip
    table = Table(title=f"{options.backbone}, g {options.scorer}, {options.size} px, "
                        f"batch {options.batch}, {options.device}")  # fmt: skip
    for column in ("way", "ms a step", "against erm", "g alone, ms"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for name, row in rows.items():
        if "failed" in row:
            table.add_row(name, row["failed"], "", "")
            continue
        alone = row["g_alone_ms"]
        median = sorted(row["milliseconds"])[len(row["milliseconds"]) // 2]
        table.add_row(name, f"{median:.3f}", f"{row['ratio']:.3f}",
                      "" if alone is None else f"{alone:.3f}")  # fmt: skip
    console.print(table)
    keep(options.json, {**here(device), "ways": rows})


if __name__ == "__main__":
    main()

"""Time, peak memory and gradient of one meta step: forward mode against four peers, one table.

Every engine takes the same step on the same networks and the same batch: look-ahead, meta-loss
with T dropout passes, gradient of the U-Score network and one step of its optimiser. Ours takes T
whole passes, as the peers do, or T heads on one trunk, which is exact when dropout sits before the
last layer; on a GPU both also as a CUDA graph. Memory is what comes on top of networks and batches.
On a CPU each engine runs in a process of its own, since a process has one peak; on a GPU, where the
allocator counts, all run in one.

The gradients of the U-Score network are compared on small networks with the same dropout masks for
all engines: cosine, and |difference| / |ours| in float32 and float64. Peers that are absent are
named and left out; see `peers_meta` for how to get them.

    python benchmarks/meta_step.py                                   # a small net
    python benchmarks/meta_step.py --classifier resnet50 --scorer resnet18 --size 224 --batch 64 \
        --precision bfloat16 --warmup 1 --repeats 3
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import importlib.util
import multiprocessing
import resource
import statistics
import sys
import time
import warnings
from dataclasses import asdict
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

import where
from peers_meta import APPROXIMATE, LIBRARIES, LR, PEERS, Problem, Setting, Step
from revar.bilevel import OneStep, Strategy, alignments
from revar.functional import Params, call, mode, parameters
from revar.methods.reweighting import linear_surrogate
from revar.nets.base import convolution_weights
from revar.stochastic import DropoutPasses

Figures = dict[str, Any]
Precision = Literal["float32", "float64"]
Masks = Literal["sequential", "same"]


def revar_step(problem: Problem, strategy: Strategy, *, shared_trunk: bool) -> None:
    """This library's step."""
    net = problem.classifier
    sampler = DropoutPasses(net, shared_trunk)

    def losses(params: Params) -> Tensor:
        return problem.losses(net, partial(call, net, params))

    def meta_loss(params: Params) -> Tensor:
        problem.seed(2)
        return problem.meta_loss(*sampler.run(problem.x_meta, problem.setting.passes, params))

    with problem.autocast():
        weights = problem.weights()
        one = OneStep(
            losses=losses, weights=weights.detach(), lr=LR, meta_loss=meta_loss,
            halved=convolution_weights(net),
        )  # fmt: skip
        found = alignments(one, parameters(net), strategy)
    problem.update(linear_surrogate(weights, found.values, LR))


def plain_step(problem: Problem) -> None:
    """Not a meta step: forward and backward of the classifier, for scale."""
    net = problem.classifier
    with problem.autocast(), mode(net, dropout=True, statistics=False):
        loss = F.cross_entropy(net(problem.x), problem.y)
    torch.autograd.grad(loss, list(net.parameters()))


def replayed_step(problem: Problem, *, shared_trunk: bool) -> None:
    """This library's step as a CUDA graph, recorded in the first call."""
    from revar.replay import FIRST, Graphs
    from revar.spares import watched

    first = "replay" not in problem.kept
    if first:
        problem.kept["stream"] = torch.cuda.Stream()
    with torch.cuda.stream(problem.kept["stream"]):
        if first:
            problem.outer = torch.optim.Adam(problem.scorer.parameters(), lr=1e-4, capturable=True)
            step = partial(revar_step, problem, "forward_mode", shared_trunk=shared_trunk)
            for _ in range(FIRST):
                with watched(problem.device) as positions:
                    step()
            problem.kept["replay"] = Graphs(problem.device).record(step, positions)
        problem.kept["replay"]()


PLAIN = "plain training step"
SHARED = "forward mode, shared trunk"
FULL = "forward mode, T full passes"
REPLAYED = "forward mode, shared, replayed"
FULL_REPLAYED = "forward mode, full, replayed"
ENGINES: dict[str, Step] = {
    PLAIN: plain_step,
    SHARED: partial(revar_step, strategy="forward_mode", shared_trunk=True),
    FULL: partial(revar_step, strategy="forward_mode", shared_trunk=False),
    "finite difference, shared trunk": partial(
        revar_step, strategy="finite_difference", shared_trunk=True
    ),
    "double backward, shared trunk": partial(
        revar_step, strategy="double_backward", shared_trunk=True
    ),
    **PEERS,
    # Last: a recording that fails can leave the device useless to its process.
    REPLAYED: partial(replayed_step, shared_trunk=True),
    FULL_REPLAYED: partial(replayed_step, shared_trunk=False),
}
UNCOMPARED = (PLAIN, REPLAYED, FULL_REPLAYED)
"""Without a gradient, or of what is compared already, as a graph."""
PRECISIONS: tuple[Precision, ...] = ("float32", "float64")
DRAWS = 5
"""Of dropout masks, where the gradient of an engine depends on masks that ours does not draw."""


def absent(name: str, device: str) -> str | None:
    """What an engine lacks here."""
    if name in (REPLAYED, FULL_REPLAYED) and not device.startswith("cuda"):
        return "needs a GPU"
    if name in LIBRARIES and importlib.util.find_spec(LIBRARIES[name][0]) is None:
        return f"{LIBRARIES[name][1]} is not installed"
    return None


def reason(error: Exception) -> str:
    """What a peer fails with, in one line."""
    first = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {first}"[:160]


def gradient(step: Step, problem: Problem, seed: int) -> Tensor:
    """[P] gradient of the U-Score network, in float64."""
    problem.reset()
    torch.manual_seed(seed)
    step(problem)
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in problem.scorer.parameters()]
    return torch.cat([part.flatten() for part in found]).double()


@cache
def small(precision: Precision, masks: Masks) -> Problem:
    """Networks on which gradients are compared."""
    return Problem(
        Setting(
            classifier="resnet20", scorer="resnet20", size=16, batch=8, passes=4,
            precision=precision, masks=masks,
        )
    )  # fmt: skip


@cache
def small_gradient(name: str, precision: Precision, masks: Masks, seed: int) -> Tensor:
    """What an engine finds there."""
    return gradient(ENGINES[name], small(precision, masks), seed)


def compare(name: str) -> Figures:
    """Cosine and relative error of an engine's gradient against ours with T full passes."""
    figures: Figures = {}

    def pair(precision: Precision, masks: Masks, seed: int) -> tuple[Tensor, Tensor]:
        ours, theirs = (small_gradient(each, precision, masks, seed) for each in (FULL, name))
        return ours, theirs

    try:
        for precision in PRECISIONS:
            ours, theirs = pair(precision, "same", 0)
            figures[f"cosine_{precision}"] = F.cosine_similarity(ours, theirs, dim=0).item()
            if name not in APPROXIMATE:
                difference = (theirs - ours).norm() / ours.norm()
                figures[f"relative_error_{precision}"] = difference.item()
        if name in APPROXIMATE:
            pairs = [pair("float64", "sequential", seed) for seed in range(DRAWS)]
            cosines = [F.cosine_similarity(*both, dim=0).item() for both in pairs]
            figures["cosines_own_masks"] = cosines
    except Exception as error:  # whatever a peer fails with belongs in the table
        return {"gradient_error": reason(error)}
    return figures


def _resident() -> int:
    """Bytes of memory this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure(step: Step, problem: Problem, warmup: int, repeats: int) -> Figures:
    """Milliseconds and peak bytes of one engine."""
    cuda = problem.device.type == "cuda"

    def timed() -> float:
        if cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        step(problem)
        if cuda:
            torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began)

    problem.reset()
    plain_step(problem)
    gc.collect()
    before = torch.cuda.memory_allocated() if cuda else _resident()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(warmup):
        timed()
    times = [timed() for _ in range(repeats)]
    # Linux counts the peak of a process in KiB.
    peak_host = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = torch.cuda.max_memory_allocated() if cuda else peak_host
    return {"ms": statistics.median(times), "all_ms": times, "bytes": peak - before}


def work(names: list[str], setting: Setting, warmup: int, repeats: int, answer: Connection) -> None:
    """Run engines one after another and send the figures of each."""
    warnings.filterwarnings("ignore")
    problem = Problem(setting)
    for name in names:
        try:
            figures = measure(ENGINES[name], problem, warmup, repeats)
        except Exception as error:  # whatever a peer fails with belongs in the table
            figures = {"error": reason(error)}
        answer.send((name, figures))


def costs(names: list[str], setting: Setting, warmup: int, repeats: int) -> dict[str, Figures]:
    """Measure engines in processes of their own; one process for all of them on a GPU."""
    context = multiprocessing.get_context("spawn")
    found: dict[str, Figures] = {}
    left = list(names)
    while left:
        batch = left if setting.device.startswith("cuda") else left[:1]
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(batch, setting, warmup, repeats, there))
        process.start()
        there.close()
        try:
            for _ in batch:
                name, figures = here.recv()
                found[name] = figures
        except EOFError:
            process.join()
            if process.exitcode is not None and process.exitcode > 0:
                sys.exit("the measuring process failed, see above")
            killed = next(name for name in batch if name not in found)
            found[killed] = {"error": "the process was killed, probably for memory"}
        process.join()
        left = [name for name in left if name not in found]
    return found


def table(engines: dict[str, Figures]) -> str:
    """One row per engine."""
    head = f"{'':34}{'':>10}{'':>9}{'time / ours':>17}{'memory / ours':>17}"
    head += f"{'gradient against ours':>31}\n"
    head += f"{'engine':34}{'ms':>10}{'MiB':>9}" + 2 * f"{'shared':>9}{'full':>8}"
    lines = [head + f"{'cosine':>11}{'float32':>10}{'float64':>10}"]
    for name, figures in engines.items():
        row = f"{name:34}"
        if "ms" not in figures:
            row += figures.get("missing") or f"failed: {figures['error']}"
        else:
            row += f"{figures['ms']:10.1f}{figures['bytes'] / 2**20:9.0f}"
            for ratio in ("time_ratio", "memory_ratio"):
                for suffix, width in (("", 9), ("_full_passes", 8)):
                    value = figures.get(ratio + suffix)
                    row += f"{'-':>{width}}" if value is None else f"{value:{width}.2f}"
            cosine = figures.get("cosine_float64")
            row += f"{'-':>11}" if cosine is None else f"{cosine:11.6f}"
            for precision in ("float32", "float64"):
                value = figures.get(f"relative_error_{precision}")
                row += f"{'-':>10}" if value is None else f"{value:10.1e}"
            if "gradient_error" in figures:
                row += f"  failed: {figures['gradient_error']}"
        lines.append(row)
    for name, figures in engines.items():
        cosines = figures.get("cosines_own_masks")
        if cosines:
            lines.append(
                f"{name}: cosine {min(cosines):.2f} to {max(cosines):.2f} over {len(cosines)} draws"
                " where each of its passes over the training batch has dropout masks of its own"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure every engine and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classifier", default="resnet18-cifar")
    parser.add_argument("--scorer", default="resnet20")
    parser.add_argument("--size", type=int, default=32, help="pixels")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--passes", type=int, default=10, help="T")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    fields = ("classifier", "scorer", "size", "batch", "passes", "device", "precision")
    setting = Setting(**{field: getattr(options, field) for field in fields})

    lacking = {name: absent(name, setting.device) for name in options.engines}
    names = [name for name, lack in lacking.items() if lack is None]
    made = where.here(setting.device)
    found = costs(names, setting, options.warmup, options.repeats)
    # Threads that wait for each other cost far more than networks as small as those compared.
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agreed = {name: compare(name) for name in names if name not in UNCOMPARED}
    engines: dict[str, Figures] = {}
    for name, lack in lacking.items():
        if lack is not None:
            engines[name] = {"missing": lack}
            continue
        engines[name] = figures = found[name] | agreed.get(name, {})
        # As a run takes it: on a GPU it replays its steps.
        for ways, suffix in (
            ((REPLAYED, SHARED), ""),
            ((FULL_REPLAYED, FULL), "_full_passes"),
        ):
            ours = next((found[way] for way in ways if "ms" in found.get(way, {})), None)
            if ours is not None and "ms" in figures:
                figures[f"time_ratio{suffix}"] = figures["ms"] / ours["ms"]
                figures[f"memory_ratio{suffix}"] = figures["bytes"] / max(ours["bytes"], 1)

    packages = {package for name, (_, package) in LIBRARIES.items() if name in names}
    described = {
        **made,
        "peers": {package: importlib.metadata.version(package) for package in sorted(packages)},
        **asdict(setting), "warmup": options.warmup, "repeats": options.repeats,
    }  # fmt: skip
    print(", ".join(f"{key} {value}" for key, value in described.items()))
    print(table(engines))
    where.keep(options.json, {"setting": described, "engines": engines})


if __name__ == "__main__":
    main()

"""Weak and strong scaling of training over processes on the cores of one machine.

Every process has one core and one thread. Weak scaling keeps the batch of each process, strong
scaling the batch of all of them. Times are of whole training steps, the outer one included where
it is due; bytes are counted where they are handed to a collective. From bytes counted for the
networks of ImageNet and from times of one GPU an estimate of ImageNet-1K is written, with its
formula and inputs.

    python benchmarks/scaling.py --json results/scaling/figures.json
    python benchmarks/scaling.py --processes 1 2 --steps 6 --estimate-px 0     # a look
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from revar import training
from revar.commands.processes import leave
from revar.data.augment import Augment
from revar.feeds import DataFeeds
from revar.fitting import build_networks
from revar.methods.base import Method
from revar.methods.revar import ReVaR
from revar.nets.base import Dropout
from revar.parallel import joined
from revar.preparation import Split
from revar.randomness import seed_generators
from revar.recipe import Budget, Recipe, make_method
from revar.sharded import joint_outputs
from revar.types import Task
from where import here, keep

CPU = torch.device("cpu")
Figures = dict[str, Any]
GPU_INPUTS: Figures = {
    "source": "one NVIDIA H200, not replayed, bf16, 224 px, batch 64: ResNet-50, ResNet-18, "
    "T = 10; the weighted step is the plain one and 7.3 ms for g, as in an earlier run",
    "images": 1_281_167,
    "epochs": 300,
    "batch_per_gpu": 64,
    "plain_step_ms": 22.9,
    "weighted_step_ms": 30.2,
    "meta_step_ms": 138.4,
    "interval": 15,
    "warmup_share": 25 / 300,
    "bandwidth_in_host_gb": 200.0,
    "bandwidth_between_hosts_gb": 40.0,
    "gpus_per_host": 8,
    "latency_us": 25.0,
}
"""What an estimate needs; times were measured, bandwidths (GB/s of each GPU) are assumed."""
FORMULA = (
    "seconds of a step on P GPUs = seconds on one + calls * latency"
    " + (2 (P - 1) / P * reduced bytes + (P - 1) * gathered bytes) / bandwidth"
)


def problem(spec: Figures, n: int) -> tuple[Method, training.TrainingState, Task, Budget]:
    """Networks, and noise to train them on."""
    shape, classes, batch = (3, spec["px"], spec["px"]), spec["classes"], spec["batch"]
    method = make_method(spec["method"])
    if spec["method"] == "revar-paper":
        assert isinstance(method, ReVaR)
        method = replace(
            method, scorer_backbone=spec["scorer"], interval=spec["interval"], warmup=0.0
        )
    budget = Budget(epochs=1000, batch_size=batch, learning_rate=0.01)
    task = Task(n_classes=classes, input_shape=shape)
    recipe = Recipe(method=method, backbone=spec["backbone"], dropout=Dropout(), budget=budget)
    networks = build_networks(recipe, task, torch.zeros(2, *shape), None, CPU)
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        x = torch.randint(0, 256, (count, *shape), generator=generator, dtype=torch.uint8)
        y = torch.arange(count) % classes
        return Split(x, y.numpy(), torch.arange(count).numpy())

    feeds = DataFeeds(
        split(n), split(2 * batch), torch.zeros(0, *shape), normalise=networks.normalise,
        augment=Augment(pad=2, flip=True), batch_size=batch, seed=0, device=CPU, workers=0,
    )  # fmt: skip
    state = training.new_state(method, budget, networks, feeds, CPU)
    return method, state, task, budget


def work(spec: Figures) -> Figures:
    """One process of several: seconds of every step, and its bytes."""
    torch.set_num_threads(1)
    with joined(CPU, timeout=300) as world:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[world.rank % len(cores)]})
        steps = spec["warm"] + spec["steps"]
        method, state, task, budget = problem(spec, spec["batch"] * steps)
        seed_generators(0, CPU)
        seconds, traffic = [], []
        with joint_outputs(state.networks.classifier):
            for number, batch in enumerate(state.feeds.epoch(0)):
                # Together, or a step would be charged for the wait for the slowest.
                world.any(False)
                world.traffic.clear()
                began = time.perf_counter()
                training.train_step(state, method, task, budget, batch)
                if number >= spec["warm"]:
                    seconds.append(time.perf_counter() - began)
                    traffic.append(dict(world.traffic))
        parameters = {
            name: sum(p.numel() for p in net.parameters())
            for name, net in (("f", state.networks.classifier), ("g", state.networks.scorer))
            if net is not None
        }
    return {"seconds": seconds, "traffic": traffic, "parameters": parameters}


def run(spec: Figures, count: int) -> Figures:
    """The same on several processes; what the first one found."""
    with tempfile.TemporaryDirectory() as folder:
        shared = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "WORLD_SIZE": str(count),
            "REVAR_RENDEZVOUS": f"file://{folder}/meeting",
        }
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--worker", json.dumps(spec)],
                env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]
        answers = [process.communicate()[0] for process in processes]
        if any(process.returncode for process in processes):
            raise SystemExit(f"a process failed: {spec}")
    found: Figures = json.loads(answers[0])
    return found


def per_step(traffic: Sequence[dict[str, int]], kind: str) -> float:
    """The mean over steps."""
    return sum(each.get(kind, 0) for each in traffic) / len(traffic)


def measure(options: argparse.Namespace) -> list[Figures]:
    """Every number of processes, both ways, both methods."""
    rows = []
    for method in options.methods:
        for scaling in options.scaling:
            first: Figures | None = None
            for count in options.processes:
                batch = options.batch * (count if scaling == "weak" else max(options.processes))
                spec = {
                    "method": method, "px": options.px, "classes": 10, "batch": batch,
                    "backbone": options.backbone, "scorer": options.scorer,
                    "interval": options.interval, "warm": options.warm, "steps": options.steps,
                }  # fmt: skip
                found = run(spec, count)
                row = {
                    "scaling": scaling, "method": method, "processes": count, "batch": batch,
                    "ms": 1000 * statistics.mean(found["seconds"]),
                    "median_ms": 1000 * statistics.median(found["seconds"]),
                    "all_reduce_bytes": per_step(found["traffic"], "all_reduce"),
                    "all_gather_bytes": per_step(found["traffic"], "all_gather"),
                    "calls": per_step(found["traffic"], "all_reduce calls")
                    + per_step(found["traffic"], "all_gather calls"),
                }  # fmt: skip
                first = first or row
                rate, base = batch / row["ms"], first["batch"] / first["ms"]
                row["images_per_second"] = 1000 * rate
                row["efficiency"] = rate / base * first["processes"] / count
                rows.append(row)
    return rows


def imagenet_bytes(options: argparse.Namespace) -> Figures:
    """Payloads of ResNet-50 with a ResNet-18 scorer on 1,000 classes, counted.

    They do not depend on the size of the images. What is gathered grows with the rows of a
    process, so two batches are tried and a line is drawn through them.
    """
    found: Figures = {}
    for rows in (2, 4):
        spec = {
            "method": "revar-paper", "px": options.estimate_px, "classes": 1000, "batch": 2 * rows,
            "backbone": options.estimate_backbone, "scorer": options.estimate_scorer,
            "interval": 2, "warm": 0, "steps": 2,
        }  # fmt: skip
        answer = run(spec, 2)
        meta, weighted = answer["traffic"]
        # The first of two steps has a meta step before it.
        parts = {"weighted": weighted, "meta": {k: meta[k] - weighted.get(k, 0) for k in meta}}
        for name, counted in parts.items():
            for key, value in counted.items():
                found.setdefault(f"{name} {key}", {})[rows] = value
        found["parameters"] = answer["parameters"]
    return found


def _line(points: dict[int, int], rows: int) -> float:
    slope = (points[4] - points[2]) / 2
    return points[2] + slope * (rows - 2)


def estimate(counted: Figures, inputs: Figures) -> list[Figures]:
    """Hours of ImageNet-1K on P GPUs: `FORMULA`, nothing sent while something is computed."""
    rows = []
    per_gpu = inputs["batch_per_gpu"]
    for gpus in (1, 8, 16, 32, 64):
        inside = gpus <= inputs["gpus_per_host"]
        key = "bandwidth_in_host_gb" if inside else "bandwidth_between_hosts_gb"
        bandwidth = inputs[key] * 1e9
        sent, calls = {}, {}
        for part in ("weighted", "meta"):
            reduced = _line(counted[f"{part} all_reduce"], per_gpu)
            gathered = _line(counted[f"{part} all_gather"], per_gpu)
            sent[part] = 2 * (gpus - 1) / gpus * reduced + (gpus - 1) * gathered
            calls[part] = sum(
                _line(counted[f"{part} {kind} calls"], per_gpu)
                for kind in ("all_reduce", "all_gather")
            )
        waits = {
            part: (sent[part] / bandwidth + calls[part] * inputs["latency_us"] / 1e6) * (gpus > 1)
            for part in sent
        }
        plain = inputs["plain_step_ms"] / 1000 + waits["weighted"]
        weighted = inputs["weighted_step_ms"] / 1000 + waits["weighted"]
        meta = (inputs["meta_step_ms"] / 1000 + waits["meta"]) / inputs["interval"]
        warm = inputs["warmup_share"]
        revar = warm * plain + (1 - warm) * (weighted + meta)
        steps = inputs["epochs"] * inputs["images"] / (per_gpu * gpus)
        rows.append(
            {
                "gpus": gpus, "batch": per_gpu * gpus,
                "sent_mb_per_step": (sent["weighted"] + sent["meta"] / inputs["interval"]) / 1e6,
                "erm_hours": steps * plain / 3600, "revar_hours": steps * revar / 3600,
                "ratio": revar / plain,
            }
        )  # fmt: skip
    for row in rows:
        row["efficiency"] = rows[0]["revar_hours"] / row["revar_hours"] / row["gpus"]
    return rows


def table(rows: Sequence[Figures]) -> str:
    """Aligned columns."""
    names = list(rows[0])
    cells = [[_cell(row[name]) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[k]) for row in cells)) for k, name in enumerate(names)]
    lines = [names, *cells]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _cell(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def draw(rows: Sequence[Figures], path: Path) -> None:
    """Images per second against processes, beside the straight line."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    kinds = list(dict.fromkeys(row["scaling"] for row in rows))
    figure, grid = plt.subplots(
        1, len(kinds), figsize=(4.5 * len(kinds), 3.6), squeeze=False, layout="constrained"
    )
    for axis, scaling in zip(grid[0], kinds, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            chosen = [r for r in rows if r["scaling"] == scaling and r["method"] == method]
            counts = [r["processes"] for r in chosen]
            (line,) = axis.plot(
                counts, [r["images_per_second"] for r in chosen], "o-", label=method
            )
            first = chosen[0]["images_per_second"] / counts[0]
            axis.plot(counts, [first * c for c in counts], ":", color=line.get_color())
        axis.set(
            title=f"{scaling} scaling", xlabel="processes", ylabel="images / s", ylim=(0, None)
        )
        axis.set_xticks(counts)
        axis.legend(title="dotted: linear")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Measure, print one table, write the figures and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument(
        "--scaling", nargs="+", default=["weak", "strong"], choices=["weak", "strong"]
    )
    parser.add_argument("--methods", nargs="+", default=["erm", "revar-paper"])
    parser.add_argument("--backbone", default="resnet20")
    parser.add_argument("--scorer", default="resnet20")
    parser.add_argument("--px", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16, help="of each process, weak scaling")
    parser.add_argument("--interval", type=int, default=5, help="steps per meta step")
    parser.add_argument("--warm", type=int, default=5, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--estimate-px", type=int, default=64, help="0 leaves the estimate out")
    parser.add_argument("--estimate-backbone", default="resnet50")
    parser.add_argument("--estimate-scorer", default="resnet18")
    parser.add_argument("--inputs", type=Path, help="JSON with inputs of the estimate")
    parser.add_argument("--json", type=Path, help="write the figures here, and a picture beside")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        print(json.dumps(work(json.loads(options.worker))))
        leave(0)
    rows = measure(options)
    print(table(rows))
    figures: Figures = {"scaling": rows}
    if options.estimate_px:
        given = {} if options.inputs is None else json.loads(options.inputs.read_text())
        inputs = {**GPU_INPUTS, **given}
        counted = imagenet_bytes(options)
        figures["imagenet"] = {
            "inputs": inputs,
            "counted": counted,
            "formula": FORMULA,
            "rows": estimate(counted, inputs),
        }
        print(f"\nImageNet-1K, {inputs['epochs']} epochs, estimated ({inputs['source']}):")
        print(table(figures["imagenet"]["rows"]))
    if options.json is not None:
        keep(options.json, {"setting": {**here(), "cores": os.cpu_count()}, **figures})
        draw(rows, options.json.with_suffix(".png"))


if __name__ == "__main__":
    main()

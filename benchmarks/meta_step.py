"""Time and peak memory of one meta step: forward mode against double backward and `higher`.

Every engine takes the same step on the same networks and the same batch: look-ahead, meta-loss
with T dropout passes, gradient of the U-Score network and one step of its optimiser. Each runs in
a process of its own, so that none inherits another's memory.

    python benchmarks/meta_step.py                                   # a small net, CPU
    python benchmarks/meta_step.py --classifier resnet50 --scorer resnet18 --size 224 --batch 64
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from revar.bilevel import OneStep, Strategy, alignments
from revar.functional import Params, call, mode, parameters
from revar.methods.reweighting import linear_surrogate
from revar.nets.base import Classifier, Dropout
from revar.nets.build import Backbone
from revar.registry import BACKBONES
from revar.stochastic import DropoutPasses, variance

N_CLASSES = 10
LR = 0.01


def build(name: str, size: int, n_outputs: int, rate: float) -> Classifier:
    """A network of ours by name, or torchvision's with dropout added before its last layer."""
    shape = (3, size, size)
    if any(entry.name == name for entry in BACKBONES):
        return Backbone(name, Dropout(rate=rate)).build(shape, n_outputs)
    import torchvision

    module = torchvision.models.get_model(name, num_classes=n_outputs)
    return Backbone("custom", Dropout(rate=rate), module).build(shape, n_outputs)


class Problem:
    """Networks, batches and the meta step of each engine on them."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.device = torch.device(options.device)
        self.passes = options.passes
        self.low = options.precision == "bfloat16"
        size, batch = options.size, options.batch
        self.classifier = build(options.classifier, size, N_CLASSES, 0.3).to(self.device)
        self.scorer = build(options.scorer, size, 1, 0.0).to(self.device)
        self.x, self.x_meta = (torch.randn(batch, 3, size, size).to(self.device) for _ in range(2))
        self.y, self.y_meta = (torch.randint(N_CLASSES, (batch,)).to(self.device) for _ in range(2))
        if self.device.type == "cuda":
            for net in (self.classifier, self.scorer):
                net.to(memory_format=torch.channels_last)
            self.x = self.x.contiguous(memory_format=torch.channels_last)
            self.x_meta = self.x_meta.contiguous(memory_format=torch.channels_last)
        self.outer = torch.optim.Adam(self.scorer.parameters(), lr=1e-4)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of the step."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.low)

    def weights(self) -> Tensor:
        """[n] differentiable weights of the training batch."""
        with mode(self.scorer, dropout=True, statistics=False):
            logits: Tensor = self.scorer(self.x)
        return logits.squeeze(-1).float().sigmoid()

    def losses(self, params: Params) -> Tensor:
        """[n] training losses, in training mode."""
        with mode(self.classifier, dropout=True, statistics=False):
            logits = call(self.classifier, params, self.x)
        return F.cross_entropy(logits, self.y, reduction="none")

    def meta_loss(self, logits: Tensor, samples: Tensor) -> Tensor:
        """Equation 4."""
        return F.cross_entropy(logits, self.y_meta) + variance(samples).mean()

    def revar_step(self, strategy: Strategy, *, shared_trunk: bool) -> None:
        """This library's step."""
        sampler = DropoutPasses(self.classifier, shared_trunk)

        def meta_loss(params: Params) -> Tensor:
            return self.meta_loss(*sampler.run(self.x_meta, self.passes, params))

        with self.autocast():
            weights = self.weights()
            problem = OneStep(
                losses=self.losses, weights=weights.detach(), lr=LR, meta_loss=meta_loss
            )
            found = alignments(problem, parameters(self.classifier), strategy)
        self.update(linear_surrogate(weights, found.values, LR))

    def kept_passes_step(self) -> None:
        """Double backward as usually written: a graph of every pass is kept."""
        params = {k: p.detach().requires_grad_() for k, p in self.classifier.named_parameters()}
        with self.autocast():
            inner = (self.weights() * self.losses(params)).mean()
            gradients = torch.autograd.grad(inner, list(params.values()), create_graph=True)
            named = zip(params.items(), gradients, strict=True)
            ahead = {name: p - LR * gradient for (name, p), gradient in named}
            with mode(self.classifier, dropout=False, statistics=True):
                logits = call(self.classifier, ahead, self.x_meta)
            with mode(self.classifier, dropout=True, statistics=True):
                samples = [call(self.classifier, ahead, self.x_meta) for _ in range(self.passes)]
            loss = self.meta_loss(logits, torch.stack(samples))
        self.update(loss)

    def higher_step(self) -> None:
        """The same through ``higher``: a patched copy of the network and of its optimiser."""
        import higher

        inner = torch.optim.SGD(self.classifier.parameters(), lr=LR)
        with (
            self.autocast(),
            higher.innerloop_ctx(self.classifier, inner, copy_initial_weights=True) as (
                ahead,
                stepper,
            ),
        ):
            with mode(ahead, dropout=True, statistics=False):
                losses = F.cross_entropy(ahead(self.x), self.y, reduction="none")
                stepper.step((self.weights() * losses).mean())
            with mode(ahead, dropout=False, statistics=True):
                logits = ahead(self.x_meta)
            with mode(ahead, dropout=True, statistics=True):
                samples = [ahead(self.x_meta) for _ in range(self.passes)]
            loss = self.meta_loss(logits, torch.stack(samples))
            self.update(loss)

    def update(self, loss: Tensor) -> None:
        """One step of the scorer's optimiser."""
        self.outer.zero_grad()
        gradients = torch.autograd.grad(loss, list(self.scorer.parameters()), allow_unused=True)
        for p, gradient in zip(self.scorer.parameters(), gradients, strict=True):
            p.grad = gradient
        self.outer.step()

    def plain_step(self) -> None:
        """Not a meta step: forward and backward of the classifier, for scale."""
        with self.autocast(), mode(self.classifier, dropout=True, statistics=False):
            loss = F.cross_entropy(self.classifier(self.x), self.y)
        torch.autograd.grad(loss, list(self.classifier.parameters()))


ENGINES: dict[str, Callable[[Problem], None]] = {
    "plain training step": Problem.plain_step,
    "forward mode, shared trunk": lambda p: p.revar_step("forward_mode", shared_trunk=True),
    "forward mode, T full passes": lambda p: p.revar_step("forward_mode", shared_trunk=False),
    "finite difference, shared trunk": lambda p: p.revar_step(
        "finite_difference", shared_trunk=True
    ),
    "double backward, shared trunk": lambda p: p.revar_step("double_backward", shared_trunk=True),
    "double backward, T full passes": Problem.kept_passes_step,
    "higher, T full passes": Problem.higher_step,
}
REFERENCE = "forward mode, shared trunk"


def _resident() -> int:
    """Bytes of memory this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure(name: str, options: argparse.Namespace, answer: Connection) -> None:
    """Run one engine and send its milliseconds and peak bytes."""
    warnings.filterwarnings("ignore")
    problem = Problem(options)
    step = ENGINES[name]
    cuda = problem.device.type == "cuda"

    def timed() -> float:
        if cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        step(problem)
        if cuda:
            torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began)

    try:
        problem.plain_step()
        before = torch.cuda.memory_allocated() if cuda else _resident()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        for _ in range(options.warmup):
            timed()
        times = [timed() for _ in range(options.repeats)]
        # Linux counts the peak of a process in KiB.
        peak_host = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = torch.cuda.max_memory_allocated() if cuda else peak_host
        answer.send({"ms": statistics.median(times), "all_ms": times, "bytes": peak - before})
    except Exception as error:  # whatever a peer fails with belongs in the table
        reason = str(error).splitlines()[0] if str(error) else ""
        answer.send({"error": f"{type(error).__name__}: {reason}"[:160]})


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
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()

    context = multiprocessing.get_context("spawn")
    found: dict[str, dict[str, Any]] = {}
    for name in ENGINES:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=measure, args=(name, options, there))
        process.start()
        there.close()
        try:
            found[name] = here.recv()
        except EOFError:
            found[name] = {"error": "the process was killed, probably for memory"}
        process.join()

    reference = found[REFERENCE]
    processor = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor()
    heading = {k: v for k, v in vars(options).items() if k != "json"}
    print(f"{processor or platform.machine()}, torch {torch.__version__}: {heading}")
    print(f"{'engine':34}{'ms':>10}{'MiB':>10}{'time ratio':>12}{'memory ratio':>14}")
    for name, figures in found.items():
        if "error" in figures:
            print(f"{name:34}{'failed: ' + figures['error']}")
            continue
        figures["time_ratio"] = figures["ms"] / reference["ms"]
        figures["memory_ratio"] = figures["bytes"] / max(reference["bytes"], 1)
        print(
            f"{name:34}{figures['ms']:10.1f}{figures['bytes'] / 2**20:10.0f}"
            f"{figures['time_ratio']:12.2f}{figures['memory_ratio']:14.2f}"
        )
    if options.json is not None:
        described = {"processor": processor, "torch": torch.__version__, **heading}
        options.json.write_text(json.dumps({"setting": described, "engines": found}, indent=2))


if __name__ == "__main__":
    main()

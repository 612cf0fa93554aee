"""What a step keeps in memory, and how long it takes: as usual, in parts, and by blocks.

Three kinds of steps on noise: plain training, and training with a meta step of the paper's in every
step, with a look-ahead of its own or the training step itself, whose U-Score reads features, so
that nearly all memory is the classifier's. *Kept* is what
one pass of the classifier saves for its backward pass, *made* the most that a whole step holds at a
time beyond what was there before it: on a GPU by its allocator, on a CPU by the tensors alive. On a
CPU the settings take turns. On a GPU memory is that of steps that are not replayed, and times are
of both: a graph keeps what a step makes.

    python benchmarks/memory.py --json results/memory/cpu_32.json
    python benchmarks/memory.py --device cuda --backbone resnet50 --size 224 --batch 64 \
        --json results/memory/h200_224.json
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from revar.functional import mode
from revar.recipe import Budget
from revar.training import autocast
from steps import Running, Setting, Size, paper, running, wait
from where import here, keep

MIB = 2**20


@dataclass(slots=True)
class Figures:
    """Of a setting."""

    kept_mib: float
    made_mib: float = 0.0
    peak_mib: float | None = None
    milliseconds: list[float] = field(default_factory=list)
    replayed: list[float] = field(default_factory=list)


class Alive(TorchDispatchMode):
    """Counts the bytes of tensors that operations make, as long as they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known: set[int] = set()

    def _meet(self, tree: Any, *, new: bool) -> None:
        for tensor in tree_leaves(tree):
            if not isinstance(tensor, Tensor):
                continue
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes() if new else 0
            if key not in self._known:
                self._known.add(key)
                self.now += size
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run, and count what was not there before."""
        self._meet((args, kwargs), new=False)
        made = func(*args, **(kwargs or {}))
        self._meet(made, new=True)
        return made


def settings(rows: int, names: Sequence[str] | None = None) -> list[Setting]:
    """Plain steps and two kinds of meta steps, each in three ways, or those asked for."""
    ways: dict[str, dict[str, Any]] = {
        "": {}, f", micro_batch={rows}": {"micro_batch": rows}, ", recompute": {"recompute": True},
    }  # fmt: skip
    kinds = [
        Setting(name="erm"),
        paper("revar-paper", "features", interval=1),
        paper("shared gradient", "features", interval=1, shares_gradient=True),
    ]
    found = [
        replace(one, name=one.name + way, graphs=False, budget=tuple(budget.items()))
        for one in kinds
        for way, budget in ways.items()
    ]
    return found if names is None else [one for one in found if one.name in names]


def kept(run: Running, size: Size, device: torch.device) -> float:
    """MiB that a training pass of the classifier saves, its parameters aside."""
    net = run.state.networks.classifier
    own = {p.untyped_storage().data_ptr() for p in net.parameters()}
    found: dict[int, int] = {}
    alive: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        # Held, or another would get its place.
        alive.append(tensor)
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(size.batch, *size.shape, device=device)
    hooks = saved_tensors_hooks(note, lambda tensor: tensor)
    with mode(net, dropout=True, statistics=False), autocast(Budget(), device), hooks:
        net(x)
    return sum(found.values()) / MIB


def step_of(run: Running, device: torch.device) -> tuple[float, float | None]:
    """MiB that a step makes, and on a GPU the most that was there at all."""
    if device.type == "cpu":
        with Alive() as alive:
            run.go(1)
        return alive.most / MIB, None
    wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run.go(1)
    peak = torch.cuda.max_memory_allocated(device)
    return (peak - before) / MIB, peak / MIB


def measured(
    chosen: Sequence[Setting], size: Size, device: torch.device, repeats: int
) -> Iterator[dict[str, Figures]]:
    """What was found so far: on a CPU of all in turns, on a GPU of one after the other."""
    found: dict[str, Figures] = {}
    for together in [chosen] if device.type == "cpu" else [[one] for one in chosen]:
        gc.collect()  # of the setting before, of whose blocks some refer to each other
        with ExitStack() as stack:
            runs = {one.name: stack.enter_context(running(one, size, device)) for one in together}
            for name, run in runs.items():
                run.go(2)
                found[name] = Figures(kept(run, size, device), *step_of(run, device))
            # Steps that the host prepares kernel by kernel take from 25 ms to a second.
            each = 1 if device.type == "cpu" else max(1, min(10, int(500 / run.go(1))))
            for _ in range(repeats):
                for name, run in runs.items():
                    found[name].milliseconds.append(run.go(each))
            for run in runs.values():
                run.check()
        if device.type == "cuda":
            for one in together:
                found[one.name].replayed = replayed(one, size, device, repeats)
        yield found


def replayed(setting: Setting, size: Size, device: torch.device, repeats: int) -> list[float]:
    """Milliseconds of its steps as a run on a GPU takes them."""
    with running(replace(setting, graphs=True), size, device) as run:
        run.go(6)
        found = [run.go(10) for _ in range(repeats)]
        assert run.replayed is not None
        assert run.replayed.replayed > 0, "its steps cannot be recorded"
    return found


def described(found: Mapping[str, Figures]) -> dict[str, dict[str, Any]]:
    """Figures as they are kept, with the time relative to as usual, where that was measured."""
    kept: dict[str, dict[str, Any]] = {name: asdict(value) for name, value in found.items()}
    for name, value in found.items():
        usual = found.get(name.split(",", maxsplit=1)[0])
        for ratio, times in (("ratio", "milliseconds"), ("ratio_replayed", "replayed")):
            turns = zip(getattr(value, times), getattr(usual, times), strict=True) if usual else ()
            ratios = [ours / theirs for ours, theirs in turns]
            kept[name][ratio] = statistics.median(ratios) if ratios else None
    return kept


def main() -> None:
    """Print a table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backbone", default="resnet18-cifar")
    parser.add_argument("--size", type=int, default=32, help="of images")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=8, help="of a part")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--settings", nargs="+", help="only these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    size = Size(backbone=options.backbone, shape=(3, options.size, options.size),
                batch=options.batch, train=16 * options.batch, meta=2 * options.batch)  # fmt: skip
    chosen = settings(options.rows, options.settings)
    about = {"backbone": options.backbone, "size": options.size, "batch": options.batch}
    made, found = here(device), {}
    for found in measured(chosen, size, device, options.repeats):
        # A run that is cut off leaves what it has.
        keep(options.json, {**made, **about, "settings": described(found)})
        print(f"{len(found)} of {len(chosen)} settings measured", file=sys.stderr, flush=True)
    title = f"{options.backbone}, {options.size} px, batch {options.batch}, {options.device}"
    table = Table(title=title)
    columns = ["setting", "kept MiB", "made MiB", "ms a step", "against as usual"]
    kinds = [("milliseconds", "ratio")]
    if device.type == "cuda":
        columns += ["replayed", "against as usual"]
        kinds.append(("replayed", "ratio_replayed"))
    for column in columns:
        table.add_column(column, justify="left" if column == "setting" else "right")
    for name, value in described(found).items():
        cells = [name, f"{value['kept_mib']:.1f}", f"{value['made_mib']:.1f}"]
        for times, ratio in kinds:
            cells.append(f"{statistics.median(value[times]):.1f}")
            cells.append("" if value[ratio] is None else f"{value[ratio]:.2f}")
        table.add_row(*cells)
    Console().print(table)


if __name__ == "__main__":
    main()

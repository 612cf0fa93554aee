"""What one process of several finds out about tables whose rows are shared.

``operations`` prints its findings as JSON; ``train``, ``stop`` and ``resume`` train in a folder.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from revar import rows, training
from revar.commands.processes import leave
from revar.fitting import fit_prepared
from revar.methods.base import Sizes
from revar.methods.dictionary import Dictionary, PseudoLabels
from revar.methods.history import Sums
from revar.methods.sat import Beliefs
from revar.methods.trajectory import Averages
from revar.parallel import World, joined
from revar.preparation import Prepared, prepare
from revar.progress import Silent
from revar.recipe import Budget, Recipe, make_method, with_settings
from revar.rows import Rows, end_sharing, gather_rows, shared_rows, spread_rows
from revar.run import RunFolder
from revar.training import InterruptedRun, TrainingState
from support.ranks import sources

CPU = torch.device("cpu")
SIZES = Sizes(train=1001, meta=17, unlabelled=2, n_classes=7, weights=9)
METHODS: dict[str, dict[str, str]] = {
    "sat": {"pretrain": "0.3"},
    "fsr-full": {"dictionary_batch": "10"},
    "trajectory": {"start": "0.3"},
    "history": {"start": "0.3", "source": "evaluation", "register": "true"},
}
STOPPED = 6
"""Steps after which a run is stopped, in the second of its two epochs."""


def same(found: Tensor, expected: Tensor) -> bool:
    """Bit for bit, so that -0 is not 0."""
    return torch.equal(found.contiguous().view(torch.uint8), expected.view(torch.uint8))


def odd(*shape: int) -> Tensor:
    """Numbers with all that adding zeros could change."""
    x = torch.randn(*shape, dtype=torch.float32)
    for number in (-0.0, math.inf, math.nan):
        x[torch.rand(shape) < 0.2] = number
    return x


class Halved:
    """Half of what was there, and something new."""

    def __init__(self, new: Tensor) -> None:
        self.new = new

    def __call__(self, old: Tensor) -> Tensor:
        return old * 0.5 + self.new


def operations() -> list[str]:
    """What differs from a whole table."""
    wrong = []
    rows.CHUNK = 48
    for size in (1, 2, 7, 11):
        for shape in ((), (4,)):
            table, expected = Rows(), torch.full((size, *shape), 0.5, dtype=torch.float32)
            table.add_rows("it", size, *shape, fill=0.5)
            table.float()
            for step in range(6):
                index = torch.randperm(size)[: torch.randint(1, size + 1, ())]
                values = odd(len(index), *shape)
                if step % 2:
                    table.write("it", index, values)
                    expected[index] = values
                else:
                    table.change("it", index, Halved(values))
                    expected[index] = Halved(values)(expected[index])
                again = torch.randperm(size)
                found = {"read": (table.read("it", again), expected[again])}
                found["whole"] = (table.whole("it"), expected)
                if WORLD.first:
                    found["gathered"] = (gather_rows(table)["it"], expected)
                elif gather_rows(table):
                    wrong.append(f"gathered by process {WORLD.rank}")
                wrong += [f"{k} {size} {shape}" for k, (a, b) in found.items() if not same(a, b)]
            other = odd(size, *shape)
            spread_rows(table, {"it": other} if WORLD.first else {})
            if not same(table.whole("it"), other):
                wrong.append(f"spread {size} {shape}")
            end_sharing(table)
            if WORLD.first and not (
                same(table.get_buffer("it"), other) and same(table.read("it", again), other[again])
            ):
                wrong.append(f"ended {size} {shape}")
    return wrong


def held() -> dict[str, int]:
    """Numbers of every table that this process keeps."""
    found: dict[str, int] = {}
    for name in METHODS:
        memory = make_method(name).build_memory(SIZES)
        assert memory is not None
        found |= {f"{name} {k}": v.numel() for k, v in shared_rows(memory).items()}
    return found


def traffic() -> dict[str, dict[str, int]]:
    """What an operation on ten examples sends, in bytes and calls."""
    index, p = torch.randperm(SIZES.train)[:10], torch.rand(10, SIZES.n_classes)
    dictionary, averages = Dictionary(SIZES.train, 7, 2), Averages(SIZES, weights=False)
    labels = torch.arange(SIZES.train) % 7
    calls: dict[str, Callable[[], object]] = {
        "sat": lambda: Beliefs(SIZES.train).update(index, p[:, 0], 0.9),
        "fsr": lambda: dictionary.observe(index, p[:, 0], 0.9),
        "fsr epoch": lambda: dictionary.refill(labels),
        "fsr-full": lambda: PseudoLabels(SIZES.train, 7).visit(index, p, 0.1),
        "trajectory": lambda: (averages.add(index, p), averages.follow(index, p, 0.7)),
        "history": lambda: Sums(SIZES).add("train", index, p),
    }
    found = {}
    for name, call in calls.items():
        WORLD.traffic.clear()
        call()
        found[name] = dict(WORLD.traffic)
    return found


class Keeper:
    """Of checkpoints in a folder; it remembers after which steps it kept one."""

    def __init__(self, path: Path) -> None:
        self.folder, self.steps = RunFolder(path), list[int]()

    def begin(self, data: Prepared, state: TrainingState) -> None:
        self.folder.begin(data.recipe, {}, resume=True)
        self.folder.load_checkpoint(state)

    def save(self, state: TrainingState) -> None:
        assert WORLD.first
        self.steps.append(state.step)
        self.folder.save_checkpoint(state)


def prepared(name: str) -> Prepared:
    recipe = Recipe(method=make_method(name), budget=Budget(epochs=2), test_passes=2)
    settings = {"batch_size": "33", "test_passes": "2", **METHODS[name]}
    return prepare(with_settings(recipe, settings), sources()["table"])


def clocks(folder: Path) -> dict[str, Any]:
    """One process is always late, the others never; and how many messages ask about it."""
    before = training.CHECKPOINT_SECONDS
    training.CHECKPOINT_SECONDS = -1.0 if WORLD.rank == 1 else math.inf
    keeper, calls = Keeper(folder / "late"), []
    for each in (None, keeper):
        WORLD.traffic.clear()
        fit_prepared(
            prepared("sat"), device=CPU, observer=Silent(), keeper=each, stop=lambda: False
        )
        calls.append(WORLD.traffic["all_reduce calls"])
    training.CHECKPOINT_SECONDS = before
    return {"steps": keeper.steps, "calls": calls}


class StopAfter:
    """Says so once, after some steps."""

    def __init__(self, steps: int | None) -> None:
        self.wanted, self.steps = steps, 0

    def __call__(self) -> bool:
        self.steps += 1
        return self.steps == self.wanted


def train(mode: str, folder: Path) -> None:
    """Every method; the last process alone is asked to stop."""
    for name in METHODS:
        keeper = Keeper(folder / name)
        stop = StopAfter(STOPPED if mode == "stop" and WORLD.rank == WORLD.size - 1 else None)
        try:
            model = fit_prepared(
                prepared(name), device=CPU, observer=Silent(), keeper=keeper, stop=stop
            )
        except InterruptedRun:
            continue
        finally:
            keeper.folder.end()
        if WORLD.first:
            assert mode != "resume" or keeper.steps[0] > STOPPED
            weights = model.networks.state_dict()
            save_file({k: v.contiguous() for k, v in weights.items()}, folder / f"{name}.end")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    WORLD: World
    with joined(CPU, timeout=60) as WORLD:
        torch.manual_seed(0)
        what, where = sys.argv[1], Path(sys.argv[2])
        if what == "operations":
            answers = {
                "wrong": operations(), "held": held(), "traffic": traffic(),
                "clocks": clocks(where),
            }  # fmt: skip
            print(json.dumps(answers))
        else:
            train(what, where)
    leave(0)

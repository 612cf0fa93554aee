"""What benchmarks of training share: a run on noise, and the time of its steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from revar import training
from revar.data.augment import Augment
from revar.feeds import DataFeeds
from revar.fitting import build_networks
from revar.functional import flat_state
from revar.in_parts import in_parts
from revar.methods.base import Method, Sizes
from revar.nets.base import Dropout
from revar.preparation import Split
from revar.randomness import seed_generators
from revar.recipe import Budget, Recipe, make_method
from revar.recomputed import recomputed
from revar.replay import ReplayedSteps, can_replay, replaying
from revar.types import Batch, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A run to be timed.

    Attributes:
        name: in tables.
        method: a name of ``revar list methods``.
        changes: of its fields.
        graphs: whether steps are replayed.
        budget: further fields of the budget.
    """

    name: str
    method: str = "erm"
    changes: tuple[tuple[str, Any], ...] = ()
    graphs: bool = True
    budget: tuple[tuple[str, Any], ...] = ()


def paper(name: str, scorer: str, backbone: str | None = None, **changes: Any) -> Setting:
    """The paper's setting with another scorer: interval 15, an ordinary meta batch, T = 10."""
    fields = {"scorer": scorer, "scorer_backbone": backbone, "warmup": 0.0, **changes}
    return Setting(name=name, method="revar-paper", changes=tuple(fields.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of the problem."""

    backbone: str
    shape: tuple[int, ...]
    batch: int
    classes: int = 10
    train: int = 2048
    meta: int = 1024


def make(
    setting: Setting, size: Size, device: torch.device
) -> tuple[Method, training.TrainingState, Task, Budget]:
    """Networks, and noise to train them on."""
    method = make_method(setting.method)
    method = replace(method, **dict(setting.changes))
    budget = Budget(
        epochs=1000, batch_size=size.batch, learning_rate=0.01,
        graphs="auto" if setting.graphs else "never", **dict(setting.budget),
    )  # fmt: skip
    task = Task(n_classes=size.classes, input_shape=size.shape)
    recipe = Recipe(method=method, backbone=size.backbone, dropout=Dropout(), budget=budget)
    networks = build_networks(recipe, task, torch.zeros(2, *size.shape), None, device)
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        if len(size.shape) == 3:
            x = torch.randint(0, 256, (count, *size.shape), generator=generator, dtype=torch.uint8)
        else:
            x = torch.randn(count, *size.shape, generator=generator)
        y = torch.arange(count) % size.classes
        return Split(x, y.numpy(), torch.arange(count).numpy())

    augment = Augment(pad=size.shape[-1] // 8, flip=True) if len(size.shape) == 3 else Augment()
    feeds = DataFeeds(
        split(size.train), split(size.meta), torch.zeros(0, *size.shape),
        normalise=networks.normalise, augment=augment, batch_size=size.batch, seed=0,
        device=device, workers=0,
    )  # fmt: skip
    sizes = Sizes(
        train=size.train, meta=size.meta, unlabelled=0, n_classes=size.classes,
        weights=len(flat_state(networks.classifier)),
    )  # fmt: skip
    memory = method.build_memory(sizes)
    networks.memory = None if memory is None else memory.to(device)
    return method, training.new_state(method, budget, networks, feeds, device), task, budget


def wait(device: torch.device) -> None:
    """Until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def batches(state: training.TrainingState) -> Iterator[Batch]:
    """One after the other, over as many epochs as it takes."""
    while True:
        yield from state.feeds.epoch(state.epoch)
        state.epoch, state.step_in_epoch = state.epoch + 1, 0


@dataclass(frozen=True, slots=True)
class Timed:
    """Milliseconds of a step, by repetition, and memory."""

    milliseconds: list[float]
    peak_gib: float | None
    replayed: int

    @property
    def median(self) -> float:
        """Over repetitions."""
        return statistics.median(self.milliseconds)

    def over(self, other: Timed) -> float:
        """How many times as long, by medians."""
        return self.median / other.median

    def over_in_turns(self, other: Timed) -> float:
        """The same of what was timed in turns: the median over turns."""
        turns = zip(self.milliseconds, other.milliseconds, strict=True)
        return statistics.median(ours / theirs for ours, theirs in turns)


@contextmanager
def running(setting: Setting, size: Size, device: torch.device) -> Iterator[Running]:
    """A run that goes on as far as it is asked to."""
    method, state, task, budget = make(setting, size, device)
    seed_generators(0, device)
    classifier = state.networks.classifier
    with (
        in_parts(classifier, budget.micro_batch),
        recomputed(classifier, wanted=budget.recompute),
        replaying(device, wanted=can_replay(budget, device, known_net=True)) as replayed,
    ):
        step: training.Step = replayed or training.train_step
        following = batches(state)

        def ask(count: int) -> None:
            for _ in range(count):
                step(state, method, task, budget, next(following))

        def go(count: int) -> float:
            began = time.perf_counter()
            ask(count)
            wait(device)
            return 1000 * (time.perf_counter() - began) / count

        yield Running(ask, go, state, replayed)


@dataclass(frozen=True, slots=True)
class Running:
    """See `running`.

    Attributes:
        ask: for so many steps; a GPU may still be at work on them.
        go: takes so many steps; milliseconds of one.
        state: of the run.
        replayed: what replays its steps, if they are.
    """

    ask: Callable[[int], None]
    go: Callable[[int], float]
    state: training.TrainingState
    replayed: ReplayedSteps | None

    def check(self) -> None:
        """That it was training."""
        loss = self.state.totals.figures()["loss"]
        assert loss == loss, "the loss is not a number"


def timed(
    setting: Setting, size: Size, device: torch.device, *, steps: int, warm: int, repeats: int
) -> Timed:
    """Mean time of a step over some, several times.

    Args:
        setting: of the run.
        size: of the problem.
        device: to run on.
        steps: of one repetition, a multiple of the interval.
        warm: steps before the first; all kinds must have come up often enough to be recorded.
        repeats: repetitions.
    """
    with running(setting, size, device) as run:
        run.go(warm)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        found = [run.go(steps) for _ in range(repeats)]
        run.check()
        peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
        return Timed(found, peak, 0 if run.replayed is None else run.replayed.replayed)


def timed_in_turns(
    settings: Sequence[Setting], size: Size, *, steps: int, warm: int, repeats: int
) -> dict[str, Timed]:
    """The same of several on the CPU, one repetition of each after the other.

    What else the machine does, and how fast it is just then, meets all of them.
    """
    with ExitStack() as stack:
        cpu = torch.device("cpu")
        runs = {one.name: stack.enter_context(running(one, size, cpu)) for one in settings}
        for run in runs.values():
            run.go(warm)
        found: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(repeats):
            for name, run in runs.items():
                found[name].append(run.go(steps))
        for run in runs.values():
            run.check()
    return {name: Timed(times, None, 0) for name, times in found.items()}

"""Whole training steps, recorded once and replayed by the device.

A small net leaves a GPU idle while the host prepares one kernel after the other. A step whose
operations do not change is therefore recorded as a CUDA graph: its batches, its draws from the
meta set and its learning rate lie in fixed places that are filled before each replay. A method says
which of its steps are alike (`Method.kind`); the first few of each kind are taken as usual, by the
same kernels, so that replaying changes no bit of a run.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from revar.methods.base import Method
from revar.parallel import world
from revar.recipe import Budget
from revar.spares import Positions, Spares, watched
from revar.streams import stream_for
from revar.training import TrainingState, clock_of, outer_due, take_step
from revar.types import Batch, Feeds, Task

FIRST = 3
"""Steps of a kind that are taken as usual: kernels are chosen and memory is found in them."""


class Recorder(Protocol):
    """Turns operations on the device into something that repeats them."""

    def record(self, operations: Callable[[], None], positions: Positions) -> Callable[[], None]:
        """Remember what the operations would do; nothing is done before the first replay.

        Args:
            operations: of a step.
            positions: that it goes back to in its random numbers.
        """


class Graphs:
    """CUDA graphs; they share the memory of what lies between their inputs and outputs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, operations: Callable[[], None], positions: Positions) -> Callable[[], None]:
        """See `Recorder`."""
        graph, spares = torch.cuda.CUDAGraph(), Spares(self._device, positions)
        for generator in spares.generators:
            graph.register_generator_state(generator)
        # Of this thread only: another may be pinning the memory of the next batch.
        captured = torch.cuda.graph(
            graph, self._pool, torch.cuda.current_stream(), capture_error_mode="thread_local"
        )
        before = spares.default.clone_state()
        try:
            with spares.recording(), captured:
                operations()
        except RuntimeError:
            # A recording that failed never ends for the generator, which then refuses to draw
            # (PyTorch issue 171263): it goes on from a state that was not there.
            spares.default.graphsafe_set_state(before)
            raise

        def replay() -> None:
            spares.begin()
            graph.replay()
            spares.end()

        return replay


@dataclass(frozen=True, slots=True)
class _Draw:
    """A batch that a method takes from the feeds: from which, how many, and where it lies."""

    source: str
    count: int
    place: Any = None


class _Watched(Feeds):
    """Feeds that remember what was taken from them."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self.draws: list[_Draw] = []

    @property
    def train_size(self) -> int:
        """See `Feeds`."""
        return self._feeds.train_size

    @property
    def train_labels(self) -> Tensor:
        """See `Feeds`."""
        return self._feeds.train_labels

    @property
    def meta_size(self) -> int:
        """See `Feeds`."""
        return self._feeds.meta_size

    @property
    def unlabelled_size(self) -> int:
        """See `Feeds`."""
        return self._feeds.unlabelled_size

    def train_at(self, index: Tensor) -> Batch:
        """See `Feeds`."""
        return self._feeds.train_at(index)

    def meta_at(self, index: Tensor) -> Batch:
        """See `Feeds`."""
        return self._feeds.meta_at(index)

    def unlabelled_at(self, index: Tensor) -> Tensor:
        """See `Feeds`."""
        return self._feeds.unlabelled_at(index)

    def meta(self, count: int) -> Batch:
        """See `Feeds`."""
        self.draws.append(_Draw("meta", count))
        return self._feeds.meta(count)

    def unlabelled(self, count: int) -> Tensor:
        """See `Feeds`."""
        self.draws.append(_Draw("unlabelled", count))
        return self._feeds.unlabelled(count)


class _Fixed(_Watched):
    """Feeds whose batches lie in fixed places, taken in a known order."""

    def __init__(self, feeds: Feeds, draws: list[_Draw]) -> None:
        super().__init__(feeds)
        self.draws = [replace(d, place=_place(getattr(feeds, d.source)(d.count))) for d in draws]
        self._next = 0

    def refill(self) -> None:
        """Put the next batches there."""
        for draw in self.draws:
            _fill(draw.place, getattr(self._feeds, draw.source)(draw.count))

    def rewind(self) -> None:
        """Hand them out from the first again."""
        self._next = 0

    def _take(self, source: str, count: int) -> Any:
        draw = self.draws[self._next]
        assert (draw.source, draw.count) == (source, count)
        self._next += 1
        return draw.place

    def meta(self, count: int) -> Batch:
        """See `Feeds`."""
        batch: Batch = self._take("meta", count)
        return batch

    def unlabelled(self, count: int) -> Tensor:
        """See `Feeds`."""
        x: Tensor = self._take("unlabelled", count)
        return x


def _tensors(batch: Batch | Tensor) -> list[Tensor]:
    if isinstance(batch, Tensor):
        return [batch]
    parts = (batch.x, batch.y, batch.index, batch.weight)
    return [part for part in parts if part is not None]


def _place(batch: Any) -> Any:
    """A copy of a batch, to be filled again."""
    if isinstance(batch, Tensor):
        return batch.clone()
    weight = None if batch.weight is None else batch.weight.clone()
    return Batch(batch.x.clone(), batch.y.clone(), batch.index.clone(), weight)


def _fill(place: Batch | Tensor, batch: Batch | Tensor) -> None:
    for there, new in zip(_tensors(place), _tensors(batch), strict=True):
        there.copy_(new)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a step of a kind took from the feeds, and where it goes back to."""

    draws: list[_Draw]
    positions: Positions


@dataclass(slots=True)
class _Recorded:
    batch: Batch
    feeds: _Fixed
    replay: Callable[[], None]


class ReplayedSteps:
    """Takes steps (`revar.training.Step`), and replays those it has seen the like of.

    Args:
        recorder: of a step.
        device: of the run.
    """

    def __init__(self, recorder: Recorder, device: torch.device) -> None:
        self._recorder: Recorder | None = recorder
        self._rate = torch.zeros((), dtype=torch.float64, device=device)
        self._seen: Counter[Hashable] = Counter()
        self._device = device
        self._watched: dict[Hashable, _Seen] = {}
        self._recorded: dict[Hashable, _Recorded] = {}
        self.replayed = 0

    def __call__(
        self, state: TrainingState, method: Method, task: Task, budget: Budget, batch: Batch
    ) -> None:
        """Take one step."""
        clock = clock_of(state, budget)
        recordable = self._recorder is not None and _recordable(state, method)
        kind = method.kind(clock) if recordable else None
        if kind is None:
            take_step(state, method, task, budget, batch, state.feeds, clock)
            state.step_in_epoch += 1
            return
        self._rate.fill_(clock.lr)
        key = (kind, outer_due(state, method, clock), *_layout(batch))
        self._seen[key] += 1

        def operations(batch: Batch, feeds: Feeds) -> None:
            rate = self._rate.float()
            take_step(state, method, task, budget, batch, feeds, replace(clock, lr=rate))

        recorded = self._recorded.get(key)
        if recorded is not None:
            _fill(recorded.batch, batch)
            recorded.feeds.refill()
            recorded.replay()
            self.replayed += 1
        elif self._seen[key] <= FIRST:
            feeds = _Watched(state.feeds)
            with watched(self._device) as positions:
                operations(batch, feeds)
            self._watched[key] = _Seen(feeds.draws, positions)
        else:
            seen = self._watched[key]
            fixed = _Fixed(state.feeds, seen.draws)
            place: Batch = _place(batch)
            recorded = self._record(place, fixed, operations, seen.positions)
            fixed.rewind()
            if recorded is None:
                operations(place, fixed)
            else:
                self._recorded[key] = recorded
                recorded.replay()
                self.replayed += 1
        state.step_in_epoch += 1

    def _record(
        self,
        batch: Batch,
        feeds: _Fixed,
        operations: Callable[[Batch, Feeds], None],
        positions: Positions,
    ) -> _Recorded | None:
        def once() -> None:
            feeds.rewind()
            operations(batch, feeds)

        assert self._recorder is not None
        try:
            return _Recorded(batch, feeds, self._recorder.record(once, positions))
        except RuntimeError as error:
            # A network that looks at its numbers, say: such a step needs the host. What was
            # recorded before draws from a generator that the others no longer share.
            self._recorder = None
            self._recorded.clear()
            reason = str(error).splitlines()[0]
            warnings.warn(f"steps are not replayed: {reason}", RuntimeWarning, stacklevel=2)
            return None


def _recordable(state: TrainingState, method: Method) -> bool:
    """Whether a step can be recorded, and rounds as it would otherwise.

    Torch's kernels that read a learning rate on the device read one in single precision.
    """
    dtype = state.optimiser.param_groups[0]["params"][0].dtype
    return dtype == torch.float32 and getattr(method, "engine", "") != "double_backward"


def _layout(batch: Batch) -> tuple[Hashable, ...]:
    return (tuple(batch.x.shape), batch.x.dtype, batch.weight is None)


def can_replay(budget: Budget, device: torch.device, *, known_net: bool) -> bool:
    """Whether the steps of a run may be recorded.

    Args:
        budget: of the run.
        device: of the run.
        known_net: the classifier is none of the user's own, which may decide on the host.
    """
    if budget.graphs == "never" or device.type != "cuda":
        return False
    if world().size > 1:
        return False
    return known_net or budget.graphs == "always"


@contextmanager
def replaying(device: torch.device, *, wanted: bool) -> Iterator[ReplayedSteps | None]:
    """A block in which steps are replayed, on a stream of their own: others cannot be recorded."""
    if not wanted:
        yield None
        return
    stream = stream_for("steps", device)
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        with torch.cuda.stream(stream):
            yield ReplayedSteps(Graphs(device), device)
    finally:
        torch.cuda.current_stream(device).wait_stream(stream)

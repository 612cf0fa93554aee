"""States of a GPU's generator that a recorded step goes back to.

A step that computes something twice with the same dropout masks remembers the state of the
generator and restores it later. A CUDA graph can do neither, but it can draw from several
generators, each of which begins a replay wherever it was put. So a step of the kind is watched
first (`watched`), and then recorded with as many `Spares` as it went back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Positions:
    """Where a step remembers the state of a GPU's generator, and how often it goes back to one.

    A position is how far the generator had come since the step began, so that it is the same in
    every step of a kind.

    Args:
        generator: of a GPU; ``None`` where nothing is recorded.
    """

    def __init__(self, generator: torch.Generator | None) -> None:
        self._generator = generator
        self._start = 0 if generator is None else generator.get_offset()
        self.remembered: list[int] = []
        self.returns = 0

    def remember(self) -> None:
        """A state is remembered."""
        if self._generator is not None:
            self.remembered.append(self._generator.get_offset() - self._start)

    def come_back(self) -> None:
        """The generator goes back to one."""
        self.returns += 1


_NOBODY = Positions(None)
_watching = _NOBODY


def watching() -> Positions:
    """What is told of the step that is taken now."""
    return _watching


@contextmanager
def watched(device: torch.device) -> Iterator[Positions]:
    """A step that is taken as usual, before one of its kind is recorded: what it remembers."""
    global _watching
    cuda = torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else None
    _watching = found = Positions(cuda)
    try:
        yield found
    finally:
        _watching = _NOBODY


class Spares:
    """Further states of a GPU's generator, for a graph that goes back to where it was.

    While a graph is recorded the state of a generator can neither be read nor set, only exchanged
    for another that the graph knows. So a step is watched before it is recorded, and each of these
    begins every replay at one of the positions that it went back to: restoring a state is to take
    the next.

    Args:
        device: a GPU.
        positions: of a step of the same kind.
    """

    def __init__(self, device: torch.device, positions: Positions) -> None:
        self.default = torch.cuda.default_generators[device.index or 0]
        self.generators = [torch.Generator(device) for _ in range(positions.returns)]
        self._remembered = iter(positions.remembered)
        self._begins: list[int] = []
        self._current: torch.Generator | None = None

    def remember(self) -> int:
        """The position of a state that the step remembers now."""
        position = next(self._remembered, None)
        if position is None:
            raise RuntimeError("a step remembers its generators more often than when watched")
        return position

    def take(self, position: int) -> None:
        """Draw from the next one, which begins there, from now on."""
        used = len(self._begins)
        if used == len(self.generators):
            raise RuntimeError("a step restores its generators more often than when watched")
        self._begins.append(position)
        self._draw_from(self.generators[used])

    def _draw_from(self, generator: torch.Generator | None) -> None:
        state = self._own if generator is None else generator.graphsafe_get_state()
        self.default.graphsafe_set_state(state)
        self._current = generator

    @contextmanager
    def aside(self, position: int) -> Iterator[None]:
        """A block that draws from the next one; what was drawn from before is then taken up."""
        before = self._current
        self.take(position)
        try:
            yield
        finally:
            self._draw_from(before)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A block that is recorded; the default generator then has its own state again."""
        global _recording
        self._own = self.default.graphsafe_get_state()
        _recording = self
        try:
            yield
        finally:
            _recording = None
            self.default.graphsafe_set_state(self._own)

    def begin(self) -> None:
        """Before a replay: all stand where the step goes back to."""
        state, start = self.default.get_state(), self.default.get_offset()
        for generator, position in zip(self.generators, self._begins, strict=False):
            generator.set_state(state)
            generator.set_offset(start + position)

    def end(self) -> None:
        """After a replay: the default one goes on where the recorded step had drawn last."""
        if self._current is not None:
            self.default.set_state(self._current.get_state())


_recording: Spares | None = None


def recording() -> Spares | None:
    """Of the step that is recorded now."""
    return _recording

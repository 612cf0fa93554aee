"""Seeds that name their purpose, and random states that can be replayed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed for one purpose, independent of every other path under ``seed``.

    >>> derive(0, "order", 3) == derive(0, "order", 3) != derive(0, "order", 4)
    True
    """
    text = "/".join(map(str, (seed, *path))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def seed_from(random_state: int | np.random.RandomState | None) -> int:
    """A seed from what scikit-learn takes for one; ``None`` draws it."""
    if random_state is None:
        return int(torch.seed() % 2**31)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    return int(random_state)


_BESIDE: list[torch.Generator] = []
"""Generators that are captured and restored with the default ones."""


@contextmanager
def beside(generators: Sequence[torch.Generator]) -> Iterator[None]:
    """Let further generators follow the default ones: runs side by side draw from their own."""
    _BESIDE.extend(generators)
    try:
        yield
    finally:
        del _BESIDE[len(_BESIDE) - len(generators) :]


class Spares:
    """Further states of a GPU's generator, for a graph that goes back to where it began.

    While a graph is recorded the state of a generator cannot be set, only exchanged for another
    that the graph knows. Each of these begins every replay where the default one stands, so that
    restoring a state is to take the next. What is recorded must therefore remember a state before
    it has drawn anything, or go back to it first.

    Args:
        device: a GPU.
        count: how often a state can be restored.
    """

    def __init__(self, device: torch.device, count: int) -> None:
        self.default = torch.cuda.default_generators[device.index or 0]
        self.generators = [torch.Generator(device) for _ in range(count)]
        self.used = 0
        self._current: torch.Generator | None = None

    def take(self) -> None:
        """Draw from the next one, from now on."""
        if self.used == len(self.generators):
            raise RuntimeError("a step restores the generators more often than was prepared for")
        self._draw_from(self.generators[self.used])
        self.used += 1

    def _draw_from(self, generator: torch.Generator | None) -> None:
        state = self._own if generator is None else generator.graphsafe_get_state()
        self.default.graphsafe_set_state(state)
        self._current = generator

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A block that draws from the next one; what was drawn from before is then taken up."""
        before = self._current
        self.take()
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
        """Before a replay: all stand where the default one does."""
        state = self.default.get_state()
        for generator in self.generators[: self.used]:
            generator.set_state(state)

    def end(self) -> None:
        """After a replay: the default one goes on where the recorded step had drawn last."""
        if self._current is not None:
            self.default.set_state(self._current.get_state())


_recording: Spares | None = None


@dataclass(frozen=True, slots=True)
class RandomState:
    """The state of torch's default generators, the CPU's and a GPU's, and of those `beside`."""

    cpu: Tensor
    cuda: Tensor | Spares | None
    device: torch.device
    others: tuple[Tensor, ...] = ()

    @classmethod
    def capture(cls, device: torch.device) -> RandomState:
        """The state now."""
        if _recording is not None:
            return cls(torch.get_rng_state(), _recording, device)
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        others = tuple(generator.get_state() for generator in _BESIDE)
        return cls(torch.get_rng_state(), cuda, device, others)

    def restore(self) -> None:
        """Make this the state of the default generators again."""
        torch.set_rng_state(self.cpu)
        if isinstance(self.cuda, Spares):
            self.cuda.take()
        elif self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, self.device)
        for generator, state in zip(_BESIDE, self.others, strict=True):
            generator.set_state(state)

    def equals(self, other: RandomState) -> bool:
        """Whether both would draw the same numbers next."""
        pairs = zip((self.cpu, *self.others), (other.cpu, *other.others), strict=True)
        if not all(torch.equal(mine, theirs) for mine, theirs in pairs):
            return False
        if isinstance(self.cuda, Tensor) and isinstance(other.cuda, Tensor):
            return torch.equal(self.cuda, other.cuda)
        return self.cuda is other.cuda


@contextmanager
def repeatable(wanted: bool) -> Iterator[None]:
    """Run a block with kernels that repeat bit by bit, if wanted; settings come back."""
    if not wanted:
        yield
        return
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
    )
    # Without this cuBLAS refuses to be deterministic; it is read when its first handle is made.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before[1:]


@contextmanager
def preserved(device: torch.device) -> Iterator[RandomState]:
    """Run a block that may draw numbers; the caller's generators come back untouched."""
    before = RandomState.capture(device)
    try:
        yield before
    finally:
        before.restore()


@contextmanager
def back_to(start: RandomState) -> Iterator[None]:
    """Run a block from an earlier state; the generators then go on where they were."""
    if isinstance(start.cuda, Spares):
        with start.cuda.aside():
            yield
        return
    with preserved(start.device):
        start.restore()
        yield


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the default generators of the CPU and of one device, and of no other GPU."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Run a block from a fixed seed; the caller's generators come back untouched."""
    with preserved(device):
        seed_generators(seed, device)
        yield

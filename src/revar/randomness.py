"""Seeds that name their purpose, and random states that can be replayed."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from revar.errors import InputError
from revar.spares import Spares, recording, watching
from revar.turns import TURNS


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed for one purpose, independent of every other path under ``seed``.

    >>> derive(0, "order", 3) == derive(0, "order", 3) != derive(0, "order", 4)
    True
    """
    text = "/".join(map(str, (seed, *path))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


RandomStateLike = int | np.integer | np.random.RandomState | np.random.Generator | None


def seed_from(random_state: RandomStateLike) -> int:
    """A seed from what scikit-learn takes for one; ``None`` draws it."""
    if random_state is None:
        # Not torch's, which would seed its default generators with it.
        return secrets.randbelow(2**31)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        msg = f"random_state is {random_state!r}: a whole number, a NumPy generator or None needed"
        raise InputError(msg)
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


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A state of a GPU's generator in a step that is recorded."""

    spares: Spares
    position: int


@dataclass(frozen=True, slots=True)
class RandomState:
    """The state of torch's default generators, the CPU's and a GPU's, and of those `beside`."""

    cpu: Tensor
    cuda: Tensor | _Recorded | None
    device: torch.device
    others: tuple[Tensor, ...] = ()

    @classmethod
    def capture(cls, device: torch.device) -> RandomState:
        """The state now."""
        spares = recording()
        if spares is not None:
            recorded = _Recorded(spares, spares.remember())
            return cls(torch.get_rng_state(), recorded, device)
        watching().remember()
        return cls._read(device)

    @classmethod
    def _read(cls, device: torch.device) -> RandomState:
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        others = tuple(generator.get_state() for generator in _BESIDE)
        return cls(torch.get_rng_state(), cuda, device, others)

    def restore(self) -> None:
        """Make this the state of the default generators again."""
        if isinstance(self.cuda, _Recorded):
            torch.set_rng_state(self.cpu)
            self.cuda.spares.take(self.cuda.position)
            return
        watching().come_back()
        self._set()

    def _set(self) -> None:
        torch.set_rng_state(self.cpu)
        if isinstance(self.cuda, Tensor):
            torch.cuda.set_rng_state(self.cuda, self.device)
        for generator, state in zip(_BESIDE, self.others, strict=True):
            generator.set_state(state)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Run a block from this state; the generators then go on where they were."""
        if isinstance(self.cuda, _Recorded):
            with self.cuda.spares.aside(self.cuda.position):
                yield
            return
        now = RandomState._read(self.device)
        self.restore()
        try:
            yield
        finally:
            now._set()

    def equals(self, other: RandomState) -> bool:
        """Whether both would draw the same numbers next."""
        pairs = zip((self.cpu, *self.others), (other.cpu, *other.others), strict=True)
        if not all(torch.equal(mine, theirs) for mine, theirs in pairs):
            return False
        if isinstance(self.cuda, Tensor) and isinstance(other.cuda, Tensor):
            return torch.equal(self.cuda, other.cuda)
        return self.cuda == other.cuda


Kernels = tuple[bool, bool, bool]


def _kernels() -> Kernels:
    cudnn = torch.backends.cudnn
    return torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark


def _use(kernels: Kernels) -> None:
    torch.use_deterministic_algorithms(kernels[0])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = kernels[1:]


@contextmanager
def repeatable(wanted: bool) -> Iterator[None]:
    """Run a block with kernels that repeat bit by bit, if wanted; settings come back."""
    if not wanted:
        yield
        return
    before = _kernels()
    # Without this cuBLAS refuses to be deterministic; it is read when its first handle is made.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    _use((True, True, False))
    try:
        yield
    finally:
        _use(before)


@dataclass(frozen=True, slots=True)
class _Borrowed:
    """What a block has changed for as long as it runs."""

    generators: RandomState
    kernels: Kernels


_BORROWED: list[_Borrowed] = []
"""By the blocks of `preserved` that run now, the outermost first; all of the thread whose turn it
is."""


@contextmanager
def preserved(device: torch.device) -> Iterator[RandomState]:
    """Run a block that may draw numbers; the caller's generators come back untouched.

    Other threads that want to run one wait, see `give_way`.
    """
    with TURNS.mine():
        before = RandomState.capture(device)
        _BORROWED.append(_Borrowed(before, _kernels()))
        try:
            yield before
        finally:
            _BORROWED.pop()
            before.restore()


def give_way(device: torch.device) -> None:
    """Let threads that wait for torch's generators have them, and go on as if none had.

    To be called between steps, when nothing but generators and settings is held.
    """
    if not TURNS.wanted or not _BORROWED:
        return
    blocks, generators, kernels = _BORROWED.copy(), RandomState._read(device), _kernels()
    outer = blocks[0]
    outer.generators._set()
    _use(outer.kernels)
    _BORROWED.clear()
    try:
        with TURNS.lent():
            pass
    finally:
        _BORROWED.extend(blocks)
        generators._set()
        _use(kernels)


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

"""Several processes that train one model: who this one is, and what it can ask the others.

A process is alone unless it was started as one of several, by ``torchrun`` or by ``revar train
--processes``, and has `joined` them. Alone, everything here answers at once and changes nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from revar.devices import choose
from revar.errors import InputError

TIMEOUT = 1800.0
"""Seconds to wait for the others: longer than the slowest checkpoint, shorter than a night."""
RENDEZVOUS = "REVAR_RENDEZVOUS"
"""Where processes of one host meet that ``revar train --processes`` started."""


class LostProcess(RuntimeError):  # noqa: N818  (it is another process that failed)
    """Another process died or hangs, so this one cannot go on."""


@dataclass(frozen=True)
class World:
    """All processes of a job.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
        local_rank: of this process among those of its host, which is the GPU it takes.
        local_size: how many its host has.
        traffic: bytes handed to collectives by this process, and calls, by their kind.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    traffic: Counter[str] = field(default_factory=Counter, compare=False)

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    def span(self, n: int, rank: int | None = None) -> range:
        """Which of n rows are a process's own; earlier processes have the one that is left over.

        >>> [list(World(rank, 3).span(5)) for rank in range(3)]
        [[0, 1], [2, 3], [4]]
        """
        number = self.rank if rank is None else rank
        share, left = divmod(n, self.size)
        start = number * share + min(number, left)
        return range(start, start + share + (number < left))

    def sum_(self, x: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        self._count("all_reduce", x)
        with _watched():
            dist.all_reduce(x)
        return x

    def gather(self, x: Tensor) -> Tensor:
        """What every process has, [size, ...]; shapes must be equal."""
        self._count("all_gather", x)
        # As bytes: not every backend knows every type.
        mine = x.detach().contiguous().flatten().view(torch.uint8)
        everyone = mine.new_empty(self.size * len(mine))
        with _watched():
            dist.all_gather_into_tensor(everyone, mine)
        return everyone.view(x.dtype).view(self.size, *x.shape)

    def average(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """The means over all processes, in one message for each type."""
        if self.size == 1:
            return tensors
        means: dict[int, Tensor] = {}
        for dtype in sorted({x.dtype for x in tensors}, key=str):
            alike = {number: x for number, x in enumerate(tensors) if x.dtype == dtype}
            flat = self.sum_(torch.cat([x.detach().flatten() for x in alike.values()]))
            parts = flat.div_(self.size).split([x.numel() for x in alike.values()])
            pairs = zip(alike.items(), parts, strict=True)
            means.update({number: part.view(x.shape) for (number, x), part in pairs})
        return [means[number] for number in range(len(tensors))]

    def any(self, mine: bool) -> bool:
        """Whether any process says yes; on the host, so that no device has to wait."""
        return self.any_of(mine)[0]

    def any_of(self, *mine: bool) -> tuple[bool, ...]:
        """The same for several questions, in one message."""
        if self.size == 1:
            return mine
        return tuple(map(bool, self.sum_(torch.tensor(mine, dtype=torch.float32))))

    def once(self, work: Callable[[], Any]) -> Any:
        """What the first process makes of this; it alone does it, and it must fit in JSON.

        Raises:
            InputError: it failed there; all processes say so.
        """
        if self.size == 1:
            return work()
        said: dict[str, Any] = {}
        if self.first:
            try:
                said = {"value": work()}
            except InputError as error:
                said = {"error": str(error)}
        said = json.loads(self._first_bytes(json.dumps(said).encode()))
        if "error" in said:
            raise InputError(said["error"])
        return said["value"]

    def same(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Named tensors of the first process, on the host."""
        mine = save_tensors({k: v.contiguous() for k, v in tensors.items()}) if self.first else b""
        return load_tensors(self._first_bytes(mine))

    def send(self, x: Tensor, to: int) -> None:
        """From this host to one other process, which waits for it."""
        self._count("send", x)
        with _watched():
            dist.send(x.contiguous().view(-1).view(torch.uint8), to)

    def receive_(self, x: Tensor, source: int) -> Tensor:
        """What one other process sends, in the place of x, contiguous and on this host."""
        with _watched():
            dist.recv(x.view(-1).view(torch.uint8), source)
        return x

    def _first_bytes(self, data: bytes) -> bytes:
        """What the first process has."""
        length = torch.tensor([len(data)])
        with _watched():
            dist.broadcast(length, 0)
            content = torch.empty(int(length), dtype=torch.uint8)
            if self.first:
                content.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            dist.broadcast(content, 0)
        return content.numpy().tobytes()

    def _count(self, kind: str, x: Tensor) -> None:
        self.traffic[kind] += x.numel() * x.element_size()
        self.traffic[f"{kind} calls"] += 1


_WORLD = World()


def world() -> World:
    """The processes this one belongs to; itself alone unless it `joined` others."""
    return _WORLD


@contextmanager
def _watched() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        # Without the line of gloo's source.
        cause = re.sub(r"^\[[^]]*\] ", "", str(error).partition("\n")[0])
        msg = f"another process of this job died or hangs ({cause}); the last checkpoint is kept"
        raise LostProcess(msg) from error


def started() -> World:
    """Who this process is, as whoever started it says."""
    number = os.environ.get
    meeting = RENDEZVOUS in os.environ or "MASTER_ADDR" in os.environ
    if not meeting or "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return World()
    rank, size = int(number("RANK", 0)), int(number("WORLD_SIZE", 1))
    return World(
        rank=rank,
        size=size,
        local_rank=int(number("LOCAL_RANK", rank)),
        local_size=int(number("LOCAL_WORLD_SIZE", size)),
    )


def place(name: str) -> torch.device:
    """Where this process computes: ``auto`` and ``cuda`` are a GPU of its own, if it has others.

    Raises:
        InputError: no such device here, or fewer GPUs than processes.
    """
    device, here = choose(name), started()
    if here.size == 1 or device.type != "cuda" or ":" in name:
        return device
    if here.local_size > torch.cuda.device_count():
        msg = f"{here.local_size} processes for {torch.cuda.device_count()} GPUs: use one for each"
        raise InputError(msg)
    device = torch.device("cuda", here.local_rank)
    torch.cuda.set_device(device)
    return device


@contextmanager
def joined(
    device: torch.device, *, one_gpu: bool = False, timeout: float = TIMEOUT
) -> Iterator[World]:
    """Meet the other processes, if there are any, and be one of them for a while.

    Args:
        device: that will be computed on: tensors on a GPU travel by NCCL, all others by gloo.
        one_gpu: all processes of a host compute on the same GPU, which NCCL refuses: gloo then.
        timeout: seconds after which a silent process counts as lost.

    Raises:
        LostProcess: they did not all come.
    """
    global _WORLD
    found = started()
    if found.size == 1 or _WORLD.size > 1:
        yield _WORLD
        return
    with _watched():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" and not one_gpu else "gloo",
            init_method=os.environ.get(RENDEZVOUS, "env://"),
            rank=found.rank,
            world_size=found.size,
            timeout=timedelta(seconds=timeout),
        )
    _WORLD = found
    lost = False
    try:
        yield found
    except LostProcess:
        lost = True
        raise
    finally:
        _WORLD = World()
        # To take leave of one that is gone might take for ever.
        if not lost:
            dist.destroy_process_group()

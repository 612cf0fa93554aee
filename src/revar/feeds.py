"""Batches: from data that lives on the device, or from a stream."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from revar.data.augment import Augment
from revar.data.stored import Lazy, Stored
from revar.errors import InputError
from revar.parallel import world
from revar.randomness import derive
from revar.sharded import Share
from revar.types import Batch


class Cycle:
    """Positions 0..n-1 in random order, again and again, any number at a time.

    Its state is two numbers, so a resumed run goes on where it stopped. The order of a round is
    copied to the device once: a copy for every batch would make the host wait for it.
    """

    def __init__(self, n: int, seed: int, device: torch.device | None = None) -> None:
        self.n, self.seed, self._device = n, seed, device
        self.round = 0
        self.position = 0
        self._order = self._shuffled(0)

    def _shuffled(self, turn: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive(self.seed, turn))
        return _sent(torch.randperm(self.n, generator=generator), self._device)

    def take(self, count: int) -> Tensor:
        """The next positions, all different if there are as many.

        A round that has fewer left than asked for is not finished but begun anew.
        """
        if count > self.n:
            sizes = [self.n] * (count // self.n) + [count % self.n]
            return torch.cat([self.take(size) for size in sizes if size])
        if self.position + count > self.n:
            self.round += 1
            self.position = 0
            self._order = self._shuffled(self.round)
        taken = self._order[self.position : self.position + count]
        self.position += count
        return taken

    def state(self) -> dict[str, int]:
        """Where it stands."""
        return {"round": self.round, "position": self.position}

    def load(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self.round, self.position = state["round"], state["position"]
        self._order = self._shuffled(self.round)


class Labelled(Protocol):
    """Stored examples with their labels."""

    @property
    def x(self) -> Stored:
        """[n, ...]"""

    @property
    def y(self) -> NDArray[Any]:
        """[n] class numbers, or numbers to predict."""

    @property
    def weights(self) -> NDArray[np.float32] | None:
        """[n] or all alike."""


class DataFeeds:
    """Training, meta and unlabelled batches, normalised, training ones augmented.

    An epoch visits every training example once, in batches whose sizes differ by at most one,
    so that no last batch is too small for batch norm. Data in memory lives on the device; data
    that is streamed is decoded by worker processes, ahead of time. Order, batches and
    augmentation are the same for both.

    Where several processes train together, each reads its own rows of every batch: inputs are
    those rows, labels, positions and weights are the whole batch's.
    """

    def __init__(
        self,
        train: Labelled,
        meta: Labelled,
        unlabelled: Stored,
        *,
        normalise: nn.Module,
        augment: Augment,
        batch_size: int,
        seed: int,
        device: torch.device,
        workers: int | None = None,
    ) -> None:
        self._x, self._meta_x = _on_device(train.x, device), _on_device(meta.x, device)
        self._y, self._meta_y = (torch.from_numpy(part.y).to(device) for part in (train, meta))
        self._weight, self._meta_weight = (
            None if part.weights is None else torch.from_numpy(part.weights).to(device)
            for part in (train, meta)
        )
        self._unlabelled = _on_device(unlabelled, device)
        self._normalise, self._augment = normalise, augment
        self._seed, self._device = seed, device
        cores = max(1, (os.cpu_count() or 1) // world().local_size)
        self._workers = min(8, cores) if workers is None else workers
        self.train_size, self.train_labels = len(self._x), self._y
        self.meta_size, self.unlabelled_size = len(self._meta_x), len(self._unlabelled)
        self.steps_per_epoch = -(-len(self._x) // batch_size)
        if batch_size > 1:
            # No batch of one, of which batch norm has no moments.
            self.steps_per_epoch = min(self.steps_per_epoch, max(1, len(self._x) // 2))
        self._cycles = {
            name: Cycle(len(x), derive(seed, "cycle", name), _place_of(x, device))
            for name, x in (("meta", self._meta_x), ("unlabelled", self._unlabelled))
            if len(x)
        }

    def _prepare(self, x: Tensor, *, augment: bool = False, share: Share | None = None) -> Tensor:
        x = x.to(self._device, non_blocking=True)
        if augment:
            x = self._augment(x, share)
        prepared: Tensor = self._normalise(x)
        if prepared.ndim == 4 and self._device.type == "cuda":
            prepared = prepared.contiguous(memory_format=torch.channels_last)
        return prepared

    def order(self, number: int) -> Tensor:
        """[train_size] positions in the order in which an epoch visits them."""
        generator = torch.Generator().manual_seed(derive(self._seed, "order", number))
        return torch.randperm(len(self._x), generator=generator)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from one on; the same for the same seed and number."""
        order = self.order(number)
        # All of it at once: a copy for every batch would make the host wait for the device.
        batches = _sent(order, self._device).tensor_split(self.steps_per_epoch)[start:]
        read = batches
        if not isinstance(self._x, Tensor):
            read = order.tensor_split(self.steps_per_epoch)[start:]
        for index, x in zip(batches, self._read([_own(rows) for rows in read]), strict=True):
            weight = None if self._weight is None else _taken(self._weight, index)
            inputs = self._prepare(x, augment=True, share=_share(index))
            yield Batch(inputs, _taken(self._y, index), index, weight)

    def _read(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        if isinstance(self._x, Tensor):
            for index in batches:
                yield _taken(self._x, index)
            return
        stream: DataLoader[Tensor | InputError] = DataLoader(
            _Batches(self._x.in_worker() if self._workers else self._x, batches),
            batch_size=None,
            num_workers=self._workers,
            pin_memory=self._device.type == "cuda",
            # Its own generator: the loader must not draw from the one that dropout draws from.
            generator=torch.Generator().manual_seed(0),
        )
        for x in stream:
            if isinstance(x, InputError):
                raise x
            yield x

    def train_at(self, index: Tensor) -> Batch:
        """Training examples by their positions, not augmented."""
        return self._at(self._x, self._y, self._weight, index)

    def meta(self, count: int) -> Batch:
        """The next examples of the meta set."""
        return self.meta_at(self.next_meta(count))

    def next_meta(self, count: int) -> Tensor:
        """[count] positions of the next examples of the meta set."""
        return self._cycles["meta"].take(count)

    def meta_at(self, index: Tensor) -> Batch:
        """Examples of the meta set by their positions."""
        return self._at(self._meta_x, self._meta_y, self._meta_weight, index)

    def _at(self, x: Stored, y: Tensor, weight: Tensor | None, index: Tensor) -> Batch:
        there = index.to(self._device)
        inputs = _taken(x, _own(there)) if isinstance(x, Tensor) else x[_own(index.cpu())]
        own_weight = None if weight is None else _taken(weight, there)
        return Batch(self._prepare(inputs), _taken(y, there), there, own_weight)

    def unlabelled(self, count: int) -> Tensor:
        """The next unlabelled inputs."""
        return self.unlabelled_at(self._cycles["unlabelled"].take(count))

    def unlabelled_at(self, index: Tensor) -> Tensor:
        """Unlabelled inputs by their positions."""
        at_home = isinstance(self._unlabelled, Tensor)
        return self._prepare(self._unlabelled[_own(index.to(self._device) if at_home else index)])

    def state(self) -> dict[str, dict[str, int]]:
        """Where the meta and unlabelled cycles stand."""
        return {name: cycle.state() for name, cycle in self._cycles.items()}

    def load(self, state: dict[str, dict[str, int]]) -> None:
        """Go on from there."""
        for name, cycle in self._cycles.items():
            cycle.load(state[name])


def _share(index: Tensor) -> Share | None:
    """How a batch is split between processes, if it is."""
    everyone = world()
    return Share((len(index),), everyone) if everyone.size > 1 else None


def _own(index: Tensor) -> Tensor:
    """The positions that this process reads."""
    share = _share(index)
    return index if share is None else share.own(index)


def _taken(x: Tensor, index: Tensor) -> Tensor:
    """Rows of a tensor; on a CPU by what takes whole rows, 3 to 15 times as fast."""
    return x.index_select(0, index) if x.device.type == "cpu" else x[index]


def _place_of(x: Stored, device: torch.device) -> torch.device | None:
    """Where its positions are needed: data that is streamed is read by the host."""
    return device if isinstance(x, Tensor) else None


def _on_device(x: Stored, device: torch.device) -> Stored:
    return x.to(device) if isinstance(x, Tensor) else x


class _Batches(Dataset[Tensor | InputError]):
    """Whole batches as the items of a dataset, so that a worker decodes one at a time.

    An error is handed on as it is: a loader would make its one line a traceback.
    """

    def __init__(self, x: Lazy, batches: Sequence[Tensor]) -> None:
        self.x, self.batches = x, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Tensor | InputError:
        try:
            return self.x[self.batches[number]]
        except InputError as error:
            return error


def _sent(order: Tensor, device: torch.device | None) -> Tensor:
    """On the device, without waiting for it."""
    if device is None or device.type != "cuda":
        return order.to(device)
    return order.pin_memory().to(device, non_blocking=True)

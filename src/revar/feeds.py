"""Batches from data that lives on the device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from revar.data.augment import Augment
from revar.randomness import derive
from revar.types import Batch


class Cycle:
    """Positions 0..n-1 in random order, again and again, any number at a time.

    Its state is two numbers, so a resumed run goes on where it stopped.
    """

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed = n, seed
        self.round = 0
        self.position = 0
        self._order = self._shuffled(0)

    def _shuffled(self, turn: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive(self.seed, turn))
        return torch.randperm(self.n, generator=generator)

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


class ResidentFeeds:
    """Training, meta and unlabelled batches, normalised, training ones augmented.

    An epoch visits every training example once, in batches whose sizes differ by at most one,
    so that no last batch is too small for batch norm.
    """

    def __init__(
        self,
        train: tuple[Tensor, Tensor],
        meta: tuple[Tensor, Tensor],
        unlabelled: Tensor,
        *,
        normalise: nn.Module,
        augment: Augment,
        batch_size: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self._x, self._y = (part.to(device) for part in train)
        self._meta_x, self._meta_y = (part.to(device) for part in meta)
        self._unlabelled = unlabelled.to(device)
        self._normalise, self._augment = normalise, augment
        self._seed, self._device = seed, device
        self.meta_size, self.unlabelled_size = len(self._meta_x), len(self._unlabelled)
        self.steps_per_epoch = -(-len(self._x) // batch_size)
        self._cycles = {
            name: Cycle(n, derive(seed, "cycle", name))
            for name, n in (("meta", self.meta_size), ("unlabelled", self.unlabelled_size))
            if n
        }

    def _prepare(self, x: Tensor, *, augment: bool = False) -> Tensor:
        if augment:
            x = self._augment(x)
        prepared: Tensor = self._normalise(x)
        if prepared.ndim == 4 and self._device.type == "cuda":
            prepared = prepared.contiguous(memory_format=torch.channels_last)
        return prepared

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch; the same for the same seed and number."""
        generator = torch.Generator().manual_seed(derive(self._seed, "order", number))
        order = torch.randperm(len(self._x), generator=generator).to(self._device)
        for index in order.tensor_split(self.steps_per_epoch):
            x = self._prepare(self._x[index], augment=True)
            yield Batch(x, self._y[index], index)

    def meta(self, count: int) -> Batch:
        """The next examples of the meta set."""
        index = self._cycles["meta"].take(count).to(self._device)
        return Batch(self._prepare(self._meta_x[index]), self._meta_y[index], index)

    def unlabelled(self, count: int) -> Tensor:
        """The next unlabelled inputs."""
        index = self._cycles["unlabelled"].take(count).to(self._device)
        return self._prepare(self._unlabelled[index])

    def state(self) -> dict[str, dict[str, int]]:
        """Where the meta and unlabelled cycles stand."""
        return {name: cycle.state() for name, cycle in self._cycles.items()}

    def load(self, state: dict[str, dict[str, int]]) -> None:
        """Go on from there."""
        for name, cycle in self._cycles.items():
            cycle.load(state[name])

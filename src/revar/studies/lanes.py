"""Many small runs side by side, as one: the same loop, methods and engine, batched products.

The networks of all runs are stacked, so that a layer is one batched product: inputs are
[n, runs, d], losses and weights [n, runs]. Every run keeps its own initial weights, order of
examples and dropout masks, those that it would have alone; runs share no parameter, so they do
not feel each other. What is not element-wise over parameters (clipping the norm of the gradient,
weight decay of matrices only) has no meaning here and is left out by the caller.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from revar.feeds import DataFeeds
from revar.types import Batch, Networks


class Linears(nn.Module):
    """Linear layers of several runs: [n, runs, d] to [n, runs, e]."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        """One batched product."""
        return torch.bmm(x.transpose(0, 1), self.weight).transpose(0, 1) + self.bias


class Dropouts(nn.Module):
    """Dropout of several runs, each with masks from its own generator."""

    def __init__(self, rate: float, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.rate, self.generators = rate, generators

    def forward(self, x: Tensor) -> Tensor:
        """[n, runs, d]; mask for mask what ``nn.Dropout`` does to a run alone."""
        if not self.training or self.rate == 0:
            return x
        masks = torch.empty(len(self.generators), len(x), *x.shape[2:], dtype=x.dtype)
        for mask, generator in zip(masks, self.generators, strict=True):
            mask.bernoulli_(1 - self.rate, generator=generator)
        return x * masks.div_(1 - self.rate).transpose(0, 1)


class BatchNorms(nn.BatchNorm1d):
    """Batch norms of several runs: the features of all of them are normalised as one's."""

    def __init__(self, layers: Sequence[nn.BatchNorm1d]) -> None:
        first = layers[0]
        super().__init__(len(layers) * first.num_features, first.eps, first.momentum)
        self.to(first.weight.dtype)
        states = [layer.state_dict() for layer in layers]
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(self, name).data.copy_(torch.cat([state[name] for state in states]))

    def forward(self, x: Tensor) -> Tensor:
        """[n, runs, d]"""
        return super().forward(x.flatten(1)).view_as(x)


def stacked(modules: Sequence[nn.Module], generators: Sequence[torch.Generator]) -> nn.Module:
    """Networks of one shape as one network over [n, runs, d] inputs.

    Args:
        modules: of the runs.
        generators: of their dropout masks.

    Raises:
        TypeError: a layer with parameters of its own that has no stacked form.
    """
    first = modules[0]
    if isinstance(first, nn.Linear):
        return Linears(modules)  # type: ignore[arg-type]
    if isinstance(first, nn.Dropout):
        return Dropouts(first.p, generators)
    if isinstance(first, nn.BatchNorm1d):
        return BatchNorms(modules)  # type: ignore[arg-type]
    if isinstance(first, nn.Flatten):
        return nn.Identity()
    own = [*first.parameters(recurse=False), *first.buffers(recurse=False)]
    if own:
        raise TypeError(f"{type(first).__name__} has no form for runs side by side")
    whole = copy.copy(first)
    whole._modules = {
        name: stacked([module.get_submodule(name) for module in modules], generators)
        for name, _ in first.named_children()
    }
    return whole


def stack_networks(runs: Sequence[Networks], generators: Sequence[torch.Generator]) -> Networks:
    """Classifiers and scorers of several runs as one; the sampler is the caller's to find."""
    first = runs[0]
    classifier = stacked([run.classifier for run in runs], generators)
    classifier.runs = len(runs)  # type: ignore[assignment]
    scorer = None
    if first.scorer is not None:
        scorers = [run.scorer for run in runs if run.scorer is not None]
        scorer = stacked(scorers, generators)
    return Networks(first.normalise, classifier, scorer)  # type: ignore[arg-type]


class Lanes(DataFeeds):
    """The feeds of several runs of equal sizes: each gets the batches it would get alone."""

    def __init__(self, runs: Sequence[DataFeeds]) -> None:
        first = runs[0]
        self.runs = runs
        self.train_size, self.meta_size = first.train_size, first.meta_size
        self.unlabelled_size, self.steps_per_epoch = 0, first.steps_per_epoch
        self._train = _Stack([(run.train_at(torch.arange(run.train_size))) for run in runs])
        self._held_out = _Stack([run.meta_at(torch.arange(run.meta_size)) for run in runs])

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """Batches of [n, runs, d] inputs."""
        order = torch.stack([run.order(number) for run in self.runs], 1)
        for index in order.tensor_split(self.steps_per_epoch)[start:]:
            yield self._train.at(index)

    def everything(self) -> Batch:
        """All training examples of every run, in order."""
        return self._train.at(torch.arange(self.train_size)[:, None].expand(-1, len(self.runs)))

    def meta(self, count: int) -> Batch:
        """The next examples of every run's meta set."""
        return self._held_out.at(torch.stack([run.next_meta(count) for run in self.runs], 1))


class _Stack:
    """Examples of several runs, by positions of all of them at once."""

    def __init__(self, runs: Sequence[Batch]) -> None:
        self.x, self.y = torch.stack([run.x for run in runs]), torch.stack([run.y for run in runs])
        self.run = torch.arange(len(runs))

    def at(self, index: Tensor) -> Batch:
        """[n, runs] positions to a batch."""
        return Batch(self.x[self.run, index], self.y[self.run, index], index)

"""What is recorded of classifiers for `uscore_limits.py`: runs, folds, gradients by example."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from revar.data.stored import take
from revar.fitting import fit_prepared
from revar.functional import mode
from revar.methods.erm import ERM
from revar.model import Model
from revar.nets.base import Classifier, SplitClassifier
from revar.preparation import Prepared, Split
from revar.progress import Silent
from revar.types import Clock, Feeds, Networks, Task

CPU = torch.device("cpu")
LAYERS = {
    "last layer": ("head.",),
    "last stage": ("trunk.8.", "trunk.9.", "trunk.10."),
    "all": ("",),
}
"""Parameters of a ResNet-20 by how their names begin; each set has those before it."""
_STAGES = ("4", "7", "10")
"""Last blocks of its stages."""
_CHUNK = 100


@dataclass(frozen=True, slots=True)
class Said:
    """What a classifier says of labelled points, dropout off.

    Attributes:
        features: [n, d] what its last layer reads.
        logits: [n, C]
        labels: [n] those it would be trained on.
    """

    features: Tensor
    logits: Tensor
    labels: Tensor

    @property
    def inputs(self) -> Tensor:
        """[n, d + 1] features, and a one for the bias."""
        return F.pad(self.features, (0, 1), value=1.0)

    @property
    def residuals(self) -> Tensor:
        """[n, C] ``p - y``."""
        return self.logits.softmax(dim=1) - F.one_hot(self.labels, self.logits.shape[1])

    def cooled(self, temperature: float) -> Said:
        """With logits divided by it."""
        return Said(self.features, self.logits / temperature, self.labels)

    def at(self, rows: Tensor) -> Said:
        """Some of the points."""
        return Said(self.features[rows], self.logits[rows], self.labels[rows])


@dataclass(frozen=True, slots=True)
class Fold:
    """A classifier that has not seen some of the training points.

    Attributes:
        rows: [m] these points.
        held_out: what it says of them.
        meta: and of the meta set.
        head: [C, d + 1] its last layer, bias last.
    """

    rows: Tensor
    held_out: Said
    meta: Said
    head: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything a teacher may look at.

    Attributes:
        train: what the classifier said of the training points, at times along the run.
        meta: of the meta set, at the same times.
        shares: how much of the run was done then.
        folds: of cross-fitting; their rows are all training points.
        head: [n, M] alignments of training point and meta point in the last layer, at the end.
        every: [n, M] the same in all layers.
        dropout: rate of the head's dropout.
        seed: of draws.
    """

    train: tuple[Said, ...]
    meta: tuple[Said, ...]
    shares: tuple[float, ...]
    folds: tuple[Fold, ...]
    head: Tensor
    every: Tensor
    dropout: float
    seed: int

    def batch(self, size: int, number: int = 0) -> Tensor:
        """[size] rows of the meta set, all different; another number is another batch."""
        generator = torch.Generator().manual_seed(1000 * self.seed + number)
        return torch.randperm(len(self.meta[-1].labels), generator=generator)[:size]


@torch.no_grad()
def said(classifier: Classifier, x: Tensor, labels: Tensor) -> Said:
    """What it says of normalised inputs."""
    with mode(classifier, dropout=False, statistics=True):
        features = torch.cat([classifier.forward_features(part) for part in x.split(_CHUNK)])
        return Said(features, classifier.forward_head(features), labels)


@torch.no_grad()
def pooled(classifier: SplitClassifier, x: Tensor) -> Tensor:
    """[n, 112] means over places of what each stage says."""
    found: list[list[Tensor]] = [[] for _ in _STAGES]
    hooks = [
        classifier.trunk.get_submodule(name).register_forward_hook(
            lambda _module, _given, out, into=into: into.append(out.mean(dim=(2, 3)))
        )
        for name, into in zip(_STAGES, found, strict=True)
    ]
    with mode(classifier, dropout=False, statistics=True):
        for part in x.split(_CHUNK):
            classifier.forward_features(part)
    for hook in hooks:
        hook.remove()
    return torch.cat([torch.cat(parts) for parts in found], dim=1)


def watched(every: int, epochs: int) -> tuple[ERM, list[tuple[Said, Said]], list[Classifier]]:
    """Plain training, what it will have said of train and meta points, and its net half-way."""
    moments: list[tuple[Said, Said]] = []
    middle: list[Classifier] = []

    class Watched(ERM):
        def build_heads(self, classifier: Classifier, n_classes: int) -> nn.Module | None:
            # A third faster on a CPU.
            classifier.to(memory_format=torch.channels_last)
            return None

        def finish_epoch(self, networks: Networks, task: Task, feeds: Feeds, clock: Clock) -> None:
            net = networks.classifier
            assert isinstance(net, Classifier)
            if every and clock.epoch % every == 0:
                train = feeds.train_at(torch.arange(feeds.train_size))
                meta = feeds.meta_at(torch.arange(feeds.meta_size))
                moments.append((said(net, train.x, train.y), said(net, meta.x, meta.y)))
            if clock.epoch == epochs // 2:
                middle.append(deepcopy(net))

    return Watched(), moments, middle


def inputs_of(model: Model, split: Split) -> tuple[Tensor, Tensor]:
    """Normalised inputs and labels."""
    return model.networks.normalise(torch.as_tensor(split.x[:])), torch.from_numpy(split.y)


def fitted(data: Prepared, method: ERM) -> Model:
    """Train."""
    data = replace(data, recipe=replace(data.recipe, method=method))
    return fit_prepared(data, device=CPU, observer=Silent())


def cross_fit(data: Prepared, folds: int) -> tuple[Fold, ...]:
    """A classifier for each part of the training points, taught by the others."""
    train = data.splits["train"]
    order = np.random.default_rng(data.recipe.seed).permutation(len(train.y))
    found = []
    for rows in np.array_split(order, folds):
        rest = np.setdiff1d(order, rows)
        parts = [Split(take(train.x, r), train.y[r], train.index[r]) for r in (rest, rows)]
        less = replace(data, splits={**data.splits, "train": parts[0]}, tests={})
        model = fitted(less, watched(0, 0)[0])
        net = model.networks.classifier
        assert isinstance(net, SplitClassifier)
        last = net.head[1]
        assert isinstance(last, nn.Linear)
        head = torch.cat([last.weight, last.bias[:, None]], dim=1).detach()
        meta = said(net, *inputs_of(model, data.splits["meta"]))
        held_out = said(net, *inputs_of(model, parts[1]))
        found.append(Fold(torch.from_numpy(rows), held_out, meta, head))
    return tuple(found)


def gradients(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """[n, P] of every example's loss, by set of layers that comes on top; dropout off."""
    state = {name: value.detach() for name, value in net.state_dict().items()}
    trained = {name: state.pop(name) for name, _ in net.named_parameters()}

    def loss(at: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(net, {**state, **at}, one[None]), label[None])

    with mode(net, dropout=False, statistics=True):
        found = vmap(grad(loss), (None, 0, 0))(trained, x, y)
    sets: dict[str, Tensor] = {}
    for layers, beginnings in LAYERS.items():
        names = [name for name in found if name.startswith(beginnings)]
        sets[layers] = torch.cat([found.pop(name).flatten(1) for name in names], dim=1)
    return sets


def kernels(
    net: nn.Module, points: tuple[Tensor, Tensor], meta: tuple[Tensor, Tensor]
) -> dict[str, Tensor]:
    """[n, M] alignments of every point with every meta point, by set of layers."""
    pairs = list(zip(*(part.split(_CHUNK) for part in meta), strict=True))
    against = [gradients(net, *pair) for pair in pairs]
    beside = {layers: torch.cat([one.pop(layers) for one in against]) for layers in LAYERS}
    rows: dict[str, list[Tensor]] = {layers: [] for layers in LAYERS}
    for pair in zip(*(part.split(_CHUNK) for part in points), strict=True):
        total = torch.zeros(len(pair[1]), len(meta[1]))
        for layers, values in gradients(net, *pair).items():
            total = total + values @ beside[layers].T
            rows[layers].append(total)
    return {layers: torch.cat(parts) for layers, parts in rows.items()}

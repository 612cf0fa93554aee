"""What may teach g: targets made of recorded alignments, and the one way a g is fitted to them.

The alignment of an example is ``s_i = <grad l_i, grad meta loss>``. A weight w_i that follows the
hypergradient grows where s_i is large; the paper reads a large weight as uncertain. So every
target here is the alignment with its own sign. Gradients are taken at the same weights: there is
no look-ahead, the batch norm keeps to its statistics, and dropout is off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from revar.methods.history import summed_log_odds
from revar.nets.scorer import (
    Evidence,
    EvidenceScorer,
    FeatureScorer,
    Scored,
    Scorer,
    top_log_odds,
)
from revar.stochastic import variance
from uscore_limits_record import Fold, Record, Said

Reads = Literal["features", "evidence", "layers"]
Loss = Literal["linear", "regression", "ranking", "kl", "distil"]
READS: tuple[Reads, ...] = ("features", "evidence", "layers")
BATCH = 64
"""Meta examples of the base."""


def head_gradient(meta: Said) -> Tensor:
    """[C, d + 1] gradient of the mean cross-entropy in the last layer, ``mean_m (p - y) h^T``."""
    return meta.residuals.T @ meta.inputs / len(meta.labels)


def varied_gradient(
    fold: Fold, batch: Tensor, weight: float, rate: float, seed: int, passes: int = 10
) -> Tensor:
    """[C, d + 1] gradient of the mean of cross-entropy + weight * dropout variance, by autograd.

    Args:
        fold: its meta set and last layer.
        batch: rows of the meta set.
        weight: lambda.
        rate: of dropout before the last layer.
        seed: of the masks, the same for every weight.
        passes: T.
    """
    meta, head = fold.meta.at(batch), fold.head.clone().requires_grad_()
    features = meta.features.expand(passes, -1, -1)
    kept = torch.rand(features.shape, generator=torch.Generator().manual_seed(seed)) >= rate
    samples = F.pad(features * kept / (1 - rate), (0, 1), value=1.0) @ head.T
    loss = F.cross_entropy(meta.inputs @ head.T, meta.labels)
    (gradient,) = torch.autograd.grad(loss + weight * variance(samples).mean(), head)
    return gradient


def aligned(points: Said, gradient: Tensor) -> Tensor:
    """[n] ``(p_i - y_i)^T G h_i``: alignments in the last layer, in closed form."""
    return (points.residuals * (points.inputs @ gradient.T)).sum(dim=1)


def one_batch(record: Record, size: int = BATCH) -> Tensor:
    """Of one meta batch, at the end of training."""
    return aligned(record.train[-1], head_gradient(record.meta[-1].at(record.batch(size))))


def whole_set(record: Record) -> Tensor:
    """Of the whole meta set."""
    return aligned(record.train[-1], head_gradient(record.meta[-1]))


def accumulated(record: Record, batches: int = 4) -> Tensor:
    """Mean over several meta batches."""
    gradients = [
        head_gradient(record.meta[-1].at(record.batch(BATCH, number))) for number in range(batches)
    ]
    return aligned(record.train[-1], torch.stack(gradients).mean(dim=0))


def centred(record: Record) -> Tensor:
    """Of one batch, less the alignment of the candidates' mean gradient: ``<g_i - g, v>``."""
    values = one_batch(record)
    return values - values.mean()


def all_layers(record: Record) -> Tensor:
    """Of one batch, in all layers."""
    return record.every[:, record.batch(BATCH)].mean(dim=1)


def all_layers_whole(record: Record) -> Tensor:
    """Of the whole meta set, in all layers."""
    return record.every.mean(dim=1)


def controlled(record: Record) -> Tensor:
    """Of one batch in all layers, the last layer's alignment being the control variate.

    ``s_b - c (h_b - h)`` with h the last layer's with the whole set, h_b with the batch, and c
    the best factor for all examples together.
    """
    every, head = (part - part.mean(dim=1, keepdim=True) for part in (record.every, record.head))
    factor = (every * head).sum() / head.square().sum()
    batch = record.batch(BATCH)
    return all_layers(record) - factor * head[:, batch].mean(dim=1)


def running(record: Record) -> Tensor:
    """Mean over the run of each example's alignments, at every time with a batch of its own."""
    values = [
        aligned(said, head_gradient(meta.at(record.batch(BATCH, number))))
        for number, (said, meta) in enumerate(zip(record.train, record.meta, strict=True))
    ]
    return torch.stack(values).mean(dim=0)


def whole_history(record: Record) -> Tensor:
    """The same with the whole meta set, all times alike in spread."""
    pairs = zip(record.train, record.meta, strict=True)
    values = [aligned(said, head_gradient(meta)) for said, meta in pairs]
    return torch.stack([scaled(one) for one in values]).mean(dim=0)


def cross_fitted(record: Record, size: int | None = None, weight: float = 0.0) -> Tensor:
    """Of points that were held out, by the classifier that has not seen them.

    Args:
        record: with its folds.
        size: of the meta batch; ``None`` takes the whole set.
        weight: lambda, of the dropout variance in the meta loss.
    """
    target = torch.zeros(len(record.train[-1].labels))
    batch = record.batch(len(record.meta[-1].labels) if size is None else size)
    for fold in record.folds:
        gradient = varied_gradient(fold, batch, weight, record.dropout, record.seed)
        target[fold.rows] = scaled(aligned(fold.held_out, gradient))
    return target


def magnitude(record: Record) -> Tensor:
    """Of the same points, how large the alignment is, whatever its sign.

    Where probabilities are right, ``E[p - y | x] = 0`` and so is the mean alignment of an input,
    in every layer: only its size can depend on x.
    """
    return cross_fitted(record).abs()


def calibrated(record: Record) -> Tensor:
    """Of the same points, each classifier's logits divided by the temperature that suits them."""
    target = torch.zeros(len(record.train[-1].labels))
    for fold in record.folds:
        points, meta = (
            part.cooled(temperature(fold.held_out)) for part in (fold.held_out, fold.meta)
        )
        target[fold.rows] = scaled(aligned(points, head_gradient(meta)))
    return target


def temperature(points: Said) -> float:
    """Of the least cross-entropy, to 3 %."""
    choices = torch.logspace(-1, 1, 161).tolist()
    losses = [float(F.cross_entropy(points.logits / choice, points.labels)) for choice in choices]
    return float(choices[losses.index(min(losses))])


def held_out_loss(record: Record) -> Tensor:
    """Cross-entropy of held-out points, by the classifier that has not seen them."""
    target = torch.zeros(len(record.train[-1].labels))
    for fold in record.folds:
        losses = F.cross_entropy(fold.held_out.logits, fold.held_out.labels, reduction="none")
        target[fold.rows] = scaled(losses)
    return target


def meta_halves(record: Record, *, cool: bool = False) -> Tensor:
    """Of the meta points themselves, each half against the gradient of the other.

    Args:
        record: with its meta set.
        cool: divide the logits by the temperature that suits them.
    """
    meta = record.meta[-1]
    meta = meta.cooled(temperature(meta)) if cool else meta
    order = record.batch(len(meta.labels))
    first, second = order.tensor_split(2)
    target = torch.zeros(len(order))
    for one, other in ((first, second), (second, first)):
        target[one] = scaled(aligned(meta.at(one), head_gradient(meta.at(other))))
    return target


def trajectory(record: Record, start: float = 0.4) -> Tensor:
    """Log-odds against the class now predicted, by the average of the run: the project's own."""
    pairs = zip(record.shares, record.train, strict=True)
    sums = torch.stack([said.logits.softmax(dim=1) for share, said in pairs if share > start])
    return summed_log_odds(sums.sum(dim=0), record.train[-1].logits.argmax(dim=1))


def with_alignments(weight: float) -> Callable[[Record], Tensor]:
    """What the run and held-out points know together: `trajectory` and `cross_fitted` in sum.

    Args:
        weight: lambda, of the dropout variance in the meta loss.
    """

    def both(record: Record) -> Tensor:
        along = trajectory(record)
        return scaled(along - along.mean()) + scaled(cross_fitted(record, weight=weight))

    return both


def softmax_itself(record: Record) -> Tensor:
    """What softmax response says: can a g of this size read it?"""
    return -top_log_odds(record.train[-1].logits)


def scaled(values: Tensor) -> Tensor:
    """Of deviation one; zero stays zero, and signs are kept."""
    return values / values.std(unbiased=False).clamp_min(1e-12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A row of the table.

    Attributes:
        name: of the row.
        teacher: record to the target, [n], uncertainty up.
        loss: how g learns it.
        members: how many g are averaged.
        points: whose target it is.
    """

    name: str
    teacher: Callable[[Record], Tensor]
    loss: Loss = "linear"
    members: int = 1
    points: Literal["train", "meta"] = "train"


def _varied(weight: float) -> Callable[[Record], Tensor]:
    return lambda record: cross_fitted(record, weight=weight)


HALVES = "meta halves, regression"
MENDED = "cross-fitting, whole set, regression"


LESSONS = (
    Lesson(name="base: one batch of 64", teacher=one_batch),
    Lesson(name="batch of 256", teacher=lambda record: one_batch(record, 256)),
    Lesson(name="four batches of 64", teacher=accumulated),
    Lesson(name="whole meta set", teacher=whole_set),
    Lesson(name="centred", teacher=centred),
    Lesson(name="all layers", teacher=all_layers),
    Lesson(name="all layers, control variate", teacher=controlled),
    Lesson(name="all layers, whole meta set", teacher=all_layers_whole),
    Lesson(name="running average over the run", teacher=running),
    Lesson(name="history of the whole set", teacher=whole_history),
    Lesson(name="KL to uniform", teacher=one_batch, loss="kl"),
    Lesson(name="ranking", teacher=one_batch, loss="ranking"),
    Lesson(name="regression", teacher=one_batch, loss="regression"),
    Lesson(name="cross-fitting", teacher=lambda record: cross_fitted(record, BATCH)),
    Lesson(name="halves of the meta set", teacher=meta_halves, points="meta"),
    Lesson(name="five g", teacher=one_batch, members=5),
    Lesson(name="whole set, regression", teacher=whole_set, loss="regression"),
    Lesson(name="history, regression", teacher=whole_history, loss="regression"),
    Lesson(name=HALVES, teacher=meta_halves, loss="regression", points="meta"),
    Lesson(
        name=f"{HALVES}, calibrated", teacher=lambda record: meta_halves(record, cool=True),
        loss="regression", points="meta",
    ),
    Lesson(
        name=f"{HALVES}, size without sign", teacher=lambda record: meta_halves(record).abs(),
        loss="regression", points="meta",
    ),
    Lesson(name=MENDED, teacher=cross_fitted, loss="regression"),
    *(
        Lesson(name=f"{MENDED}, lambda {weight:g}", teacher=_varied(weight), loss="regression")
        for weight in (0.1, 1.0, 10.0)
    ),
    Lesson(name=f"{MENDED}, five g", teacher=cross_fitted, loss="regression", members=5),
    Lesson(name=f"{MENDED}, calibrated", teacher=calibrated, loss="regression"),
    Lesson(name=f"{MENDED}, size without sign", teacher=magnitude, loss="regression"),
    Lesson(name="no alignment: held-out loss", teacher=held_out_loss, loss="regression"),
    Lesson(name="no alignment: softmax itself", teacher=softmax_itself, loss="distil"),
    Lesson(name="no alignment: trajectory", teacher=trajectory, loss="distil"),
    *(
        Lesson(name=f"trajectory and alignments, lambda {weight:g}",
               teacher=with_alignments(weight), loss="distil")
        for weight in (0.0, 1.0, 10.0)
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inputs:
    """What g reads of points.

    Attributes:
        embedding: [n, k] features of the last layer, or of several.
        log_odds: [n] of the classifier's top class.
    """

    embedding: Tensor
    log_odds: Tensor

    def at(self, rows: Tensor) -> Evidence:
        """Some of the points."""
        return Evidence(self.embedding[:0], self.embedding[rows], self.log_odds[rows])


def objective(loss: Loss, scored: Scored, target: Tensor) -> Tensor:
    """What g minimises over a batch.

    ``linear``: the hypergradient of sigmoid weights. ``regression``: its proximal form, of what g
    adds to its base. ``ranking``: logistic loss of all pairs. ``kl``: from weights proportional
    to exp(target), the optimum under a KL penalty towards uniform ones. ``distil``: Huber.

    Args:
        loss: which.
        scored: what g says of n points, differentiable.
        target: [n] of deviation one over all points, and but for ``linear`` of mean zero.
    """
    logit, correction = scored.logit, scored.correction
    if loss == "linear":
        return -(target * logit.sigmoid()).mean()
    if loss == "regression":
        return (0.5 * correction.square() - target * correction).mean()
    if loss == "ranking":
        above = target[:, None] > target[None, :]
        return F.softplus(-(logit[:, None] - logit[None, :]))[above].mean()
    if loss == "kl":
        return -(target.softmax(dim=0) * logit.log_softmax(dim=0)).sum()
    return F.smooth_l1_loss(logit, target)


def fit_g(
    inputs: Inputs, target: Tensor, reads: Reads, loss: Loss, seed: int, epochs: int = 30
) -> Scorer:
    """A new g, taught by mini-batches of 100.

    Args:
        inputs: of n points.
        target: [n] uncertainty up.
        reads: ``evidence`` makes it a correction to softmax response.
        loss: see `objective`.
        seed: of weights and batches.
        epochs: passes over the points.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        n_features = inputs.embedding.shape[1]
        scorer = (EvidenceScorer if reads == "evidence" else FeatureScorer)(n_features)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(scorer.parameters(), lr=3e-3, weight_decay=1e-2)
    wanted = scaled(target if loss == "linear" else target - target.mean())
    for _ in range(epochs):
        for rows in torch.randperm(len(wanted), generator=generator).split(100):
            scored = scorer(inputs.at(rows))
            value = objective(loss, scored, wanted[rows])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
    return scorer.eval()


@torch.no_grad()
def score(scorer: Scorer, inputs: Inputs) -> Tensor:
    """[n] the logit of g."""
    logit: Tensor = scorer(inputs.at(torch.arange(len(inputs.log_odds)))).logit
    return logit

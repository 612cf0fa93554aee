"""What methods share that weight training examples through a look-ahead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from revar import fields
from revar.bilevel import Losses, Objective, Strategy
from revar.folding import folded
from revar.functional import (
    Params,
    Rate,
    at_least_single,
    average,
    call,
    mode,
    norms_by_batch,
)
from revar.methods.base import Method
from revar.nets.base import Classifier, is_watched
from revar.nets.scorer import (
    Evidence,
    FeatureScorer,
    NetworkScorer,
    Scored,
    Scorer,
    top_log_odds,
)
from revar.parallel import world
from revar.sharded import alone, current, sharing
from revar.stochastic import Space
from revar.types import Batch, Feeds, Networks, Task

WeightNormalisation = Literal["none", "batch_mean_one", "sum_one"]
_NOTHING = torch.empty(0, device="cpu")
"""In place of what a scorer does not read."""


def normalise_weights(raw: Tensor, how: WeightNormalisation) -> Tensor:
    """[n] non-negative weights, as they are, of mean one, or of sum one.

    Without normalisation the mean of the weights rescales the learning rate, which drifts with
    g; the paper prints none.
    """
    if how == "none":
        return raw
    share = raw / raw.sum(0).clamp_min(torch.finfo(raw.dtype).tiny)
    return share * len(raw) if how == "batch_mean_one" else share


def linear_surrogate(weights: Tensor, alignment: Tensor, lr: Rate) -> Tensor:
    """``-(lr / n) sum_i s_i w_i``: its gradient is the hypergradient (appendix A).

    Args:
        weights: [n] differentiable weights.
        alignment: [n] s_i, see `revar.bilevel`.
        lr: of the look-ahead.
    """
    return -lr * average(alignment * weights)


def proximal_surrogate(correction: Tensor, alignment: Tensor) -> Tensor:
    """``mean_i (c_i^2 / 2 - s_i c_i)`` with s standardised: a regression of c on s.

    The linear form is minimised by weights of 0 and 1 alone, which cannot rank. A penalty on
    what g adds to its base keeps it graded; where alignments are noise, g stays at its base.

    Args:
        correction: [n] differentiable, in logits of g.
        alignment: [n] s_i.
    """
    centred = alignment - alignment.mean(0)
    spread = centred.square().mean(0).sqrt()
    standard = centred / spread.clamp_min(torch.finfo(spread.dtype).tiny)
    return average(0.5 * correction.square() - standard * correction)


def evidence_for(networks: Networks, x: Tensor, features: Tensor | None = None) -> Evidence:
    """What the scorer looks at, detached, from a deterministic pass of the classifier.

    Args:
        networks: with a scorer.
        x: [n, ...] normalised inputs.
        features: of the trunk on x, where a pass has them already.
    """
    if isinstance(networks.scorer, NetworkScorer):
        return Evidence(x, _NOTHING, _NOTHING)
    classifier = networks.classifier
    if features is not None and isinstance(networks.scorer, FeatureScorer) and classifier.is_flat:
        return Evidence(x, at_least_single(features), _NOTHING)
    with torch.no_grad(), alone(), mode(classifier, dropout=False, statistics=True):
        if features is None:
            features = folded(classifier, "forward_features")(x)
        embedding = at_least_single(classifier.embed(features))
        if isinstance(networks.scorer, FeatureScorer):
            return Evidence(x, embedding, _NOTHING)
        logits = classifier.forward_head(features)
        return Evidence(x, embedding, top_log_odds(at_least_single(logits)))


def reads_as_they_are(scorer: Scorer, classifier: Classifier) -> bool:
    """Whether g reads nothing but features as they are, all rows of them, and nobody watches it."""
    if type(scorer) is not FeatureScorer or current() is not None or is_watched(scorer):
        return False
    return classifier.is_flat


def asked_about(networks: Networks, features: Tensor) -> Tensor | None:
    """Features of a training pass, where a deterministic one has the same.

    g must learn from what it will be asked about. Batch norm by the batch, or dropout in the trunk,
    makes other features: taught on those, g missed wrong labels that it finds otherwise
    (benchmarks/shared_gradient.py).
    """
    classifier, sampler = networks.classifier, networks.sampler
    steady = sampler is not None and sampler.shared_trunk and not norms_by_batch(classifier)
    return features.detach() if steady and classifier.is_ours else None


def uscore_column(
    networks: Networks, x: Tensor, features: Tensor, logits: Tensor
) -> dict[str, Tensor]:
    """``uscore``: the logit of g, [n], from what a pass of the classifier has found."""
    assert isinstance(networks.scorer, Scorer)
    evidence = Evidence(x, networks.classifier.embed(features), top_log_odds(logits))
    scored: Scored = networks.scorer(evidence)
    return {"uscore": scored.logit}


def unweighted(task: Task, batch: Batch) -> tuple[Task, Batch]:
    """The same, with all examples counting alike."""
    return replace(task, class_weights=None), replace(batch, weight=None)


def losses_of(networks: Networks, task: Task, batch: Batch, *, training: bool) -> Losses:
    """The losses of a batch as a function of the classifier's parameters.

    Args:
        networks: with the classifier.
        task: defines the loss.
        batch: the examples.
        training: as the training step sees them, dropout on and batch norm by the batch; else a
            deterministic pass, for examples the classifier is not trained on.
    """
    classifier = networks.classifier

    def losses(params: Params) -> Tensor:
        with (
            sharing(len(batch.y)),
            mode(classifier, dropout=training, statistics=not training),
        ):
            return task.losses(call(classifier, params, batch.x), batch)

    return losses


def halves(feeds: Feeds, half: int) -> tuple[Batch, Batch]:
    """Two batches of one draw, so that no example is aligned with its own gradient."""
    drawn = feeds.meta(2 * half)
    if world().size > 1:
        # A process has other rows of each half than the halves of its rows.
        return feeds.meta_at(drawn.index[:half]), feeds.meta_at(drawn.index[half:])
    return drawn.part(slice(None, half)), drawn.part(slice(half, 2 * half))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaObjective:
    """The meta-loss: classification loss on the meta set plus dropout variance (equation 4).

    ``(1/m) sum_j l(y_j, f(x_j)) + variance_weight * (1/m') sum_j leps(x_j)``, the second mean over
    the meta inputs, these and unlabelled ones, or unlabelled ones only.

    Attributes:
        passes: T.
        variance_weight: lambda; 0 leaves the variance out and takes no passes.
        space: of the variance.
        prediction: the classification loss of the deterministic pass, or of the mean
            probabilities of the passes.
    """

    passes: int
    variance_weight: float
    space: Space
    prediction: Literal["deterministic", "dropout_mean"]

    def labelled(
        self, networks: Networks, task: Task, meta: Batch, unlabelled: Tensor | None
    ) -> Objective:
        """On labelled meta points, the variance also on as many unlabelled inputs, if given."""
        x = meta.x if unlabelled is None else torch.cat([meta.x, unlabelled])
        n = len(meta.y)
        sizes = (n,) if unlabelled is None else (n, n)

        def objective(params: Params) -> Tensor:
            if self.variance_weight == 0 and self.prediction == "deterministic":
                return average(losses_of(networks, task, meta, training=False)(params))
            assert networks.sampler is not None
            with sharing(*sizes):
                logits, samples = networks.sampler.run(x, self.passes, params)
            # Half precision would round away a small variance.
            samples = at_least_single(samples)
            if self.prediction == "dropout_mean":
                logits = task.mean_output(samples)
            labelled = logits if unlabelled is None else logits[:n]
            loss = average(task.losses(labelled, meta))
            return loss + self.variance_weight * average(task.variance(samples, self.space))

        return objective

    def unlabelled(
        self, networks: Networks, task: Task, x: Tensor, count: int | None = None
    ) -> Objective:
        """On unlabelled inputs alone: the variance is all there is to minimise.

        Args:
            networks: with a sampler.
            task: defines the variance.
            x: [count, ...] inputs, or this process's rows of them.
            count: how many there are on all processes.
        """

        def objective(params: Params) -> Tensor:
            assert networks.sampler is not None
            with sharing(len(x) if count is None else count):
                _, samples = networks.sampler.run(x, self.passes, params)
            spread = task.variance(at_least_single(samples), self.space)
            return self.variance_weight * average(spread)

        return objective


@dataclass(frozen=True, kw_only=True)
class Reweighting(Method):
    """What MWN, L2R and FSR share: a meta-loss, and selection by Monte-Carlo dropout.

    Their weights need a label or belong to a training batch, so they cannot score new inputs;
    the ReVaR paper selects with dropout for all three.

    Attributes:
        variance_weight: lambda of the dropout variance in the meta-loss [0]; the ReVaR paper's
            "VarMin" rows have it.
        variance_space: ``softmax`` or ``logits``.
        passes: T [10 in the ReVaR paper].
        engine: strategy for the alignments; all give the same numbers.
    """

    variance_weight: float = 0.0
    variance_space: Space = "softmax"
    passes: int = 10
    engine: Strategy = "forward_mode"

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.require(self.variance_weight >= 0, self, "variance_weight", "not be negative")
        fields.require(self.passes >= 1, self, "passes", "be at least 1")

    @property
    def own_score(self) -> str:
        """Monte-Carlo dropout."""
        return "mcd"

    @property
    def needs_dropout(self) -> bool:
        """The variance term does."""
        return self.variance_weight > 0

    @property
    def meta_objective(self) -> MetaObjective:
        """Cross-entropy of the deterministic pass, plus the dropout variance if asked for."""
        return MetaObjective(
            passes=self.passes,
            variance_weight=self.variance_weight,
            space=self.variance_space,
            prediction="deterministic",
        )

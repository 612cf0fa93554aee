"""ReVaR: reweighting for dropout variance reduction (Jain, Shanmugam and Shenoy).

A network g weights the training examples of f. It is updated through a one-step look-ahead of f
so that the meta-loss, classification loss plus dropout variance on a held-out set, falls
(algorithm 1 and appendix A of the paper); at test time g(x), the U-Score, says what to reject.

The paper's text is `ReVaR.paper`. The defaults differ from it where prototypes of the text gave
a U-Score that ranks errors at chance: see docs/design/004-default-u-score.md.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

import torch
from torch import Tensor

from revar import fields
from revar.bilevel import OneStep, Strategy, Taken, alignments
from revar.errors import InputError
from revar.folding import folding
from revar.functional import Rate, at_least_single, average, mode, parameters
from revar.methods.base import (
    Bilevel,
    DefaultScore,
    MakeClassifier,
    OuterOptimiser,
    Plan,
    phase_start,
)
from revar.methods.reweighting import (
    MetaObjective,
    WeightNormalisation,
    asked_about,
    evidence_for,
    halves,
    linear_surrogate,
    losses_of,
    normalise_weights,
    proximal_surrogate,
    reads_as_they_are,
    uscore_column,
)
from revar.nets.base import Classifier, convolution_weights
from revar.nets.finetuning import upper_layers
from revar.nets.pretrained import load_pretrained
from revar.nets.scorer import EvidenceScorer, FeatureScorer, NetworkScorer, Scored, Scorer
from revar.sharded import sharing
from revar.stochastic import Space
from revar.streams import Branch
from revar.types import Batch, Clock, Feeds, Networks, OuterResult, Regression, StepResult, Task


@dataclass(frozen=True, kw_only=True)
class ReVaR(Bilevel):
    """Fields, with the paper's value in brackets.

    Attributes:
        scorer: what g reads: ``network`` the inputs, with a backbone of its own [yes];
            ``features`` f's detached features; ``evidence`` features and top-class log-odds, as
            a zero-initialised correction to softmax response.
        scorer_backbone: of a ``network`` scorer; ``None`` takes f's [a ResNet-18].
        scorer_reduction: a ``network`` scorer reads images with sides so many times smaller [1].
        scorer_pretrained: weights file a ``network`` scorer starts from [pretrained].
        update: ``linear`` gradient of the meta-loss [yes]; ``proximal`` adds a penalty on what g
            has learned, which makes the update a regression on the standardised alignments.
        candidates: examples g learns from: ``train`` [yes] or ``held_out``.
        meta_batch: examples for the meta-gradient; ``None`` takes the training batch's size
            [yes]. At most the meta set, or half of it with held-out candidates.
        weight_normalisation: of the weights in a batch [none].
        variance_weight: lambda of the dropout variance [1]; 0 is IBR, ReVaR-NoVarMin.
        variance_space: ``softmax`` or ``logits`` [not said].
        meta_prediction: classification loss in the meta-loss by the deterministic pass or by the
            mean of the dropout passes [not said].
        passes: T [10].
        interval: training steps per meta step [15].
        warmup: share of the budget trained unweighted first [25 of 300 epochs].
        warmup_epochs: the same in epochs, instead.
        outer_optimiser: ``adam`` or ``sgd`` [sgd].
        outer_learning_rate: [1e-4]
        outer_momentum: of sgd [0.9].
        outer_weight_decay: [1e-4]
        orientation: ``high`` g is uncertain [yes], ``low``, or ``auto``: by failure AUROC on the
            tune split.
        unlabelled: ``none`` [yes]; ``pooled`` adds unlabelled inputs to the variance term
            (ReVaR-PV); ``only`` makes them the whole meta-loss (ReVaR-DSV).
        unlabelled_from: share of the budget after which they take part [230 of 300 epochs].
        unlabelled_from_epoch: the same in epochs, instead.
        engine: strategy for the hypergradient; all give the same numbers.
        shares_gradient: the look-ahead is the training step itself, whose gradient is there
            anyway, and g is updated after it [no, before]; the hypergradient is exact.
        aligned_layers: ``all`` [yes], or ``upper``: gradients are compared in the upper quarter
            of the layers and the head only, an approximation that needs no derivative of the
            rest.
        default_score: the score a run uses unless told otherwise [uscore].
    """

    scorer: Literal["network", "features", "evidence"] = "evidence"
    scorer_backbone: str | None = None
    scorer_reduction: int = 1
    scorer_pretrained: str | None = None
    update: Literal["linear", "proximal"] = "proximal"
    candidates: Literal["train", "held_out"] = "held_out"
    meta_batch: int | None = None
    weight_normalisation: WeightNormalisation = "batch_mean_one"
    variance_weight: float = 1.0
    variance_space: Space = "softmax"
    meta_prediction: Literal["deterministic", "dropout_mean"] = "deterministic"
    passes: int = 10
    interval: int = 10
    warmup: float = 1 / 12
    warmup_epochs: int | None = None
    outer_optimiser: Literal["adam", "sgd"] = "adam"
    outer_learning_rate: float = 1e-3
    outer_momentum: float = 0.9
    outer_weight_decay: float = 1e-4
    orientation: Literal["high", "low", "auto"] = "high"
    unlabelled: Literal["none", "pooled", "only"] = "none"
    unlabelled_from: float = 230 / 300
    unlabelled_from_epoch: int | None = None
    engine: Strategy = "forward_mode"
    shares_gradient: bool = True
    aligned_layers: Literal["all", "upper"] = "all"
    default_score: DefaultScore = "fused"

    @classmethod
    def paper(cls) -> Self:
        """The paper's text, literally; readings where it is silent are in the design notes."""
        return cls(
            scorer="network",
            update="linear",
            candidates="train",
            meta_batch=None,
            weight_normalisation="none",
            interval=15,
            outer_optimiser="sgd",
            outer_learning_rate=1e-4,
            shares_gradient=False,
            default_score="uscore",
        )

    @classmethod
    def ibr(cls) -> Self:
        """Instance-based reweighting: the paper's text without the variance term."""
        return replace(cls.paper(), variance_weight=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("passes", "interval", "scorer_reduction"):
            fields.require(getattr(self, name) >= 1, self, name, "be at least 1")
        for name in ("variance_weight", "outer_momentum", "outer_weight_decay"):
            fields.require(getattr(self, name) >= 0, self, name, "not be negative")
        for name in ("warmup", "unlabelled_from"):
            fields.require(0 <= getattr(self, name) < 1, self, name, "be in [0, 1)")
        fields.require(self.outer_learning_rate > 0, self, "outer_learning_rate", "be positive")
        fields.require(
            self.meta_batch is None or self.meta_batch >= 2, self, "meta_batch", "be >= 2"
        )
        if self.unlabelled == "only":
            fields.require(
                self.variance_weight > 0, self, "variance_weight", "be positive: it is the whole "
                "meta-loss with unlabelled=only",
            )  # fmt: skip
        if self.engine == "double_backward":
            whole = "with engine=double_backward, which takes every step whole"
            fields.require(not self.shares_gradient, self, "shares_gradient", f"be false {whole}")
            fields.require(self.aligned_layers == "all", self, "aligned_layers", f"be all {whole}")
        if self.scorer != "network":
            for name in ("scorer_backbone", "scorer_pretrained"):
                fields.require(
                    getattr(self, name) is None, self, name, f"be none with scorer={self.scorer}"
                )
            fields.require(
                self.scorer_reduction == 1, self, "scorer_reduction",
                f"be 1 with scorer={self.scorer}",
            )  # fmt: skip

    @property
    def own_score(self) -> str:
        """The U-Score."""
        return "uscore"

    @property
    def needs_dropout(self) -> bool:
        """The variance term and the mean of the passes need it."""
        return self.variance_weight > 0 or self.meta_prediction == "dropout_mean"

    @property
    def uses_unlabelled(self) -> bool:
        """ReVaR-PV and ReVaR-DSV do."""
        return self.unlabelled != "none"

    @property
    def outer(self) -> OuterOptimiser:
        """As the fields say."""
        return OuterOptimiser(
            name=self.outer_optimiser,
            learning_rate=self.outer_learning_rate,
            momentum=self.outer_momentum,
            weight_decay=self.outer_weight_decay,
        )

    @property
    def learns_numbers(self) -> bool:
        """Where g reads inputs or features."""
        return True

    def check_task(self, task: Task) -> None:
        """The evidence of ``scorer=evidence`` is the log-odds of a class."""
        super().check_task(task)
        if isinstance(task, Regression) and self.scorer == "evidence":
            msg = "scorer=evidence reads the log-odds of classes, and the targets are numbers: "
            raise InputError(msg + "use scorer=network or scorer=features")

    def check(self, plan: Plan) -> None:
        """Refuse a run in which g would never be updated or the unlabelled phase never start."""
        start = self._weighted_from(plan.total, plan.steps_per_epoch)
        due = range(-(-start // self.interval) * self.interval, plan.total, self.interval)
        if len(due) == 0:
            msg = (
                f"the U-Score would never be updated: {plan.total} steps, warm-up until step "
                f"{start}, then every {self.interval} steps; train longer or lower the interval"
            )
            raise InputError(msg)
        if plan.meta_size < 2:
            msg = f"the meta set has {plan.meta_size} examples, ReVaR needs 2 or more; "
            raise InputError(msg + "raise meta_fraction")
        if not self.uses_unlabelled:
            return
        if plan.unlabelled_size == 0:
            msg = f"unlabelled={self.unlabelled} needs unlabelled inputs, and there are none"
            raise InputError(msg)
        first = self._unlabelled_from(plan.total, plan.steps_per_epoch)
        if not any(step >= first for step in due):
            msg = (
                f"the phase with unlabelled inputs would never start: it begins at step {first} of "
                f"{plan.total} and no meta step follows; lower unlabelled_from"
            )
            raise InputError(msg)

    def build_scorer(self, classifier: Classifier, make: MakeClassifier) -> Scorer:
        """A new g."""
        if self.scorer == "features":
            return FeatureScorer(classifier.n_features)
        if self.scorer == "evidence":
            return EvidenceScorer(classifier.n_features)
        net = make(1, self.scorer_backbone, self.scorer_reduction)
        if self.scorer_pretrained is not None:
            load_pretrained(net, Path(self.scorer_pretrained))
        return NetworkScorer(net, self.scorer_reduction)

    def kind(self, clock: Clock) -> Hashable:
        """Whether examples are weighted, and whether unlabelled inputs take part."""
        weighted = clock.step >= self._weighted_from(clock.total, clock.steps_per_epoch)
        late = clock.step >= self._unlabelled_from(clock.total, clock.steps_per_epoch)
        return weighted, self.uses_unlabelled and late

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i w_i l(y_i, f(x_i))``, unweighted during the warm-up."""
        classifier = networks.classifier
        weighted = clock.step >= self._weighted_from(clock.total, clock.steps_per_epoch)
        due = self.shares_gradient and self.candidates == "train" and self.outer_due(clock)
        # Weights can be computed beside the losses as soon as what g reads is there. What it reads
        # of f takes layers that the losses take too, so that they must be done with them, and where
        # g learns from it, a pass of its own.
        inputs = weighted and self.scorer == "network"
        branch = Branch(batch.x.device) if inputs else None
        features = classifier.forward_features(batch.x)
        logits = classifier.forward_head(features)
        branch = Branch(batch.x.device) if weighted and not (inputs or due) else branch
        losses = task.losses(logits, batch)
        if not weighted:
            return StepResult(average(losses), logits)
        scored: Scored | None = None
        with nullcontext() if branch is None else branch.joined():
            if due:
                # The look-ahead is this step: it must use the weights that are differentiated.
                scored = self._score(networks, batch, asked_about(networks, features))
                weights = self._as_weights(scored).detach()
            else:
                weights = self._weights(networks, batch, features.detach())
        return StepResult(average(weights * losses), logits, weights, scored)

    def outer_due(self, clock: Clock) -> bool:
        """Every ``interval`` steps after the warm-up."""
        first = self._weighted_from(clock.total, clock.steps_per_epoch)
        return clock.step >= first and clock.step % self.interval == 0

    def outer_loss(
        self,
        networks: Networks,
        task: Task,
        batch: Batch,
        feeds: Feeds,
        clock: Clock,
        taken: tuple[StepResult, Taken] | None = None,
    ) -> OuterResult:
        """``-(lr/n) sum_i s_i w_i`` over the candidates, or its proximal form; s are alignments."""
        size = self.meta_batch or len(batch.y)
        if self.candidates == "train":
            meta, held_out = feeds.meta(min(size, feeds.meta_size)), None
        else:
            meta, held_out = halves(feeds, min(size, feeds.meta_size // 2))
        late = clock.step >= self._unlabelled_from(clock.total, clock.steps_per_epoch)
        unlabelled = feeds.unlabelled(len(meta.y)) if self.uses_unlabelled and late else None
        objective = MetaObjective(
            passes=self.passes,
            variance_weight=self.variance_weight,
            space=self.variance_space,
            prediction=self.meta_prediction,
        )
        if self.unlabelled == "only" and unlabelled is not None:
            meta_loss = objective.unlabelled(networks, task, unlabelled, len(meta.y))
        else:
            meta_loss = objective.labelled(networks, task, meta, unlabelled)

        train = losses_of(networks, task, batch, training=True)
        scored: Scored | None = None
        weights: Tensor | None = None
        if taken is not None:
            scored = taken[0].scored
        elif held_out is None:
            # One pass of g: the look-ahead must use the very weights that are differentiated.
            scored = self._score(networks, batch)
            weights = self._as_weights(scored).detach()
        else:
            weights = self._weights(networks, batch)
        fresh = None if held_out is None else losses_of(networks, task, held_out, training=False)
        problem = OneStep(
            losses=train,
            weights=weights,
            lr=clock.lr,
            meta_loss=meta_loss,
            candidates=fresh,
            aligned=upper_layers(networks.classifier) if self.aligned_layers == "upper" else None,
            taken=None if taken is None else taken[1],
            halved=convolution_weights(networks.classifier),
        )
        aligned = alignments(problem, parameters(networks.classifier), self.engine)
        if held_out is not None:
            scored = self._score(networks, held_out)
        assert scored is not None
        return OuterResult(self._surrogate(scored, aligned.values, clock.lr), aligned.meta_loss)

    def weigh(self, networks: Networks, task: Task, batch: Batch) -> Tensor:
        """``g(x_i)``, normalised over these examples."""
        return self._weights(networks, batch)

    def columns(
        self, networks: Networks, x: Tensor, features: Tensor, logits: Tensor
    ) -> dict[str, Tensor]:
        """``uscore``: the logit of g."""
        return uscore_column(networks, x, features, logits)

    def _weighted_from(self, total: int, steps_per_epoch: int) -> int:
        return phase_start(self.warmup, self.warmup_epochs, total, steps_per_epoch)

    def _unlabelled_from(self, total: int, steps_per_epoch: int) -> int:
        fraction, epoch = self.unlabelled_from, self.unlabelled_from_epoch
        return phase_start(fraction, epoch, total, steps_per_epoch)

    def _score(self, networks: Networks, batch: Batch, features: Tensor | None = None) -> Scored:
        """Run g on examples, in training mode and differentiable; f as in `evidence_for`."""
        assert isinstance(networks.scorer, Scorer)
        # Batch norm cannot take its statistics from a single example.
        training = mode(networks.scorer, dropout=True, statistics=len(batch.y) < 2)
        with sharing(len(batch.y)), training:
            scored: Scored = networks.scorer(evidence_for(networks, batch.x, features))
            return scored.of_all()

    def _as_weights(self, scored: Scored) -> Tensor:
        raw = at_least_single(scored.logit).sigmoid()
        return normalise_weights(raw, self.weight_normalisation)

    def _surrogate(self, scored: Scored, alignment: Tensor, lr: Rate) -> Tensor:
        """A scalar whose gradient over g is the hypergradient of these candidates, or proximal."""
        if self.update == "proximal":
            return proximal_surrogate(at_least_single(scored.correction), alignment)
        return linear_surrogate(self._as_weights(scored), alignment, lr)

    def _weights(self, networks: Networks, batch: Batch, features: Tensor | None = None) -> Tensor:
        """[n] weights of a training batch; features of the training pass are used if given."""
        scorer = networks.scorer
        assert isinstance(scorer, Scorer)
        if features is not None and reads_as_they_are(scorer, networks.classifier):
            # In every step: to set its mode takes a small net as long as a layer.
            with torch.no_grad():
                return self._as_weights(scorer.forward(evidence_for(networks, batch.x, features)))
        steady = mode(scorer, dropout=False, statistics=True)
        with torch.no_grad(), sharing(len(batch.y)), steady, folding(scorer):
            scored: Scored = scorer(evidence_for(networks, batch.x, features))
            return self._as_weights(scored.of_all())

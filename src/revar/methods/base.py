"""What a method is: a frozen dataclass that builds networks and turns batches into losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, nn

from revar import fields
from revar.bilevel import Taken
from revar.errors import InputError
from revar.nets.base import Classifier
from revar.types import Batch, Clock, Feeds, Networks, OuterResult, Regression, StepResult, Task

DefaultScore = Literal[
    "fused",
    "uscore",
    "softmax",
    "softmax_entropy",
    "dropout_entropy",
    "dropout_variance",
    "mutual_information",
    "mcd",
]
"""Scores that a run may use without being told to."""


class MakeClassifier(Protocol):
    """Builds further networks for a method, on the same inputs as the classifier, no dropout."""

    def __call__(self, n_outputs: int, name: str | None = None, reduction: int = 1) -> Classifier:
        """A network of the run's backbone, or of another name.

        Args:
            n_outputs: of the network.
            name: of a backbone.
            reduction: images will have a side so many times smaller.

        Raises:
            InputError: no such network, or no such images.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The size of a run, for a method to say before it starts whether it fits.

    Attributes:
        total: steps.
        steps_per_epoch: of these, in one epoch.
        meta_size: examples in the meta set.
        unlabelled_size: unlabelled inputs.
    """

    total: int
    steps_per_epoch: int
    meta_size: int
    unlabelled_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much a method may have to remember.

    Attributes:
        train: training examples.
        meta: examples in the meta set.
        unlabelled: unlabelled inputs.
        n_classes: C.
        weights: numbers in the classifier's state, parameters and statistics.
    """

    train: int
    meta: int
    unlabelled: int
    n_classes: int
    weights: int = 0


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """How to train a classifier that can abstain.

    A subclass is final: to change one, add a field.

    Attributes:
        entropy: beta of the entropy regulariser (Feng et al. 2023), added to the training loss
            of any method: ``beta * mean_i H(p_i)`` over the class probabilities; 0 leaves it out.
        entropy_form: ``entropy`` of the probabilities, or ``logits``: what the authors' code
            computes, ``-sum_c p_c z_c`` with raw logits.
    """

    entropy: float = 0.0
    entropy_form: Literal["entropy", "logits"] = "entropy"

    def __post_init__(self) -> None:
        fields.check(self)
        fields.require(self.entropy >= 0, self, "entropy", "not be negative")

    @property
    def own_score(self) -> str:
        """The score the method is published with; ``own`` is another name for it."""
        return "softmax"

    @property
    def default_score(self) -> str:
        """The score a run uses unless told otherwise."""
        return self.own_score

    @property
    def orientation(self) -> Literal["high", "low", "auto"]:
        """Which end of the learned score is uncertain, for methods that learn one."""
        return "high"

    @property
    def tuned_on(self) -> tuple[str, ...]:
        """Splits that its scores are fitted on: such as nothing else of it has learned from."""
        return ("tune",)

    @property
    def uses_tune(self) -> bool:
        """Whether its default score, or the orientation of g, is fitted on held-out labels."""
        return self.default_score == "fused" or self.orientation == "auto"

    @property
    def uses_meta(self) -> bool:
        """Whether it learns from a meta set; without one, unless told otherwise, all trains."""
        return False

    @property
    def needs_dropout(self) -> bool:
        """Whether training itself takes dropout passes."""
        return False

    @property
    def uses_unlabelled(self) -> bool:
        """Whether unlabelled inputs take part."""
        return False

    @property
    def transductive(self) -> bool:
        """Whether it remembers the unlabelled inputs, so that a run predicts them too."""
        return False

    @property
    def learns_numbers(self) -> bool:
        """Whether its loss has a form for numbers, beside the one for classes."""
        return False

    def check_task(self, task: Task) -> None:
        """Refuse what it cannot learn.

        Raises:
            InputError: numbers to predict, for a method that learns classes.
        """
        if not isinstance(task, Regression):
            return
        if not self.learns_numbers:
            msg = f"{type(self).__name__} learns classes, and the targets are numbers: "
            raise InputError(msg + "use ERM, VR, MetaWeightNet, LearningToReweight or ReVaR")
        if self.entropy > 0:
            raise InputError("entropy is that of class probabilities, and the targets are numbers")

    def check(self, plan: Plan) -> None:  # noqa: B027  (most methods fit every run)
        """Refuse a run in which some phase of the method would never start.

        Raises:
            InputError: with the field to change.
        """

    def build_scorer(self, classifier: Classifier, make: MakeClassifier) -> nn.Module | None:
        """What the outer level learns, for bilevel methods that learn something there."""
        return None

    def build_heads(self, classifier: Classifier, n_classes: int) -> nn.Module | None:
        """What is learned beside the class logits, by the classifier's optimiser."""
        return None

    def build_memory(self, sizes: Sizes) -> nn.Module | None:
        """What is remembered of single examples, as buffers of a module.

        Processes that train together share what is added as `revar.rows.Rows`; any other buffer
        is whole in each of them.
        """
        return None

    @abstractmethod
    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """The loss of one training batch, to be minimised over classifier and heads."""

    def kind(self, clock: Clock) -> Hashable:
        """What of the clock decides which operations a step takes.

        Steps of one kind differ in their batches and their learning rate only, so that a device
        can record one and replay it for the others (`revar.replay`). ``None`` says that no two
        steps need be alike.
        """
        return None

    def finish_epoch(  # noqa: B027  (most methods have nothing to do)
        self, networks: Networks, task: Task, feeds: Feeds, clock: Clock
    ) -> None:
        """What is to be done when every training example was seen once more."""

    def finish(self, networks: Networks) -> None:  # noqa: B027  (most leave the last weights)
        """What is to be done when the budget is spent, before anything is predicted."""

    def columns(
        self,
        networks: Networks,
        x: Tensor,
        features: Tensor,
        logits: Tensor,
    ) -> dict[str, Tensor]:
        """Extra columns of the predictions, each [n]."""
        return {}

    def scores(
        self,
        networks: Networks,
        x: Tensor,
        features: Tensor,
        logits: Tensor,
    ) -> dict[str, Tensor]:
        """The method's own uncertainties by name, each [n], higher is rejected first.

        Args:
            networks: trained, in evaluation mode.
            x: [n, ...] normalised inputs.
            features: of the trunk on x.
            logits: [n, C] of the head on them.
        """
        return {}

    def recall(self, networks: Networks, split: str, logits: Tensor) -> dict[str, Tensor]:
        """Further scores of examples known from training, by what was remembered, each [n].

        Args:
            networks: trained, with their memory.
            split: ``train``, ``meta``, any other part of the data, or ``unlabelled``.
            logits: [n, C] of all its examples, in its order.
        """
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterOptimiser:
    """How the scorer is updated."""

    name: Literal["adam", "sgd"]
    learning_rate: float
    momentum: float
    weight_decay: float


@dataclass(frozen=True, kw_only=True)
class Scoring(Method):
    """A method with a scorer that has an optimiser of its own."""

    @property
    @abstractmethod
    def outer(self) -> OuterOptimiser:
        """How the scorer is updated."""


@dataclass(frozen=True, kw_only=True)
class Taught(Scoring):
    """A method that teaches its scorer in every step (`StepResult.teaching`).

    The learning rate of the scorer follows the schedule of the classifier's.
    """


@dataclass(frozen=True, kw_only=True)
class Bilevel(Scoring):
    """A method with an outer level: a scorer updated through a look-ahead of the classifier."""

    @property
    def uses_meta(self) -> bool:
        """The outer level learns from it."""
        return True

    @abstractmethod
    def outer_due(self, clock: Clock) -> bool:
        """Whether the scorer is updated in this step."""

    @abstractmethod
    def weigh(self, networks: Networks, task: Task, batch: Batch) -> Tensor:
        """[n] weights the method gives to examples by now, by deterministic passes."""

    @property
    def shares_gradient(self) -> bool:
        """Whether the look-ahead is the training step itself; the scorer is then updated after."""
        return False

    @abstractmethod
    def outer_loss(
        self,
        networks: Networks,
        task: Task,
        batch: Batch,
        feeds: Feeds,
        clock: Clock,
        taken: tuple[StepResult, Taken] | None = None,
    ) -> OuterResult:
        """The loss of one meta step, to be minimised over the scorer.

        Args:
            networks: all of them.
            task: what is learned.
            batch: of the training step.
            feeds: of meta examples and unlabelled inputs.
            clock: of the training step.
            taken: what the training step came to, where the method shares its gradient.
        """


def phase_start(fraction: float, epochs: int | None, total: int, steps_per_epoch: int) -> int:
    """The step at which a phase starts: a fraction of the budget, or an epoch where one is given.

    >>> phase_start(0.25, None, 120, 12), phase_start(0.25, 7, 120, 12)
    (30, 84)
    """
    return round(fraction * total) if epochs is None else epochs * steps_per_epoch

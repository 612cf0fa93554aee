"""What a method is: a frozen dataclass that builds networks and turns batches into losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from revar.nets.base import Classifier
from revar.nets.scorer import Scorer
from revar.types import Batch, Clock, Feeds, Networks, OuterResult, StepResult, Task


class MakeClassifier(Protocol):
    """Builds further networks for a method, on the same inputs as the classifier, no dropout."""

    def __call__(self, n_outputs: int, name: str | None = None) -> Classifier:
        """A network of the run's backbone, or of another name."""


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


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """How to train a classifier that can abstain.

    A subclass is final: to change one, wrap it or add a field.
    """

    @property
    def default_score(self) -> str:
        """The score a run uses unless told otherwise."""
        return "softmax"

    @property
    def orientation(self) -> Literal["high", "low", "auto"]:
        """Which end of the learned score is uncertain, for methods that learn one."""
        return "high"

    @property
    def needs_dropout(self) -> bool:
        """Whether training itself takes dropout passes."""
        return False

    @property
    def uses_unlabelled(self) -> bool:
        """Whether unlabelled inputs take part."""
        return False

    def check(self, plan: Plan) -> None:  # noqa: B027  (most methods fit every run)
        """Refuse a run in which some phase of the method would never start.

        Raises:
            InputError: with the field to change.
        """

    def build_scorer(self, classifier: Classifier, make: MakeClassifier) -> Scorer | None:
        """A new scorer for this classifier, for methods that learn one."""
        return None

    @abstractmethod
    def loss(self, networks: Networks, task: Task, batch: Batch, clock: Clock) -> StepResult:
        """The loss of one training batch, to be minimised over the classifier."""

    def columns(
        self,
        networks: Networks,
        x: Tensor,
        features: Tensor,
        logits: Tensor,
    ) -> dict[str, Tensor]:
        """Extra columns of the predictions, each [n]."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterOptimiser:
    """How the scorer is updated."""

    name: Literal["adam", "sgd"]
    learning_rate: float
    momentum: float
    weight_decay: float


@dataclass(frozen=True, kw_only=True)
class Bilevel(Method):
    """A method with an outer level: a scorer updated through a look-ahead of the classifier."""

    @property
    @abstractmethod
    def outer(self) -> OuterOptimiser:
        """How the scorer is updated."""

    @abstractmethod
    def outer_due(self, clock: Clock) -> bool:
        """Whether the scorer is updated before this step."""

    @abstractmethod
    def outer_loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> OuterResult:
        """The loss of one meta step, to be minimised over the scorer."""


def phase_start(fraction: float, epochs: int | None, total: int, steps_per_epoch: int) -> int:
    """The step at which a phase starts: a fraction of the budget, or an epoch where one is given.

    >>> phase_start(0.25, None, 120, 12), phase_start(0.25, 7, 120, 12)
    (30, 84)
    """
    return round(fraction * total) if epochs is None else epochs * steps_per_epoch

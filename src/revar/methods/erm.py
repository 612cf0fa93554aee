"""Empirical risk minimisation: the baseline of every comparison.

Softmax response (Geifman and El-Yaniv 2017) and Monte-Carlo dropout (Gal and Ghahramani 2016)
are this training with different scores.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Self

from revar.functional import average
from revar.methods.base import Method
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task


@dataclass(frozen=True, kw_only=True)
class ERM(Method):
    """Minimise the mean loss of the training set."""

    @classmethod
    def with_entropy(cls) -> Self:
        """Entropy regularisation on plain training (Feng et al. 2023), ``--method entropy``."""
        return cls(entropy=0.01)

    @property
    def learns_numbers(self) -> bool:
        """By squared error."""
        return True

    def kind(self, clock: Clock) -> Hashable:
        """All steps are alike."""
        return "every"

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """``(1/n) sum_i l(y_i, f(x_i))``"""
        logits = networks.classifier(batch.x)
        return StepResult(average(task.losses(logits, batch)), logits)

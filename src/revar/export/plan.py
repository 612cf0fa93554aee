"""Which score decides in the graph, and what cannot be in there."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from revar.errors import InputError
from revar.model import Model

Rule = Literal["threshold", "answer everything", "abstain always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the graph of a model computes.

    Attributes:
        score: that says when to abstain.
        passes: dropout heads in the graph; 0 where the score reads none.
        rule: how a decision is made.
        threshold: accepted iff the uncertainty is at most this; ``None`` for the other rules.
        notes: what differs from the run, for people.
    """

    score: str
    passes: int
    rule: Rule
    threshold: float | None
    notes: tuple[str, ...] = ()

    @property
    def limit(self) -> float:
        """The threshold, or the number that makes the same comparison follow another rule."""
        if self.threshold is not None:
            return self.threshold
        return sys.float_info.max if self.rule == "answer everything" else float("-inf")


def plan(model: Model) -> Plan:
    """Decide what the graph computes.

    Raises:
        InputError: the threshold belongs to a score that cannot be exported.
    """
    stored, fitted = model.threshold, model.fitted
    score = fitted.named(stored.score if stored else None)
    rule: Rule = "answer everything"
    if stored is not None:
        rule = "abstain always" if stored.threshold is None else "threshold"
    notes, passes = [], 0
    if model.needs(score).dropout:
        reason = _no_heads(model)
        if reason and stored is not None:
            msg = (
                f'the threshold is on "{score}", and {reason}: '
                f"revar select RUN --on DATA --score {_instead(model)} first"
            )
            raise InputError(msg)
        if reason:
            notes.append(f'the default score is "{score}", and {reason}: softmax is used instead')
            score = "softmax"
        else:
            passes = model.recipe.test_passes
    if stored is None:
        notes.append("no threshold is set, so everything is accepted: revar select RUN first")
    return Plan(
        score=score, passes=passes, rule=rule, notes=tuple(notes),
        threshold=None if stored is None else stored.threshold,
    )  # fmt: skip


def _no_heads(model: Model) -> str:
    """Why the dropout passes cannot be in the graph; nothing where they can."""
    sampler = model.networks.sampler
    if sampler is None or model.recipe.test_passes == 0:
        return "the run takes no dropout passes"
    if not sampler.shared_trunk:
        return "dropout before other layers than the last cannot be exported"
    return ""


def _instead(model: Model) -> str:
    return "uscore" if model.fitted.own == "uscore" else "softmax"

"""A cell: one training run that tables ask about, and nothing that it does not depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from revar import fields
from revar.recipe import Budget, Recipe, make_method, with_settings

VERSION = 1
"""Raised when the same cell would no longer give the same figures: when a default changes, say.

Fields that are new, and by default change nothing, leave finished cells as good as they were. A
test keeps the defaults of all methods, so that none changes unseen.
"""


AS_PUBLISHED: dict[str, dict[str, str]] = {
    "revar": {"interval": "5", "meta_batch": "512", "shares_gradient": "false"},
}
"""Defaults that have changed since the tables were made, by method: tables keep the earlier ones,
so that cells trained from now on stand beside those that were published."""


def recipe_of(method: str) -> Recipe:
    """How tables train a method where they say nothing else.

    Raises:
        InputError: no such method.
    """
    return with_settings(Recipe(method=make_method(method)), AS_PUBLISHED.get(method, {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChoice:
    """What a cell learns from and is tested on.

    Attributes:
        name: a name of ``revar list datasets``, or ``generated``.
        train: at most so many training examples, all classes alike; ``None`` takes all.
        tests: test sets by name: those of the data, one with a corruption, ``test+fog:3``, or
            another data set of images of the same size, ``imagenet-a``, ``imagenet-c:fog-3``.
        test: at most so many examples of each.
        label_noise: ``KIND:RATE`` on the training labels, or none.
        clean_meta: take the meta set off before the noise.
        meta: a part or test set of the data that serves as meta set, instead of some training
            examples; a test set is then not scored.
        unlabelled: test sets, a tenth of each of which is given without labels and not scored;
            of the same images under several corruptions the same tenth.
    """

    name: str
    train: int | None = None
    tests: tuple[str, ...] = ("test",)
    test: int | None = None
    label_noise: str | None = None
    clean_meta: bool = False
    meta: str | None = None
    unlabelled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            size = getattr(self, name)
            fields.require(size is None or size >= 2, self, name, "be at least 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run.

    Attributes:
        data: what it learns from.
        method: a name of ``revar list methods``.
        settings: further fields by name, as typed after ``--set``.
        backbone: of the classifier.
        epochs: passes over the training data.
        seed: of data draws and run.
        timed: its time is asked for, so that nothing may train beside it.
    """

    data: DataChoice
    method: str
    settings: tuple[tuple[str, str], ...] = ()
    backbone: str = "auto"
    epochs: int = 30
    seed: int = 0
    timed: bool = False

    def seeded(self, seed: int) -> Cell:
        """The same with another seed."""
        return replace(self, seed=seed)

    def recipe(self) -> Recipe:
        """How it is trained.

        Raises:
            InputError: no such method or field.
        """
        plain = replace(
            recipe_of(self.method),
            backbone=self.backbone,
            budget=Budget(epochs=self.epochs),
            seed=self.seed,
        )
        return with_settings(plain, dict(self.settings))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        plain: dict[str, Any] = fields.to_json(self)
        return {"version": VERSION, **plain}

    @property
    def digest(self) -> str:
        """Its name in a store: of what was asked, and of `VERSION` for what was not."""
        return digest_of(self.to_json())


def digest_of(asked: Mapping[str, Any]) -> str:
    """The name of a cell by its plain JSON values."""
    text = json.dumps(asked, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=10).hexdigest()

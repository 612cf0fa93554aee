"""A recipe: everything chosen before a run starts, to and from JSON."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from revar import fields
from revar.data.published import VARIABLE
from revar.errors import InputError, unknown
from revar.methods.base import Method
from revar.nets.base import Dropout
from revar.nets.finetuning import TIMM
from revar.registry import METHODS, find, load
from revar.splits import SplitPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long and how to optimise; the same for every method that is compared.

    Attributes:
        epochs: passes over the training split.
        batch_size: ``None`` takes a 16th of the training split, a power of two in 16..128.
        optimiser: of the classifier.
        learning_rate: at its highest; ``None`` is 0.1 for sgd, 0.002 for adamw, and a tenth of it
            where a pretrained trunk is trained on.
        momentum: of sgd (Nesterov).
        weight_decay: of the classifier.
        schedule: ``cosine`` to zero, ``step`` (a tenth after 1/2 and after 3/4), ``constant``.
        lr_warmup: share of the budget over which the learning rate rises from zero.
        gradient_clip: largest norm of the classifier's gradient; ``None`` leaves it.
        augment: of images: ``auto``, ``none``, ``shift`` or ``shift+flip``.
        precision: ``auto`` is bfloat16 autocast on GPUs, float32 elsewhere.
        loader: ``resident`` keeps all data in memory, on the GPU if there is one; ``stream`` reads
            and decodes it as it is needed; ``auto`` by its size. All give the same batches.
        workers: processes that decode for ``stream``; ``None`` takes as many as there are cores,
            eight at most.
        deterministic: use only GPU kernels that repeat bit by bit; some are slower.
        micro_batch: rows that the trunk computes at a time, to save memory; what it keeps of them
            is computed again in the backward pass. The gradient is the whole batch's; batch norm
            takes its statistics from the parts. ``None`` is all at once.
        recompute: keep only the inputs of the blocks of the classifier, to save memory; what lies
            inside is computed again in the backward pass. The results are the same, batch norm
            included; a step takes about a third more time. Not so for a block that draws random
            numbers outside torch or changes state of its own in Python; a net that writes into a
            block's input after calling it fails with torch's message about an inplace operation.
        graphs: on a GPU, record steps that are alike once and replay them as CUDA graphs:
            ``auto`` for every net but a module of your own, which may decide something on the
            host; ``always`` or ``never``. The results are the same.
    """

    epochs: int = 30
    batch_size: int | None = None
    optimiser: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float | None = None
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    lr_warmup: float = 0.05
    gradient_clip: float | None = 5.0
    augment: Literal["auto", "none", "shift", "shift+flip"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    loader: Literal["auto", "resident", "stream"] = "auto"
    workers: int | None = None
    deterministic: bool = False
    micro_batch: int | None = None
    recompute: bool = False
    graphs: Literal["auto", "always", "never"] = "auto"

    def __post_init__(self) -> None:
        fields.check(self)
        rows = self.micro_batch
        # Split evenly, parts then have two rows or more, which batch norm needs.
        fields.require(rows is None or rows >= 4, self, "micro_batch", "be at least 4")
        fields.require(self.epochs >= 1, self, "epochs", "be at least 1")
        fields.require(
            self.batch_size is None or self.batch_size >= 2, self, "batch_size", "be >= 2"
        )
        lr = self.learning_rate
        fields.require(lr is None or lr > 0, self, "learning_rate", "be positive")
        clip = self.gradient_clip
        fields.require(clip is None or clip > 0, self, "gradient_clip", "be positive")
        fields.require(0 <= self.lr_warmup < 1, self, "lr_warmup", "be in [0, 1)")
        for name in ("momentum", "weight_decay"):
            fields.require(getattr(self, name) >= 0, self, name, "not be negative")
        fields.require(
            self.workers is None or self.workers >= 0, self, "workers", "not be negative"
        )

    def resolved(self, n_train: int, *, gentle: bool = False) -> Budget:
        """The same with nothing left open, for a training split of this size.

        Args:
            n_train: examples.
            gentle: a tenth of the usual learning rate, not to undo what a trunk has learned.
        """
        batch = self.batch_size
        if batch is None:
            batch = 16
            while batch < 128 and 2 * batch * 16 <= n_train:
                batch *= 2
        default_rate = (0.1 if self.optimiser == "sgd" else 0.002) / (10 if gentle else 1)
        return replace(self, batch_size=batch, learning_rate=self.learning_rate or default_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the classifier starts from.

    Attributes:
        pretrained: ``None`` for new weights; a ``.safetensors`` file or torch state dict, of which
            ``REVAR_DATA/...`` is one in the folder of data, wherever that is; ``timm`` for the
            weights timm has for the backbone, which it takes from a network.
        frozen: train the head only, and what a method learns beside it.
        keep_statistics: batch norm goes on with the statistics of the pretrained weights. With
            few examples those of small batches undo more than they adapt; ``False`` is for long
            runs on many images of another kind.
        layer_decay: factor on the learning rate from each layer of the trunk to the one below;
            the head learns at the full rate.
        sha256: of the file; ``None`` is filled in when a run starts.
    """

    pretrained: str | None = None
    frozen: bool = False
    keep_statistics: bool = True
    layer_decay: float = 1.0
    sha256: str | None = None

    def __post_init__(self) -> None:
        fields.check(self)
        fields.require(0 < self.layer_decay <= 1, self, "layer_decay", "be in (0, 1]")
        if self.frozen:
            fields.require(self.layer_decay == 1, self, "layer_decay", "be 1 with a frozen trunk")
            kept = self.keep_statistics
            fields.require(kept, self, "keep_statistics", "be true with a frozen trunk")

    @property
    def file(self) -> Path | None:
        """The file, if it starts from one."""
        if self.pretrained in (None, TIMM):
            return None
        path = Path(self.pretrained)
        if path.parts[:1] != (VARIABLE,) or VARIABLE not in os.environ:
            return path
        return Path(os.environ[VARIABLE], *path.parts[1:])

    @property
    def statistics_are_kept(self) -> bool:
        """Whether there are statistics worth keeping, and they are to be kept."""
        return self.frozen or (self.pretrained is not None and self.keep_statistics)

    def resolved(self) -> Start:
        """The same with the checksum of its file.

        Raises:
            InputError: there is no such file, or it is not the one it was.
        """
        if self.file is None:
            return self
        if not self.file.is_file():
            raise InputError(f'no weights file at "{self.file}": give a file, or timm')
        with self.file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if self.sha256 not in (None, found):
            msg = f'"{self.file}" has SHA-256 {found}, the recipe was made with {self.sha256}'
            raise InputError(msg)
        return replace(self, sha256=found)


_ABSENT: dict[str, dict[str, Any]] = {
    name: {"shares_gradient": False} for name in ("revar", "revar-paper", "ibr")
}
"""What fields mean that a stored recipe is too old to have, where the default is something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything chosen: with the data and a machine, it decides every bit of a run.

    Attributes:
        method: how to train.
        backbone: name of the classifier's network; ``custom`` for a module of the user's.
        dropout: where it sits and how much.
        start: what the classifier starts from.
        budget: how long and how to optimise.
        splits: what is taken off the training data.
        class_weight: ``balanced``, or a factor per class in the order of the classes, or none.
        test_passes: T dropout passes at scoring time; 0 takes none.
        seed: of everything random.
    """

    method: Method
    backbone: str = "auto"
    dropout: Dropout = Dropout()
    start: Start = Start()
    budget: Budget = Budget()
    splits: SplitPlan = SplitPlan()
    class_weight: Literal["balanced"] | tuple[float, ...] | None = None
    test_passes: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise InputError(f"method is {self.method!r}: a Method object is needed")
        fields.check(self)
        fields.require(0 <= self.test_passes != 1, self, "test_passes", "be 0, or 2 and more")
        fields.require(0 <= self.seed < 2**63, self, "seed", "be in [0, 2^63)")
        weights = self.class_weight
        if isinstance(weights, tuple):
            fine = all(math.isfinite(w) and w >= 0 for w in weights) and any(weights)
            fields.require(fine, self, "class_weight", "be finite, not negative and not all zero")
        start = self.start
        if start.frozen and start.pretrained is None and self.backbone != "custom":
            raise InputError("frozen=true without pretrained weights: the trunk would stay random")

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        data: dict[str, Any] = fields.to_json(self)
        if self.start == Start():
            # As it was written before there was a choice, so that such runs are still the same.
            del data["start"]
        return {**data, "method": {"name": method_name(self.method), **data["method"]}}

    @classmethod
    def from_json(cls, data: dict[str, Any], own: type[Method] | None = None) -> Recipe:
        """The recipe that `to_json` wrote.

        Args:
            data: of it.
            own: the class of its method, where that is not registered.

        Raises:
            InputError: a missing, unknown or wrong value.
        """
        values = dict(data)
        try:
            method = dict(values.pop("method"))
            name = method.pop("name")
            kind = _class_of(name, own)
            chosen = fields.from_json(kind, {**_ABSENT.get(name, {}), **method})
            nested: dict[str, Any] = {
                key: fields.from_json(kind, values.pop(key))
                for key, kind in (("dropout", Dropout), ("budget", Budget), ("splits", SplitPlan))
            }
            nested["start"] = fields.from_json(Start, values.pop("start", {}))
            weights = values.pop("class_weight")
            if isinstance(weights, list):
                weights = tuple(weights)
            return cls(method=chosen, class_weight=weights, **nested, **values)
        except (KeyError, TypeError) as error:
            raise InputError(f"this is no recipe of ours: {error}") from error

    @property
    def digest(self) -> str:
        """A short name for this recipe: equal recipes have equal ones."""
        text = json.dumps(self.to_json(), sort_keys=True).encode()
        return hashlib.blake2b(text, digest_size=8).hexdigest()


def make_method(method: str | Method) -> Method:
    """A method by its registered name, or the object itself."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise InputError(f"method is {method!r}: a name or a Method object is needed")
    made: Method = load(find("method", method, METHODS).target)()
    return made


def method_class(name: str) -> type[Method]:
    """The class behind a registered name.

    Raises:
        InputError: not registered, so its class cannot be known.
    """
    return type(make_method(name))


def is_registered(name: str) -> bool:
    """Whether a method is called so."""
    return any(entry.name == name for entry in METHODS)


def _class_of(name: str, own: type[Method] | None) -> type[Method]:
    """The class of a stored method; one's own is stored by the name of its class."""
    if own is None:
        return method_class(name)
    if not isinstance(own, type):
        raise InputError(f"method is {own!r}: the class of a Method is needed")
    if (method_class(name) is not own) if is_registered(name) else (own.__name__ != name):
        raise InputError(f"method is {own.__name__}, but the run was trained with {name}")
    return own


def method_name(method: Method) -> str:
    """The registered name of a method: of an equal one, else of one of its class."""
    same_class = None
    for entry in METHODS:
        made = make_method(entry.name)
        if made == method:
            return entry.name
        if type(made) is type(method):
            same_class = same_class or entry.name
    if same_class is None:
        return type(method).__name__
    return same_class


def with_settings(recipe: Recipe, settings: dict[str, str]) -> Recipe:
    """A recipe with fields replaced by what a user typed: ``{"interval": "5"}``.

    A field is looked for in the method, the budget, the dropout (``dropout_rate``,
    ``dropout_placement``), the start (``pretrained``, ``frozen``, ...), the splits
    (``meta_fraction``, ``tune_fraction``) and the recipe (``test_passes``, ``class_weight``).

    Raises:
        InputError: no such field, or a value of the wrong type.
    """
    homes: dict[str, tuple[str, str]] = {}
    for name in fields.hints(type(recipe.method)):
        homes[name] = ("method", name)
    for name in fields.hints(Budget):
        homes[name] = ("budget", name)
    homes.update(
        dropout_rate=("dropout", "rate"),
        dropout_placement=("dropout", "placement"),
        meta_fraction=("splits", "meta"),
        tune_fraction=("splits", "tune"),
        pretrained=("start", "pretrained"),
        frozen=("start", "frozen"),
        keep_statistics=("start", "keep_statistics"),
        layer_decay=("start", "layer_decay"),
        test_passes=("", "test_passes"),
        class_weight=("", "class_weight"),
    )
    # Together, because fields that belong together may be typed in any order.
    changes: dict[str, dict[str, Any]] = {}
    for name, text in settings.items():
        if name not in homes:
            raise unknown("field", name, sorted(homes))
        owner, field_name = homes[name]
        part = getattr(recipe, owner) if owner else recipe
        changes.setdefault(owner, {})[field_name] = fields.parse(type(part), field_name, text)
    own = changes.pop("", {})
    parts = {owner: replace(getattr(recipe, owner), **new) for owner, new in changes.items()}
    return replace(recipe, **parts, **own)


def completed(there: dict[str, Any]) -> dict[str, Any]:
    """A stored recipe with the fields that are younger than it, as it would be written now.

    One that this version cannot read is left as it is: then it is another one in any case.
    """
    apart = {key: value for key, value in there.items() if key in ("format", "data")}
    known = {key: value for key, value in there.items() if key not in apart}
    try:
        return {**apart, **Recipe.from_json(known).to_json()}
    except InputError:
        return there


def first_difference(there: dict[str, Any], here: dict[str, Any], path: str = "") -> str:
    """The first field two recipes differ in, as a sentence, or nothing.

    What something is called comes first, then method, splits and seed, from which other fields
    follow, then the data, from which the budget may.
    """
    first = {"name": 0, "method": 1, "splits": 2, "seed": 2, "data": 3}
    for key in sorted({*there, *here}, key=lambda key: (first.get(key, 4), key)):
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found = first_difference(old, new, f"{path}{key}.")
            if found:
                return found
        elif old != new:
            return f"its {path}{key} is {old!r}, not {new!r}"
    return ""

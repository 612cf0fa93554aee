"""What the study of the U-Score asks: six tasks, ways to train, and the runs they come to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from revar.errors import InputError, unknown
from revar.registry import METHODS, find
from revar.tables.places import Setting

CLEAN_META = "+clean-meta"
"""Ends the name of a folder whose runs had a clean meta set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Runs on one data set.

    Attributes:
        place: where the tables of the paper ask about it (`revar.tables.places`), or how it is
            trained if they do not.
        sets: test sets to score, by the place that names each; without a place, by their own names.
        domains: data sets all of which is a further test set, by what it is called here.
        noisy: whether its training labels are.
        seconds: of a plain run, with fifteen side by side on one GPU.
    """

    place: str | Setting
    sets: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    noisy: bool = False
    seconds: float = 60.0


FOLDERS: dict[str, Folder] = {
    "cifar10": Folder(place="cifar100", sets={"test": "cifar100"}),
    "cifar10n-worst": Folder(place="clothing1m", sets={"test": "clothing1m"}, noisy=True),
    "cifar10-instance20": Folder(place="inst-cifar100", sets={"test": "inst-cifar100"}, noisy=True),
    "tiny-imagenet-100": Folder(place="imagenet-100", sets={"test": "imagenet-100"}, seconds=42),
    "eyepacs": Folder(
        place="eyepacs",
        sets={"test": "eyepacs", "aptos": "aptos", "deepdrid": "deepdrid"},
        seconds=45,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One question.

    Attributes:
        folder: of its runs.
        split: the set of theirs that it asks about.
        goal: to be better than softmax response, no worse by more than the margin, or just told.
        margin: in points of AUARC.
    """

    folder: str
    split: str = "test"
    goal: Literal["superior", "not inferior", "none"]
    margin: float = 0.0


TASKS: dict[str, Task] = {
    "cifar10": Task(folder="cifar10", goal="not inferior", margin=0.1),
    "cifar10n-worst": Task(folder="cifar10n-worst", goal="superior"),
    "cifar10-instance20": Task(folder="cifar10-instance20", goal="superior"),
    "tiny-imagenet-100": Task(folder="tiny-imagenet-100", goal="not inferior", margin=0.1),
    "eyepacs": Task(folder="eyepacs", goal="not inferior", margin=1.0),
    "eyepacs-aptos": Task(folder="eyepacs", split="aptos", goal="superior"),
}
BESIDE_TASKS: dict[str, Task] = {
    "eyepacs-deepdrid": Task(folder="eyepacs", split="deepdrid", goal="none"),
    **{
        f"{name}{CLEAN_META}": Task(folder=f"{name}{CLEAN_META}", goal="none")
        for name, folder in FOLDERS.items()
        if folder.noisy
    },
}
"""Told beside the six, and no part of their goal."""

BESIDE: dict[str, str] = {
    "history": "four passes",
    "revar-paper": "a second network",
    "ibr": "a second network",
}
"""Methods that cost more than 1.1 passes at inference, and why."""
WHOLE = "erm-all"
"""Plain training on everything: train, meta and tune."""
WITH_META = "+meta"
"""Ends the name of a method that is trained on train and meta."""
ON_ALL = "-all"
"""Ends the name of a method that is trained on train, meta and tune; none is left to fuse on."""
MEMBERS = tuple(f"erm-m{number}" for number in range(1, 5))
"""Plain training on the data of ``erm`` from other weights: an ensemble of five with it."""
AUGMENTED = "tta_softmax"
"""Softmax response of the mean over augmented copies, as `revar.augmented` names it."""
COPIES = 8
"""Beside the image itself: what `revar.model.Model.predict_augmented` takes unless told."""
_AUGMENTED_WAYS = (
    "erm", "trajectory", f"erm{WITH_META}", f"trajectory{WITH_META}", WHOLE, f"trajectory{ON_ALL}",
)  # fmt: skip
_SLOWER = {
    "mwn": 4.8, "l2r": 3.6, "fsr": 2.5, "fsr-full": 2.7, "revar": 2.2, "vr": 2.1, "adafocal": 1.5,
    "revar-paper": 1.8, "ibr": 1.8, "trajectory": 1.2,
}  # fmt: skip
"""Time of a run as a multiple of plain training, roughly: what takes long begins early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to train.

    Attributes:
        name: of it, in files and tables.
        method: a name of ``revar list methods``.
        settings: further fields, as typed after ``--set``.
        whole: train on train, meta and tune together.
        with_meta: train on train and meta together, as a method can that needs no meta set.
        member: other weights and batches on the same data; 0 are those of the seed.
    """

    name: str
    method: str
    settings: tuple[tuple[str, str], ...] = ()
    whole: bool = False
    with_meta: bool = False
    member: int = 0

    @property
    def in_ensemble(self) -> bool:
        """Whether its class probabilities are kept, to be averaged."""
        return self.member > 0 or self.name == "erm"

    @property
    def augmented(self) -> bool:
        """Whether its test sets are also scored by the mean over augmented copies."""
        return self.name in _AUGMENTED_WAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run.

    Attributes:
        folder: a name of `FOLDERS`, or of another one.
        way: how to train.
        seed: of data draws and run.
        clean_meta: whether the meta set of noisy data has the true labels.
        scale: of the tables of the paper.
        other: what that other folder holds.
    """

    folder: str
    way: Way
    seed: int
    clean_meta: bool = False
    scale: str = "small"
    other: Folder | None = field(default=None, compare=False)

    @property
    def about(self) -> Folder:
        """What its folder holds."""
        return FOLDERS[self.folder] if self.other is None else self.other

    def file(self, out: Path) -> Path:
        """What it is kept in."""
        ending = CLEAN_META if self.clean_meta else ""
        return out / f"{self.folder}{ending}" / f"{self.way.name}-{self.seed}.npz"

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        whole = 1.25 if self.way.whole else 1.125 if self.way.with_meta else 1.0
        return self.about.seconds * _SLOWER.get(self.way.method, 1.0) * whole

    def __str__(self) -> str:
        ending = CLEAN_META if self.clean_meta else ""
        return f"{self.folder}{ending} {self.way.name} {self.seed}"


def way_named(name: str) -> Way:
    """A method of the registry with its defaults, the same +meta or -all, or an ensemble's member.

    Raises:
        InputError: there is none.
    """
    if name in MEMBERS:
        return Way(name=name, method="erm", member=1 + MEMBERS.index(name))
    whole, with_meta = name.endswith(ON_ALL), name.endswith(WITH_META)
    method = find("method", name.removesuffix(ON_ALL).removesuffix(WITH_META), METHODS).name
    return Way(name=name, method=method, whole=whole, with_meta=with_meta)


def standard_ways() -> list[Way]:
    """Every comparable method of the registry, plain training on everything, and members."""
    methods = [entry.name for entry in METHODS if entry.name not in BESIDE]
    return [way_named(name) for name in (*methods, WHOLE, *MEMBERS)]


def variants(file: Path) -> list[Way]:
    """Ways from JSON: ``{"early": {"method": "trajectory", "start": 0.2}}``.

    Raises:
        InputError: it cannot be read, or has a way without a method or with an odd name.
    """
    try:
        found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f'"{file}" holds no variants: {error}') from error
    ways = []
    for name, fields in found.items():
        if not re.fullmatch(r"[A-Za-z0-9][\w.+=-]*", name):
            raise InputError(f'"{file}" names a way "{name}": use letters, digits and ._+=-')
        if any(name == way.name for way in standard_ways()) or name in BESIDE:
            raise InputError(f'"{file}" names a way "{name}", which is one of the standard ways')
        if "method" not in fields:
            raise InputError(f'"{file}": the way "{name}" has no "method"')
        settings = tuple((key, _text(value)) for key, value in fields.items() if key != "method")
        method = find("method", fields["method"], METHODS).name
        ways.append(Way(name=name, method=method, settings=settings))
    return ways


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def listed(file: Path, *, clean_meta: bool, scale: str) -> list[Job]:
    """Runs of a list, in its order: lines such as ``eyepacs fsr-full 3``.

    Raises:
        InputError: it cannot be read, or a line names no run.
    """
    try:
        lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f'"{file}" holds no list of runs: {error}') from error
    jobs: dict[Job, None] = {}
    for number, words in enumerate(lines, 1):
        if len(words) != 3 or words[0] not in FOLDERS or not words[2].isdecimal():
            line = " ".join(words)
            msg = f'"{file}", line {number}: "{line}" is not FOLDER WAY SEED, a folder being one of'
            raise InputError(f"{msg} {', '.join(FOLDERS)}")
        folder, way, seed = words
        job = Job(
            folder=folder, way=way_named(way), seed=int(seed), clean_meta=clean_meta, scale=scale
        )
        jobs[job] = None
    if not jobs:
        raise InputError(f'"{file}" is empty')
    return list(jobs)


def jobs_of(
    tasks: Sequence[str], ways: Sequence[Way], seeds: int, *, clean_meta: bool, scale: str
) -> list[Job]:
    """All runs, those of the first seed first and of each seed the longest first.

    So an early end leaves whole seeds, and no worker is left with a long run at the end. Members
    of ensembles see no meta set, so that there are none for one with the true labels.

    Args:
        tasks: names of `TASKS`; two that share runs have them once.
        ways: how to train.
        seeds: how many.
        clean_meta: with the true labels in the meta set; tasks without noise are then left out.
        scale: of the tables of the paper.

    Raises:
        InputError: no such task, no seeds, or no run at all.
    """
    for name in tasks:
        if name not in TASKS:
            raise unknown("task", name, TASKS)
    if seeds < 1:
        raise InputError(f"--seeds must be at least 1, it is {seeds}")
    folders = list(dict.fromkeys(TASKS[name].folder for name in tasks))
    jobs = [
        Job(folder=folder, way=way, seed=seed, clean_meta=clean_meta, scale=scale)
        for seed in range(seeds)
        for folder in folders
        for way in ways
        if (FOLDERS[folder].noisy or not clean_meta) and not (way.member and clean_meta)
    ]
    if not jobs:
        raise InputError("nothing to run: --clean-meta is for tasks with noisy labels")
    return sorted(jobs, key=lambda job: (job.seed, -job.seconds))

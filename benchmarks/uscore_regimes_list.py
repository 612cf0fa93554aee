"""What is changed, one thing at a time, in the study of where the paper's U-Score might work.

The base makes some 28 updates of g, in steps so small that g hardly moves; the paper makes
thousands, and so do the two longest schedules here. There is a second base, ``moving``, that
updates g more often and by Adam, and what can only matter once g moves is changed from there, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from revar import fields
from revar.tables.build import cell_at
from revar.tables.cell import Cell, DataChoice
from revar.tables.places import Place, Setting, scale_of
from revar.tables.ways import Settings, Way

_SMALL_NETS = {"resnet18-cifar": "convnet", "resnet50-cifar": "resnet20"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """One change to the base, or to ``moving``.

    Attributes:
        name: of it.
        group: what is changed.
        method: a name of ``revar list methods``.
        settings: further fields, as typed after ``--set``.
        data: changed fields of `DataChoice`.
        place: ``cifar`` (5,000 images), ``eyepacs``, ``fashion`` (all 60,000 images, perceptrons of
            two layers: cheap enough for thousands of updates) or ``generated``.
        backbone: of f, if another.
        epochs: factor on them.
        start: what g starts from: new weights, those of EfficientNet-Lite0 (with ``features`` its
            last layer alone learns), or those of a plain classifier of the same data.
        corrupted: whether corrupted test sets are scored, too.
        seeds: how many.
        cost: about, in runs like the base.
    """

    name: str
    group: str
    method: str = "revar-paper"
    settings: Settings = ()
    data: tuple[tuple[str, Any], ...] = ()
    place: str = "cifar"
    backbone: str | None = None
    epochs: float = 1.0
    start: Literal["new", "lite0", "lite0-features", "task"] = "new"
    corrupted: bool = False
    seeds: int = 2
    cost: float = 1.0


def _sgd(rate: str, momentum: str = "0.9") -> Settings:
    return (("outer_learning_rate", rate), ("outer_momentum", momentum))


_MOVING = (("outer_optimiser", "adam"), ("outer_learning_rate", "1e-3"), ("interval", "5"))
_LAMBDAS = ("0.01", "0.1", "10", "100")


def _noise(rate: str, *, clean_meta: bool) -> tuple[tuple[str, Any], ...]:
    return (("label_noise", f"instance:{rate}"), ("clean_meta", clean_meta))


_LONG = Regime(
    name="160 epochs of Fashion-MNIST", group="schedule", place="fashion", seeds=2, cost=240
)


def _literal() -> Iterator[Regime]:
    """Changes to the base."""
    yield Regime(name="epochs x8", group="schedule", epochs=8, seeds=1, cost=8)
    yield _LONG
    yield Regime(name="K=5", group="interval", settings=(("interval", "5"),), seeds=1, cost=1.6)
    yield Regime(name="K=1", group="interval", settings=(("interval", "1"),), seeds=1, cost=4.8)
    for rate in ("1e-3", "1e-2"):
        yield Regime(name=f"sgd {rate}", group="outer step", settings=_sgd(rate), seeds=1)
    yield Regime(name="sgd 1", group="outer step", settings=_sgd("1"))
    for rate in ("1e-4", "1e-3", "1e-2"):
        name = f"sgd {rate}, no momentum"
        yield Regime(name=name, group="outer step", settings=_sgd(rate, "0"), seeds=1)
    for value in (_LAMBDAS[0], _LAMBDAS[-1]):
        changed = (("variance_weight", value),)
        yield Regime(name=f"lambda {value}", group="lambda", settings=changed, seeds=1)
    everywhere = (("dropout_placement", "everywhere"),)
    yield Regime(name="dropout everywhere", group="dropout", settings=everywhere, cost=2)
    yield Regime(
        name="ResNet-50 as f", group="networks", backbone="resnet50-cifar", seeds=1, cost=2.5,
        settings=(("scorer_backbone", "resnet18-cifar"),),
    )  # fmt: skip
    small = (("scorer_backbone", "resnet20"),)
    yield Regime(name="ResNet-20 as g", group="networks", settings=small, seeds=1, cost=0.8)
    yield Regime(name="g from Lite0", group="pretrained g", start="lite0", seeds=1, cost=1.4)
    yield Regime(name="g from the task", group="pretrained g", start="task", seeds=1, cost=1.8)
    for rate in ("0.2", "0.4"):
        for clean, ending in ((False, ""), (True, ", clean meta set")):
            noise = _noise(rate, clean_meta=clean)
            yield Regime(name=f"noise {rate}{ending}", group="label noise", data=noise, seeds=1)
    # As many steps as the base has.
    few = (("train", 1_000),)
    yield Regime(name="1,000 images", group="small data", data=few, epochs=5, seeds=1)
    yield Regime(name="EyePACS", group="shift", place="eyepacs", seeds=1, cost=2.5)
    yield Regime(
        name="EyePACS, meta set APTOS", group="shift", place="eyepacs", cost=2.5,
        data=(("meta", "aptos"), ("tests", ("test", "deepdrid"))),
    )  # fmt: skip


def _moving() -> Iterator[Regime]:
    """Changes to ``moving``."""
    for value in _LAMBDAS:
        changed = (("variance_weight", value),)
        yield Regime(name=f"lambda {value}", group="lambda", settings=changed)
    yield Regime(name="epochs x4", group="schedule", epochs=4, seeds=1, cost=4)
    yield _LONG
    yield Regime(name="g from Lite0", group="pretrained g", start="lite0", corrupted=True, cost=1.2)
    yield Regime(
        name="g on Lite0 features", group="pretrained g", start="lite0-features", seeds=1
    )  # fmt: skip
    yield Regime(
        name="g from the task", group="pretrained g", start="task", corrupted=True, cost=1.6
    )
    for clean, ending in ((False, ""), (True, ", clean meta set")):
        noise = _noise("0.4", clean_meta=clean)
        yield Regime(name=f"noise 0.4{ending}", group="label noise", data=noise)
    few = (("train", 1_000),)
    yield Regime(name="1,000 images", group="small data", data=few, epochs=5)
    yield Regime(
        name="EyePACS, g from Lite0", group="shift", place="eyepacs", start="lite0", seeds=1,
        cost=2,
    )  # fmt: skip


def _regimes() -> Iterator[Regime]:
    yield Regime(name="base", group="base", corrupted=True, cost=1.2)
    yield Regime(name="moving", group="base", settings=_MOVING, corrupted=True, cost=1.8)
    yield Regime(name="plain training", group="base", method="erm", corrupted=True, cost=0.7)
    yield Regime(name="our revar", group="base", method="revar", corrupted=True, cost=1.8)
    changes = [
        *_literal(),
        *(
            replace(
                regime,
                name=f"moving, {regime.name}",
                settings=(*_MOVING, *regime.settings),
                cost=1.6 * regime.cost,
            )
            for regime in _moving()
        ),
    ]
    groups = dict.fromkeys(regime.group for regime in changes)
    for group in groups:
        yield from (regime for regime in changes if regime.group == group)


REGIMES: dict[str, Regime] = {regime.name: regime for regime in _regimes()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run: a regime and a seed, all of it or a tiny one."""

    regime: Regime
    seed: int
    tiny: bool = False

    def __str__(self) -> str:
        return f"{self.regime.name}, seed {self.seed}"


def jobs_of(regimes: Sequence[Regime], *, tiny: bool, seeds: int | None = None) -> list[Job]:
    """Those of the first seed first, so that an early end leaves whole seeds; the longest first."""
    jobs = [
        Job(regime=regime, seed=seed, tiny=tiny)
        for regime in regimes
        for seed in range(regime.seeds if seeds is None else seeds)
    ]
    return sorted(jobs, key=lambda job: (job.seed, -job.regime.cost))


def _place(regime: Regime) -> Place:
    if regime.place == "generated":
        return scale_of("smoke").places["eyepacs"]
    if regime.place == "fashion":
        return Place(
            setting=Setting(
                data=DataChoice(name="fashion-mnist"), backbone="mlp", epochs=160,
                settings=(("batch_size", "128"),),
            )
        )  # fmt: skip
    small = scale_of("small")
    return small.places["eyepacs"] if regime.place == "eyepacs" else small.scratch["imagenet-100"]


def cell_of(job: Job) -> Cell:
    """The run as the tables of the paper would have it."""
    regime, place = job.regime, _place(job.regime)
    cell = cell_at(Way(method=regime.method, settings=regime.settings), place).seeded(job.seed)
    tests = cell.data.tests
    if not regime.corrupted:
        tests = tuple(name for name in tests if "+" not in name)
    changes = {"tests": tests, **dict(regime.data)}
    cell = replace(
        cell,
        data=replace(cell.data, **changes),
        backbone=regime.backbone or cell.backbone,
        epochs=round(cell.epochs * regime.epochs),
    )
    return _shrunk(cell) if job.tiny else cell


def _shrunk(cell: Cell) -> Cell:
    """The same question of a few images and small nets."""
    asked = dict(cell.settings)
    small = {"batch_size": "16"}
    if cell.method != "erm":
        small["interval"] = "1" if asked.get("interval") == "1" else "2"
    if "scorer_backbone" in asked:
        small["scorer_backbone"] = "convnet"
    return replace(
        cell,
        data=replace(cell.data, train=min(cell.data.train or 120, 120), test=60),
        settings=(*cell.settings, *small.items()),
        backbone=_SMALL_NETS.get(cell.backbone, cell.backbone),
        epochs=4 if cell.epochs > 30 else 2,
    )


def asked(job: Job) -> dict[str, Any]:
    """All that decides what a run comes to, as it comes back from a file."""
    cell = cell_of(job)
    plain = {
        "data": fields.to_json(cell.data), "recipe": cell.recipe().to_json(),
        "scorer_start": job.regime.start,
    }  # fmt: skip
    return dict(json.loads(json.dumps(plain)))


def read(out: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """The last line of each regime and seed; a line that was cut off is left out."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    for line in lines:
        try:
            run = json.loads(line)
        except ValueError:
            continue
        found[run["regime"], run["seed"]] = run
    return found


def missing_of(jobs: Sequence[Job], out: Path) -> list[Job]:
    """Those that are not there, failed, or were made in another way."""
    found = read(out)

    def is_finished(job: Job) -> bool:
        run = found.get((job.regime.name, job.seed), {})
        return run.get("reason", "") is None and run["asked"] == asked(job)

    return [job for job in jobs if not is_finished(job)]

"""The controlled study (section 4 of the paper): methods by scenarios by seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import torch

from revar.data.synthetic import SCENARIOS, Scenario, draw
from revar.methods.base import Bilevel
from revar.methods.mwn import MetaWeightNet
from revar.methods.revar import ReVaR
from revar.metrics.agreement import agreement
from revar.nets.base import Dropout
from revar.published import published
from revar.recipe import Budget, Recipe
from revar.studies.regression import fit_weights_side_by_side

ScaleName = Literal["smoke", "small", "paper"]
Row = dict[str, Any]
AT_ONCE = 20
"""Runs side by side; more gain nothing once the products fill the cache."""
CLASSIFIERS = ("linear", "perceptron", "mlp")
"""What f may be: nets whose layers have a form for runs side by side."""


def paper_r2() -> dict[str, dict[str, float]]:
    """The paper's R^2, of a kind that is not said; "Ours" there is ``revar-paper`` here."""
    table = published("controlled")
    return {
        scenario: {
            "revar-paper" if row == "revar" else row: table.values[row, scenario].mean
            for row in table.rows
        }
        for scenario in table.columns
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Step sizes of a method, chosen on seeds that the study does not use."""

    inner: float
    outer: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """One line of the table."""

    method: Bilevel
    rates: Rates


_PAPER = replace(
    ReVaR.paper(),
    scorer_backbone="perceptron",
    weight_normalisation="batch_mean_one",
    outer_optimiser="adam",
    interval=1,
)
"""The paper's form; unnormalised weights, sgd at 1e-4 and one meta step in 15 teach g nothing in a
study of this length, for any method."""

ENTRANTS = {
    "mwn": Entrant(
        method=MetaWeightNet(weight_normalisation="sum_one"),
        rates=Rates(inner=0.03, outer=1e-3),
    ),
    "ibr": Entrant(method=replace(_PAPER, variance_weight=0.0), rates=Rates(inner=0.1, outer=3e-4)),
    "revar-paper": Entrant(method=_PAPER, rates=Rates(inner=0.1, outer=3e-4)),
    "proximal": Entrant(
        method=replace(_PAPER, update="proximal"), rates=Rates(inner=0.1, outer=1e-3)
    ),
    "revar": Entrant(
        method=replace(
            ReVaR(),
            scorer="network",
            scorer_backbone="perceptron",
            interval=5,
            meta_batch=512,
            shares_gradient=False,
        ),
        rates=Rates(inner=0.1, outer=1e-3),
    ),
}
"""``proximal`` is the paper's form with our update; ``revar`` is what we shipped when
the study was made, held-out candidates and a meta step in five, reading inputs because numbers have
no class evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a study is.

    Attributes:
        seeds: draws of the model, and runs on each.
        n: training points; as many validation points.
        epochs: passes over them.
        shifts: s of the interpolation.
        ablate: whether to vary lambda, T and the look-ahead.
    """

    seeds: int
    n: int
    epochs: int
    shifts: tuple[float, ...]
    ablate: bool = True


SCALES: dict[str, Scale] = {
    "smoke": Scale(seeds=2, n=512, epochs=2, shifts=(0, 4, 16), ablate=False),
    "small": Scale(seeds=10, n=40_000, epochs=4, shifts=(0, 2, 4, 8, 16, 32)),
    "paper": Scale(seeds=30, n=100_000, epochs=8, shifts=(0, 1, 2, 4, 8, 16, 25, 50)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run: what to train on what.

    Attributes:
        part: ``table``, ``interpolation`` or ``ablation``.
        name: of the method, or of its variant.
        scenario: by its name.
        shift: s, where it is not the scenario's own.
        seed: of data and run.
        method: with its outer step size.
        inner: step size of the classifier.
    """

    part: str
    name: str
    scenario: str
    shift: float | None
    seed: int
    method: Bilevel
    inner: float

    @property
    def law(self) -> Scenario:
        """The scenario with the cell's shift."""
        base = SCENARIOS[self.scenario]
        return base if self.shift is None else replace(base, shift=self.shift)

    @property
    def key(self) -> tuple[str, str, str, float | None, int]:
        """What tells it from the others."""
        return self.part, self.name, self.scenario, self.shift, self.seed


def _tuned(entrant: Entrant) -> Bilevel:
    return replace(entrant.method, outer_learning_rate=entrant.rates.outer)  # type: ignore[call-arg]


def cells(scale: Scale) -> list[Cell]:
    """Everything the study asks."""
    found = []
    for seed in range(scale.seeds):
        for name, entrant in ENTRANTS.items():
            fixed: dict[str, Any] = {"seed": seed, "inner": entrant.rates.inner, "name": name}
            fixed["method"] = _tuned(entrant)
            found += [Cell(part="table", scenario=s, shift=None, **fixed) for s in SCENARIOS]
            if name == "revar-paper":
                found += [
                    Cell(part="interpolation", scenario=scenario, shift=float(shift), **fixed)
                    for scenario in ("2", "4")
                    for shift in scale.shifts
                ]
        if scale.ablate:
            found += _ablation(seed)
    return found


def _ablation(seed: int) -> list[Cell]:
    """Scenario 1: lambda at two look-ahead steps, and T."""
    base = _tuned(ENTRANTS["revar-paper"])
    variants: list[tuple[float, dict[str, Any]]] = [
        (inner, {"variance_weight": weight}) for inner in (0.03, 0.1) for weight in (0.0, 1.0, 10.0)
    ]
    return [
        Cell(
            part="ablation", name=_variant(inner, changes), scenario="1", shift=None, seed=seed,
            method=replace(base, **changes), inner=inner,
        )
        for inner, changes in [*variants, (0.1, {"passes": 2})]
    ]  # fmt: skip


def _variant(inner: float, changes: Mapping[str, Any]) -> str:
    """A name such as ``lambda=10 T=10 lr=0.1``."""
    full = {"variance_weight": 1.0, "passes": 10, **changes}
    return f"lambda={full['variance_weight']:g} T={full['passes']} lr={inner:g}"


def recipe(cell: Cell, scale: Scale, classifier: str = "linear") -> Recipe:
    """How a cell is trained: plain sgd at a constant rate, dropout of a tenth."""
    budget = Budget(
        epochs=scale.epochs, batch_size=64, learning_rate=cell.inner, momentum=0.0,
        weight_decay=0.0, schedule="constant", lr_warmup=0.0, gradient_clip=None,
    )  # fmt: skip
    return Recipe(
        method=cell.method, backbone=classifier, dropout=Dropout(rate=0.1), budget=budget,
        seed=cell.seed,
    )  # fmt: skip


def run_cells(group: Sequence[Cell], scale: Scale, classifier: str) -> list[Row]:
    """Train cells of one method side by side and compare their weights with the ideal ones.

    Cells that ask about the same run, such as scenario 2 at s = 0 and scenario 1, share it.
    """
    torch.set_num_threads(1)
    alike: dict[tuple[Scenario, int], list[Cell]] = {}
    for cell in group:
        alike.setdefault((cell.law, cell.seed), []).append(cell)
    firsts = [cells[0] for cells in alike.values()]
    problems = [draw(cell.law, scale.n, scale.n, cell.seed) for cell in firsts]
    weights = fit_weights_side_by_side(
        [recipe(cell, scale, classifier) for cell in firsts],
        [problem.standardised() for problem in problems],
    )
    rows = []
    for cells, problem, learned in zip(alike.values(), problems, weights.T, strict=True):
        for cell in cells:
            shifted = cell.scenario in ("2", "4")
            found = agreement(learned, problem.noise, problem.distance if shifted else None)
            described = {
                "part": cell.part, "method": cell.name, "scenario": cell.scenario,
                "shift": cell.shift, "seed": cell.seed,
            }  # fmt: skip
            rows.append({**described, **asdict(found)})
    return rows


def _chunks(trainings: list[list[Cell]]) -> list[list[list[Cell]]]:
    return [trainings[at : at + AT_ONCE] for at in range(0, len(trainings), AT_ONCE)]


def _groups(wanted: Iterable[Cell]) -> list[list[Cell]]:
    """Cells that can run side by side: one method, one step size, one width of the inputs."""
    alike: dict[tuple[Any, ...], dict[tuple[Scenario, int], list[Cell]]] = {}
    for cell in wanted:
        kind = alike.setdefault((cell.method, cell.inner, cell.law.observed), {})
        kind.setdefault((cell.law, cell.seed), []).append(cell)
    chunks = [
        [cell for cells in part for cell in cells]
        for trainings in alike.values()
        for part in _chunks(list(trainings.values()))
    ]
    # The longest first: those with dropout passes.
    return sorted(chunks, key=lambda group: -len(group) * (1 + 2 * group[0].method.needs_dropout))


_PLACES = ("part", "method", "scenario", "shift", "seed")


def _line(row: Row) -> str:
    """Of ``cells.jsonl``; a figure that is no number is null, as JSON has no other word for it."""
    plain = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


def _read(kept: Path) -> list[Row]:
    """Rows of ``cells.jsonl``; a last line that was cut off is taken out of it."""
    text = kept.read_text(encoding="utf-8") if kept.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        kept.write_text(whole, encoding="utf-8")
    rows = [json.loads(line) for line in whole.splitlines()]
    return [
        {k: math.nan if v is None and k not in _PLACES else v for k, v in row.items()}
        for row in rows
    ]


def run(
    scale: Scale,
    out: Path,
    *,
    classifier: str = "linear",
    workers: int = 1,
    advance: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Run what is missing; finished cells are kept in ``cells.jsonl`` and not run again.

    Args:
        scale: how large.
        out: a folder of its own.
        classifier: ``linear`` or another backbone.
        workers: processes.
        advance: is told how many cells of how many are done.
    """
    wanted = cells(scale)
    kept = out / "cells.jsonl"
    rows = _read(kept)
    done = {tuple(row[place] for place in _PLACES) for row in rows}
    groups = _groups(cell for cell in wanted if cell.key not in done)
    tell = advance or (lambda *_: None)
    tell(len(rows), len(wanted))
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        kept.open("a", encoding="utf-8") as file,
    ):
        futures = [pool.submit(run_cells, group, scale, classifier) for group in groups]
        for future in as_completed(futures):
            new = future.result()
            rows += new
            file.write("".join(_line(row) for row in new))
            file.flush()
            tell(len(rows), len(wanted))
    return rows

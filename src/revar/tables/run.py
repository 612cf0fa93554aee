"""A table from its name to its answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from revar.errors import InputError
from revar.tables.catalogue import Table
from revar.tables.cell import Cell
from revar.tables.executors import Executor, Outcome
from revar.tables.places import Scale
from revar.tables.questions import Answer, Grid, answer, wanted
from revar.tables.store import CellStore, NoPredictionsError


@dataclass(frozen=True, slots=True)
class Answered:
    """A grid and what was found.

    Attributes:
        grid: the questions.
        answers: by (row, column).
    """

    grid: Grid
    answers: dict[tuple[str, str], Answer]


def answer_tables(
    tables: Sequence[Table],
    scale: Scale,
    root: Path,
    executor: Executor | None,
    *,
    device: str = "auto",
    tell: Callable[[int, int, Outcome | None], None] | None = None,
) -> list[Answered]:
    """Train what is missing and ask everything.

    Args:
        tables: which; cells they share are trained once, and again where one has no predictions
            and is asked for them.
        scale: how large.
        root: of the store.
        executor: who trains; ``None`` trains nothing and answers what can be answered.
        device: to train on.
        tell: is told how many cells of how many are done, and of the last one.
    """
    store = CellStore(root)
    grids = [grid for table in tables for grid in table.grids(scale)]
    cells = wanted(grids, scale.seeds)
    lacking = set() if executor is None else _lacking(grids, store, scale.seeds)
    missing = [cell for cell in cells if store.find(cell) is None or cell in lacking]
    done = len(cells) - len(missing)
    failed: dict[str, str] = {}
    said = tell or (lambda *_: None)
    said(done, len(cells), None)

    def note(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        if outcome.reason is not None:
            failed[outcome.cell.digest] = outcome.reason
        said(done, len(cells), outcome)

    if executor is not None and missing:
        executor.run(missing, root, device, note)
    return [
        Answered(
            grid,
            {
                place: answer(question, store, scale.seeds, failed)
                for place, question in grid.questions.items()
            },
        )
        for grid in grids
    ]


def _lacking(grids: Sequence[Grid], store: CellStore, seeds: int) -> set[Cell]:
    """Finished cells without predictions that are asked for them: only asking tells."""
    found: set[Cell] = set()
    for question in (question for grid in grids for question in grid.questions.values()):
        for seed in question.asked_of(seeds):
            cells = {part: cell.seeded(seed) for part, cell in question.cells.items()}
            there = {part: store.find(cell) for part, cell in cells.items()}
            finished = {part: one for part, one in there.items() if one is not None}
            light = {cells[part] for part, one in finished.items() if not one.has_predictions}
            if len(finished) < len(cells) or light <= found:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    question.figure(finished)
            except NoPredictionsError:
                found |= light
            except InputError:
                continue  # It is damaged, and its place says so.
    return found

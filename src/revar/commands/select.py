"""``revar select``"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from revar.commands.reading import reading_for
from revar.data.source import load_source
from revar.devices import choose
from revar.errors import InputError, unknown
from revar.run import RunFolder
from revar.selection import Threshold
from revar.selection.risk import Procedure


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen.

    Attributes:
        threshold: with its guarantee.
        stored: whether the run has it now.
    """

    threshold: Threshold
    stored: bool


def select(
    run: str | Path,
    *,
    on: str,
    coverage: float | None = None,
    max_risk: float | None = None,
    confidence: float = 0.95,
    procedure: Procedure = "fixed_sequence",
    score: str | None = None,
    target: str | None = None,
    skip_unreadable: bool = False,
    device: str = "auto",
) -> Selection:
    """Choose the threshold of a run on calibration data, and keep it with the run.

    Where no threshold will do, the run is left as it was.

    Args:
        run: the run folder.
        on: labelled data the run has not seen, as for training; all of it is used.
        coverage: share of inputs to accept, or
        max_risk: share of errors among the accepted that must not be exceeded.
        confidence: that it is not.
        procedure: ``fixed_sequence`` or ``sgr``.
        score: a name of ``revar list scores``; the method's default unless given.
        target: the column of labels of a CSV file; the one of training unless given.
        skip_unreadable: go on without images that cannot be read, and count them.
        device: ``auto``, ``cpu``, ``cuda``, ...

    Raises:
        InputError: data that served another purpose, or a wish that cannot be understood.
    """
    if procedure not in get_args(Procedure):
        raise unknown("procedure", procedure, get_args(Procedure))
    folder = RunFolder(Path(run))
    model = folder.load(device=choose(device))
    reading = reading_for(folder, model, target=target, skip_unreadable=skip_unreadable)
    source = load_source(on, reading)
    if source.tests:
        msg = (
            f'"{on}" has a test part, which must not set a threshold: give calibration data on '
            "its own"
        )
        raise InputError(msg)
    part = source.train
    found = model.select(
        part.x, part.y, coverage=coverage, max_risk=max_risk, confidence=confidence,
        procedure=procedure, score=score, keep="if_attained",
    )  # fmt: skip
    if found.threshold is None:
        return Selection(found, stored=False)
    with folder.held():
        folder.write_predictions("calibration", model.predictions["calibration"])
        folder.write_decisions(model)
    return Selection(found, stored=True)

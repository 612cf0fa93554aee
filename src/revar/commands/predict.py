"""``revar predict``"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from revar.commands.reading import reading_for
from revar.data.source import load_inputs
from revar.devices import choose
from revar.errors import InputError
from revar.model import Model
from revar.run import RunFolder
from revar.selection import Threshold, threshold_for_coverage


@dataclass(frozen=True, slots=True)
class PredictionTable:
    """Decisions on inputs.

    Attributes:
        header: names of the columns.
        rows: one per input.
        note: where the threshold came from, for people.
        accepted: how many inputs are accepted.
    """

    header: list[str]
    rows: list[list[str]]
    note: str
    accepted: int

    def write(self, file: TextIO) -> None:
        """As CSV."""
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(self.rows)

    def save(self, path: Path) -> None:
        """As a CSV file, which is there when it is whole.

        Raises:
            InputError: it cannot be written, or is there by now; no half of it stays.
        """
        beside = path.with_name(f".revar-{os.getpid()}.new")
        try:
            with beside.open("w", newline="", encoding="utf-8") as file:
                self.write(file)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                raise InputError(f'"{path}" exists by now: choose another --out')
            beside.replace(path)
        except OSError as error:
            raise InputError(f'cannot write "{path}": {error.strerror}') from error
        finally:
            beside.unlink(missing_ok=True)


def predict(
    run: str | Path,
    inputs: str,
    *,
    coverage: float | None = None,
    max_risk: float | None = None,
    confidence: float = 0.95,
    score: str | None = None,
    skip_unreadable: bool = False,
    device: str = "auto",
) -> PredictionTable:
    """Labels, decisions and probabilities for inputs without labels.

    Args:
        run: the run folder.
        inputs: an image file, a folder of images, an ``.npz`` with ``x`` or a ``.csv`` file.
        coverage: share of inputs to accept, or
        max_risk: share of errors among the accepted that must not be exceeded; by the run's own
            calibration data.
        confidence: that it is not.
        score: a name of ``revar list scores``; ``None`` takes that of the run's threshold, or else
            the run's default.
        skip_unreadable: go on without images that cannot be read, and count them.
        device: ``auto``, ``cpu``, ``cuda``, ...

    Raises:
        InputError: inputs of another kind than the model was trained on, or a score that the run
            does not have.
    """
    folder = RunFolder(Path(run))
    model = folder.load(device=choose(device))
    reading = reading_for(folder, model, skip_unreadable=skip_unreadable)
    part = load_inputs(inputs, reading)
    score = model.fitted.named(score or (model.threshold.score if model.threshold else None))
    try:
        predictions = model.predict(part.x, wanted=model.needs(score))
    except InputError as error:
        # Of an image that cannot be read the path is said.
        if str(error).startswith(f'"{Path(inputs)}'):
            raise
        raise InputError(f'"{inputs}": {error}') from error
    if not len(predictions):
        raise InputError(f'"{inputs}" holds no rows')
    uncertainty = model.uncertainty(predictions, score)
    threshold, note = _threshold(folder, model, uncertainty, coverage, max_risk, confidence, score)
    names = part.names or tuple(str(i) for i in range(len(predictions)))
    labels = model.classes.names
    numbers, probabilities = model.answers(predictions, score)
    kept = threshold.accept(uncertainty) if threshold else None
    rows, accepted = [], 0
    for i, number in enumerate(numbers):
        keep = kept is None or bool(kept[i])
        accepted += keep
        decided = [names[i], labels[number], str(keep).lower(), f"{uncertainty[i]:.8g}"]
        rows.append(decided + [f"{p:.8g}" for p in probabilities[i]])
    header = ["input", "label", "accepted", "uncertainty"]
    header += [f"probability_{label}" for label in labels]
    return PredictionTable(header, rows, note, accepted)


def _threshold(
    folder: RunFolder,
    model: Model,
    uncertainty: NDArray[np.float64],
    coverage: float | None,
    max_risk: float | None,
    confidence: float,
    score: str,
) -> tuple[Threshold | None, str]:
    """Which threshold applies, and why."""
    stored = model.threshold
    if coverage is None and max_risk is None:
        if stored is None:
            msg = "no threshold is set, so everything is accepted: give --coverage or --max-risk"
            return None, msg
        chosen = model.fitted.named(stored.score)
        if chosen != score:
            msg = (
                f"the threshold of the run is one of {chosen}, not of {score}: give --coverage or "
                f"--max-risk, or revar select RUN --on DATA --score {score} first"
            )
            raise InputError(msg)
        return stored, f"the threshold of the run: {stored.describe()}"
    if "calibration" in folder.prediction_names():
        calibration = folder.predictions("calibration")
        if max_risk is not None and calibration.labels is None:
            msg = (
                "the calibration data of this run has no labels: revar select RUN --on DATA "
                f"--max-risk {max_risk:g} --score {score} first"
            )
            raise InputError(msg)
        found = model.threshold_from(
            calibration, coverage=coverage, max_risk=max_risk, confidence=confidence, score=score
        )
        return found, f"from the calibration data of the run: {found.describe()}"
    if max_risk is not None:
        msg = (
            "--max-risk needs labelled calibration data: revar select RUN --on DATA --max-risk "
            f"{max_risk:g} --score {score} first"
        )
        raise InputError(msg)
    assert coverage is not None
    found = threshold_for_coverage(uncertainty, coverage, score=score)
    note = f"no threshold is stored: the {coverage:.0%} most certain of these inputs are accepted"
    return found, note

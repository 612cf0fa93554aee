"""What the page is made of: runs, their test sets, and the inputs of a few examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.predictions import Predictions
from revar.scores import available
from revar.scores.learned import Fitted
from revar.selection import Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """One input as a person sees it.

    Attributes:
        picture: a PNG file, or none.
        cells: column to text, for a row of a table.
        name: what the example is called where it comes from.
    """

    picture: bytes | None = None
    cells: Mapping[str, str] | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSet:
    """One labelled set a run was tested on.

    Attributes:
        predictions: with labels.
        fingerprint: of its inputs, if known: runs with the same were tested on the same examples.
        groups: [n] names to break figures down by, or none.
        group_name: what the groups are.
        contents: place of the example in `predictions` to its input, for those that are shown.
        note: why inputs or groups are missing, for people.
    """

    # pytest takes classes of this name for tests.
    __test__ = False

    predictions: Predictions
    fingerprint: str = ""
    groups: NDArray[np.str_] | None = None
    group_name: str = ""
    contents: Mapping[int, Content] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRun:
    """One run, read.

    Attributes:
        name: short and unique on the page.
        path: of its folder, as the user types it.
        classes: names by class number.
        fitted: what the tune split decided.
        tests: sets it was tested on, the main one first.
        train: predictions on the training points, if there are any.
        train_contents: place in `train` to input, for those that are shown.
        train_note: why these are missing.
        threshold: that is kept with the run.
        log: one record an epoch.
        recipe: what was chosen, as JSON.
        provenance: versions, hardware, date, command.
        inputs: what one example is, in words.
    """

    name: str
    path: str
    classes: tuple[str, ...]
    fitted: Fitted
    tests: Mapping[str, TestSet]
    train: Predictions | None = None
    train_contents: Mapping[int, Content] = field(default_factory=dict)
    train_note: str = ""
    threshold: Threshold | None = None
    log: tuple[Mapping[str, Any], ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    inputs: str = ""

    def scores(self, predictions: Predictions) -> tuple[str, ...]:
        """Names of the scores of one set, each once."""
        return tuple(name for name in available(predictions, self.fitted) if name != "own")

"""Tables of selection: which method to reject with."""

from __future__ import annotations

from revar.tables import figures
from revar.tables.build import (
    ACCURACY,
    AUARC,
    AUC,
    ECE,
    ERROR,
    MAIN,
    SELECTIVE,
    SELECTIVE_ECE,
    at_coverages,
    cell_at,
    grid,
    stand_ins,
)
from revar.tables.places import Scale
from revar.tables.questions import Grid, Question
from revar.tables.ways import WAYS


def main(scale: Scale) -> list[Grid]:
    """Selective classification of every method, AUARC."""
    rows = ("sr", "mcd", "gamblers", "selectivenet", "sat", "vr", "mbr", "revar", "revar-paper")
    title = "selective classification: area under the accuracy-rejection curve"
    return [grid(scale, "main", title, "AUARC", rows, MAIN, AUARC)]


def calibration(scale: Scale) -> list[Grid]:
    """Calibration error of every method."""
    rows = ("sr", "mmce", "brier", "flsd53", "adafocal", "vr", "mbr", "revar", "revar-paper")
    title = "calibration error of the whole test set"
    return [grid(scale, "calibration", title, "ECE", rows, MAIN, ECE, higher=False)]


def ood(scale: Scale) -> list[Grid]:
    """Selection on harder, corrupted and redrawn test sets."""
    columns = ("imagenet-a", "imagenet-c", "imagenet-r")
    rows = ("mcd", "sat", "revar", "revar-paper")
    return [grid(scale, "ood", "selection on shifted test sets", "AUARC", rows, columns, AUARC)]


def shifted_validation(scale: Scale) -> list[Grid]:
    """Validation sets from another domain."""
    rows = ("mcd", "sat", "revar", "revar-paper", "revar-pv")
    title = "validation and test sets from other domains"
    columns = ("camelyon17", "iwildcam")
    return [grid(scale, "shifted-validation", title, "AUARC", rows, columns, AUARC)]


def dr_coverage(scale: Scale) -> list[Grid]:
    """Retinal images: accuracy, AUC and ECE by coverage."""
    columns = at_coverages(("eyepacs", "aptos", "deepdrid"))
    title = "retinal images by coverage"
    return [
        grid(scale, "dr-coverage", title, "accuracy", SELECTIVE, columns, ACCURACY),
        grid(scale, "dr-coverage/auc", title, "AUC", SELECTIVE, columns, AUC),
        grid(
            scale, "dr-coverage/ece", title, "ECE", SELECTIVE, columns, SELECTIVE_ECE,
            higher=False,
        ),
    ]  # fmt: skip


def hundred(scale: Scale) -> list[Grid]:
    """Error by coverage, 100 classes."""
    columns = at_coverages(("imagenet-100",), (0.6, 0.7, 0.8, 0.9, 1.0))
    title = "error by coverage"
    return [
        grid(scale, "imagenet100-coverage", title, "error", SELECTIVE, columns, ERROR, higher=False)
    ]


def thousand(scale: Scale) -> list[Grid]:
    """Accuracy by coverage, 1,000 classes."""
    title = "accuracy by coverage"
    columns = at_coverages(("imagenet-1k",))
    rows = SELECTIVE[1:]
    return [grid(scale, "imagenet1k-coverage", title, "accuracy", rows, columns, ACCURACY)]


def hard_samples(scale: Scale) -> list[Grid]:
    """Images a good classifier gets wrong."""
    title = "images that a good classifier gets wrong"
    return [grid(scale, "hard-samples", title, "AUARC", SELECTIVE, ("imagenet-a",), AUARC)]


def matched_sets(scale: Scale) -> list[Grid]:
    """Every classifier on one selection.

    At a coverage of 80 %: on what it keeps itself, and on what ReVaR keeps.
    """
    name = "imagenet-a"
    if name not in scale.places:
        return []
    place = scale.places[name]
    ours = WAYS["revar"]
    questions = {}
    for row in SELECTIVE:
        way = WAYS[row]
        for column, selector in (("own-selection", way), ("revar-selection", ours)):
            cells = {"classifier": cell_at(way, place), "selector": cell_at(selector, place)}
            figure = figures.on_selection_of(place.tests[0], 0.8, way.score, selector.score)
            questions[row, column] = Question(cells, figure)
    return [
        Grid(
            name="matched-sets", title="classifiers on what ReVaR keeps, 80 %", metric="accuracy",
            rows=SELECTIVE, columns=("own-selection", "revar-selection"),
            questions=questions, place=name, stands_for=stand_ins(scale, (name,)),
        )
    ]  # fmt: skip

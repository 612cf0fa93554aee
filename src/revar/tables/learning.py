"""Tables of learning: noise, people, unlabelled points, and what each part adds."""

from __future__ import annotations

from dataclasses import replace

from revar.tables import figures
from revar.tables.build import ACCURACY, AUARC, AUC, ECE, Ask, at_coverages, grid
from revar.tables.places import Scale
from revar.tables.questions import Grid
from revar.tables.ways import Way


def label_noise(scale: Scale) -> list[Grid]:
    """Reweighting methods on wrong labels."""
    ask: Ask = lambda _: figures.plain("accuracy")  # noqa: E731
    rows = ("mcd", "mwn", "l2r", "fsr", "revar", "revar-paper")
    columns = ("inst-cifar100", "clothing1m")
    title = "reweighting methods trained on wrong labels, clean test labels"
    return [grid(scale, "label-noise", title, "accuracy", rows, columns, ask)]


def label_uncertainty(scale: Scale) -> list[Grid]:
    """Agreement with the disagreement of people."""
    ask: Ask = lambda request: figures.kl_to(request.place.soft or "")  # noqa: E731
    columns = ("imagenet-100h", "cifar100h")
    title = "divergence of the prediction from what people said"
    rows = ("sr", "revar", "revar-paper")
    return [
        grid(
            scale, "label-uncertainty", title, "KL", rows, columns, ask, higher=False, percent=False
        )
    ]


def adaptation(scale: Scale) -> list[Grid]:
    """Unlabelled points of the test domain."""
    rows = ("revar", "revar-pv", "revar-dsv", "vr-dsv", "vr-pv")
    title = "unlabelled points of the test domain, which are not scored"
    columns = at_coverages(("aptos",), (1.0, 0.8, 0.6, 0.4))
    return [grid(scale, "adaptation", title, "accuracy", rows, columns, ACCURACY)]


def adaptation_ood(scale: Scale) -> list[Grid]:
    """The same on corrupted and redrawn test sets."""
    columns = ("imagenet-a", "imagenet-c", "imagenet-r")
    title = "unlabelled points of shifted test sets"
    rows = ("revar", "revar-pv")
    return [grid(scale, "adaptation-ood", title, "AUARC", rows, columns, AUARC)]


def two_phase(scale: Scale) -> list[Grid]:
    """Unlabelled points late or early.

    The late start is the default of the field; ``early`` has them after a tenth of the budget,
    when the warm-up is over. Its row is called ``from-start``.
    """

    def late(way: Way) -> Way:
        return way

    def early(way: Way) -> Way:
        return way.with_settings(unlabelled_from="0.1")

    title = "unlabelled points after 77 % of the budget, or after a tenth of it"
    columns = at_coverages(("aptos",))
    whole = grid(
        scale, "two-phase-adaptation", title, "accuracy", ("revar-pv",), columns, ACCURACY,
        change=late,
    )  # fmt: skip
    other = grid(scale, "", "", "accuracy", ("revar-pv",), columns, ACCURACY, change=early)
    questions = {
        **{("after-77%", column): q for (_, column), q in whole.questions.items()},
        **{("from-start", column): q for (_, column), q in other.questions.items()},
    }
    return [replace(whole, rows=("after-77%", "from-start"), questions=questions)]


def lesion(scale: Scale) -> list[Grid]:
    """What each part of the method adds."""
    rows = ("revar", "revar-uscore", "novarmin", "revar-sr", "revar-mcd", "mcd", "revar-paper")
    columns = at_coverages(("eyepacs", "aptos"))
    title = "what each part of the method adds"
    return [grid(scale, "lesion", title, "accuracy", rows, columns, ACCURACY)]


def entropy_regularisation(scale: Scale) -> list[Grid]:
    """With the entropy regulariser."""
    columns, rows = at_coverages(("eyepacs", "aptos")), ("selectivenet", "sat", "revar")

    def regularised(way: Way) -> Way:
        return way.with_settings(entropy="0.01")

    title = "entropy regularisation of the training loss"
    return [
        grid(
            scale, "entropy-regularisation", title, "accuracy", rows, columns, ACCURACY,
            change=regularised,
        ),
        grid(
            scale, "entropy-regularisation/auc", title, "AUC", rows, columns, AUC,
            change=regularised,
        ),
    ]  # fmt: skip


def reweighting(scale: Scale) -> list[Grid]:
    """Reweighting with and without the variance term."""
    rows, places = ("mcd", "mwn", "l2r", "fsr", "revar"), ("aptos", "imagenet-1k")

    def varied(way: Way) -> Way:
        weighted = way.method in ("mwn", "l2r", "fsr")
        return way.with_settings(variance_weight="1") if weighted else way

    title = "reweighting methods with and without the variance term"
    without = grid(scale, "reweighting", title, "AUARC", rows, places, AUARC)
    with_term = grid(scale, "", "", "", rows, places, AUARC, change=varied)
    columns = (*without.columns, *(f"{column}+variance" for column in with_term.columns))
    added = {(row, f"{column}+variance"): q for (row, column), q in with_term.questions.items()}
    both = replace(without, columns=columns, questions={**without.questions, **added})
    calibration = grid(
        scale, "reweighting/ece", title, "ECE", rows, places, ECE, higher=False, change=varied
    )
    renamed = {(row, f"{c}+variance"): q for (row, c), q in calibration.questions.items()}
    names = tuple(f"{c}+variance" for c in calibration.columns)
    return [both, replace(calibration, columns=names, questions=renamed)]

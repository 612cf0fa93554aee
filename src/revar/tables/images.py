"""Retinal images of every country with the U-Score and what was decided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from revar.errors import InputError
from revar.report.gallery import Picture, Row, draw_gallery
from revar.scores import correct, uncertainty
from revar.tables.build import cell_at
from revar.tables.places import Scale
from revar.tables.sources import set_name, source_of
from revar.tables.store import CellStore
from revar.tables.ways import WAYS

COUNTRIES = {"eyepacs": "EyePACS, USA", "aptos": "APTOS, India", "deepdrid": "DeepDRiD, China"}
CREDIT = {"deepdrid": "Images: DeepDRiD (Liu et al. 2022), CC BY-SA 4.0."}
"""Of images that may be shown to others."""
CLASSES = ("no referral", "referral")
PICTURES = 9


def draw_images(
    scale: Scale, root: Path, folder: Path, *, seed: int, coverage: float
) -> list[Path]:
    """Draw ``dr-images.png``, all countries, and ``dr-images-deepdrid.png``, which may be shown.

    The pictures of a row are no choice of ours: they stand at equal distances in the order of
    their U-Scores. The threshold is the one that answers a share of the tune split.

    Args:
        scale: says what is trained on.
        root: of the store.
        folder: to write to.
        seed: of the run.
        coverage: share of the tune split to answer.

    Raises:
        InputError: the run is not there, a share that is none, or a scale without a country.
    """
    if not 0 < coverage < 1:
        raise InputError(f"--coverage must be between 0 and 1, it is {coverage:g}")
    missing = [name for name in COUNTRIES if name not in scale.places]
    if missing:
        raise InputError(f'scale "{scale.name}" has no {", ".join(missing)} to show: use small')
    place = scale.places["eyepacs"]
    cell = cell_at(WAYS["revar"], place).seeded(seed)
    finished = CellStore(root).find(cell)
    if finished is None:
        raise InputError(
            f'"{root}" has no run of revar with seed {seed} on {cell.data.name}: '
            f'"revar paper dr-coverage --scale {scale.name}" trains it'
        )
    source = source_of(cell, cell.recipe())
    threshold = float(
        np.quantile(uncertainty(finished.predictions("tune"), "uscore", finished.fitted), coverage)
    )
    rows = {}
    for name, title in COUNTRIES.items():
        test = set_name(scale.places[name].tests[0])
        predictions = finished.predictions(test)
        values = uncertainty(predictions, "uscore", finished.fitted)
        right = correct(predictions, "uscore", finished.fitted)
        accepted = values <= threshold
        among = right[accepted].mean() if accepted.any() else np.nan
        told = (
            f"{title}: answers {accepted.mean():.0%}, of which {among:.0%} are right; "
            f"all: {right.mean():.0%}"
        )
        order = np.argsort(values, kind="stable")
        at = order[np.linspace(0, len(order) - 1, PICTURES).round().astype(int)]
        part = source.tests[test]
        n_classes = predictions.logits.shape[1]
        names = CLASSES if n_classes == len(CLASSES) else tuple(map(str, range(n_classes)))
        assert predictions.labels is not None
        rows[name] = Row(
            told,
            [
                Picture(
                    pixels=np.asarray(part.x[predictions.index[i]]),
                    uncertainty=float(values[i]),
                    accepted=bool(accepted[i]),
                    said=names[int(predictions.predicted[i])],
                    truth=names[int(predictions.labels[i])],
                )
                for i in at
            ],
        )
    if place.stands_for.startswith("generated"):
        rows = {name: replace(row, title=f"generated: {row.title}") for name, row in rows.items()}
    files = [folder / "dr-images.png", folder / "dr-images-deepdrid.png"]
    draw_gallery(list(rows.values()), files[0])
    draw_gallery([rows["deepdrid"]], files[1], CREDIT["deepdrid"])
    return files

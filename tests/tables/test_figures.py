"""What tables ask of finished cells that nobody trained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from revar import calibrators, fields, metrics
from revar.predictions import Predictions
from revar.scores.learned import Fitted
from revar.tables import figures
from revar.tables.build import MAIN
from revar.tables.catalogue import find_table
from revar.tables.controls import CALIBRATORS
from revar.tables.places import scale_of
from revar.tables.store import Finished
from support.reports import drawn


def finished(folder: Path, **sets: Predictions) -> Finished:
    """A cell with these predictions, its default score softmax."""
    (folder / "predictions").mkdir(parents=True)
    for name, predictions in sets.items():
        (folder / "predictions" / f"{name}.safetensors").write_bytes(predictions.to_bytes())
    fitted = fields.to_json(Fitted(default_score="softmax", own="softmax"))
    (folder / "scores.json").write_text(json.dumps(fitted))
    return Finished(folder)


def short(predictions: Predictions) -> Predictions:
    """With the means of passes as runs keep them."""
    assert predictions.dropout_mean is not None
    return replace(predictions, dropout_mean=predictions.dropout_mean.astype(np.float32))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("coverage", [0.4, 1.0])
def test_all_figures_of_mcd_are_of_the_mean_of_passes(
    tmp_path: Path, n_classes: int, coverage: float
) -> None:
    predictions = drawn(n_classes=n_classes)
    assert predictions.dropout_mean is not None
    cell = finished(tmp_path, test=short(predictions))
    values = predictions.dropout_entropy
    mean, labels = predictions.dropout_mean, predictions.labels
    found = figures.auc_at(coverage, "mcd")(cell, "test")
    assert found == pytest.approx(metrics.auc_at_coverage(values, mean, labels, coverage), abs=1e-6)
    error = figures.selective_ece_at(coverage, "mcd")(cell, "test")
    (wanted,) = metrics.selective_ece(values, mean, labels, coverages=(coverage,))
    assert error == pytest.approx(wanted, abs=1e-6)
    accuracy = figures.accuracy_at(coverage, "mcd")(cell, "test")
    right = mean.argmax(axis=1) == labels
    assert accuracy == metrics.accuracy_at_coverage(values, right, coverage)
    # The same ranking with the answers of the deterministic pass is another figure.
    plain = figures.auc_at(coverage, "dropout_entropy")(cell, "test")
    p = predictions.probabilities
    assert plain == pytest.approx(metrics.auc_at_coverage(values, p, labels, coverage), abs=1e-12)
    assert abs(plain - found) > 1e-3


def test_conformal_is_the_set_size_of_aps_with_ties_by_the_top_class(tmp_path: Path) -> None:
    assert CALIBRATORS["conformal"] == "aps"
    tune, test = drawn(400, seed=1), drawn(500, seed=2)
    cell = finished(tmp_path, tune=tune, test=test)
    assert test.labels is not None
    assert tune.labels is not None

    def strange(predictions: Predictions) -> np.ndarray:
        """[n, C] mass of all classes that are no less likely, the slow way."""
        p = predictions.probabilities
        return np.array([[row[row >= one].sum() for one in row] for row in p])

    own = np.sort(strange(tune)[np.arange(400), tune.labels])
    threshold = own[int(np.ceil(401 * 0.9)) - 1]
    sizes = np.maximum((strange(test) <= threshold + 1e-12).sum(axis=1), 1)
    assert set(sizes) >= {1, 2, 3}
    ranked = sizes + 1 - test.probabilities.max(axis=1)
    found = figures.calibrated_auarc(CALIBRATORS["conformal"])(cell, "test")
    assert found == pytest.approx(metrics.auarc(ranked, test.correct()), abs=1e-12)
    assert found != pytest.approx(figures.calibrated_auarc("lac")(cell, "test"), abs=1e-4)


def test_rows_of_calibrators_are_registered_and_asked(tmp_path: Path) -> None:
    cell = finished(tmp_path, tune=drawn(400, seed=1), test=drawn(seed=2))
    for name in CALIBRATORS.values():
        calibrators.check(name)
        assert 0.5 < figures.calibrated_auarc(name)(cell, "test") < 1
    (grid,) = find_table("simple-calibrators").grids(scale_of("smoke"))
    assert set(CALIBRATORS) < set(grid.rows)
    assert set(grid.columns) <= set(MAIN)

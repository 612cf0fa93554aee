"""Predictions of a run say which split they are, so that only the tune split fits calibrators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from revar import SelectiveClassifier, calibrators
from revar.commands.evaluate import evaluate
from revar.errors import InputError
from revar.run import RunFolder
from support.problems import CPU, blobs

SPLITS = ("train", "meta", "tune", "calibration")


@pytest.fixture(scope="module")
def classifier() -> SelectiveClassifier:
    clf = SelectiveClassifier(
        method="erm",
        epochs=2,
        batch_size=32,
        test_passes=3,
        meta_fraction=0.1,
        tune_fraction=0.1,
        random_state=0,
    )
    clf.fit(*blobs())
    clf.set_threshold(*blobs(60, seed=2), coverage=0.9)
    return clf


@pytest.fixture(scope="module")
def folder(classifier: SelectiveClassifier, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    path = tmp_path_factory.mktemp("runs") / "run"
    classifier.save(path)
    return RunFolder(path)


def test_in_memory_and_on_disk_they_name_their_split(
    classifier: SelectiveClassifier, folder: RunFolder
) -> None:
    for name in SPLITS:
        assert classifier.model_.predictions[name].split == name
        assert folder.predictions(name).split == name
        assert folder.load(device=CPU).predictions[name].split == name
        stored = (folder.path / f"predictions/{name}.safetensors").read_bytes()
        assert folder.predictions(name).to_bytes() == stored


def test_files_that_name_no_split_are_read_with_it(folder: RunFolder) -> None:
    old = replace(folder.predictions("train"), split="")
    folder.store.write("predictions/elder.safetensors", old.to_bytes())
    assert folder.predictions("elder").split == "elder"


def test_only_the_tune_split_of_a_run_fits_a_calibrator(folder: RunFolder, tmp_path: Path) -> None:
    x, y = blobs(90, seed=7)
    np.savez(tmp_path / "clinic.npz", x=x, y=y)
    result = evaluate(folder.path, on=str(tmp_path / "clinic.npz"))
    assert result.predictions.split == "on-clinic"
    for name in ("train", "meta", "calibration", "on-clinic"):
        with pytest.raises(InputError, match=f"these are the {name} split"):
            calibrators.fit("temperature", folder.predictions(name))
    fitted = calibrators.fit("aps", folder.predictions("tune"))
    after = fitted.apply(result.predictions)
    assert after.split == "on-clinic"
    # What was added is in the file too, and back.
    folder.write_predictions("on-clinic", after)
    again = folder.predictions("on-clinic")
    for score in ("aps_size", "aps_confidence", "aps_credibility"):
        np.testing.assert_array_equal(again.scores[score], after.scores[score])

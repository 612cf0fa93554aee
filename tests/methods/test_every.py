"""What every registered method must do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from revar import fields
from revar.data.source import Part, Source
from revar.errors import InputError
from revar.evaluation import evaluate
from revar.fitting import fit_prepared
from revar.metrics import auarc, failure_auroc
from revar.model import Model
from revar.preparation import prepare
from revar.progress import Silent
from revar.recipe import make_method
from revar.registry import METHODS
from revar.run import RunFolder
from revar.scores import available, uncertainty
from revar.totals import EpochRecord
from support.keepers import FolderKeeper
from support.problems import CPU, blobs, fit, recipe, source

every = pytest.mark.parametrize("name", [entry.name for entry in METHODS])


def same_bits(a: Model, b: Model) -> bool:
    mine, other = a.networks.state_dict(), b.networks.state_dict()
    if mine.keys() != other.keys() or not all(torch.equal(mine[k], other[k]) for k in mine):
        return False
    for split, predictions in a.predictions.items():
        theirs = b.predictions[split]
        for score in available(predictions, a.fitted):
            left = uncertainty(predictions, score, a.fitted)
            if not np.array_equal(left, uncertainty(theirs, score, b.fitted)):
                return False
    return a.fitted == b.fitted


@every
def test_it_learns(name: str) -> None:
    model = fit(name, epochs=8)
    assert evaluate(model.predictions["test"], model.fitted)["accuracy"] > 0.9


@every
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    assert same_bits(fit(name), fit(name))


@every
def test_the_callers_random_numbers_do_not_matter_and_are_not_used(name: str) -> None:
    torch.manual_seed(1)
    first = fit(name)
    expected = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), expected), "training drew from the caller's generator"
    torch.manual_seed(2)
    assert same_bits(first, fit(name))


@every
def test_another_seed_gives_another_model(name: str) -> None:
    assert not same_bits(fit(name), fit(name, seed=1))


class InterruptedRunError(Exception):
    """Stands for whatever ends a process."""


class _StopAfter:
    """An observer that ends training after some epochs."""

    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def started(self, *, step: int, total: int, epochs: int) -> None: ...

    def stepped(self, step: int, figures: Callable[[], dict[str, float]]) -> None: ...

    def finished_epoch(self, record: EpochRecord) -> None:
        self.left -= 1
        if self.left == 0:
            raise InterruptedRunError


@every
@pytest.mark.parametrize("after", [1, 5])
def test_a_resumed_run_ends_with_the_same_bits(name: str, after: int, tmp_path: Path) -> None:
    """After one epoch of training, and when what methods remember is no longer what it began as.

    The observer ends it before the checkpoint of its last epoch.
    """
    prepared = prepare(recipe(name, epochs=6), source())
    whole = fit_prepared(prepared, device=CPU, observer=Silent())
    keeper = FolderKeeper(tmp_path / "run")
    with pytest.raises(InterruptedRunError):
        fit_prepared(prepared, device=CPU, observer=_StopAfter(after), keeper=keeper)
    keeper.folder.end()
    # What happens to the generators in between must not matter.
    torch.manual_seed(123)
    resumed = fit_prepared(prepared, device=CPU, observer=Silent(), keeper=keeper)
    assert same_bits(whole, resumed)


@every
def test_saved_and_loaded_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    model = fit(name)
    folder = RunFolder(tmp_path / "run")
    folder.begin(model.recipe, {}, resume=False)
    folder.write(model)
    loaded = folder.load(device=CPU)
    x, y = blobs(seed=5)
    before, after = model.predict(x, y), loaded.predict(x, y)
    assert loaded.fitted == model.fitted
    assert loaded.recipe == model.recipe
    for score in available(before, model.fitted):
        left, right = uncertainty(before, score, model.fitted), loaded.uncertainty(after, score)
        assert np.array_equal(left, right), score
    for split in model.predictions:
        stored = folder.predictions(split)
        assert np.array_equal(stored.logits, model.predictions[split].logits)


@every
def test_its_entry_tells_the_truth_about_its_scores(name: str) -> None:
    entry = next(entry for entry in METHODS if entry.name == name)
    model = fit(name)
    assert {*entry.scores, "own"} == set(available(model.predictions["test"], model.fitted))
    assert entry.own == model.recipe.method.own_score == model.fitted.own
    assert entry.own in entry.scores
    assert entry.scores[0] == model.recipe.method.default_score == model.fitted.default_score


@every
def test_evidence_of_the_classifier_points_up(name: str) -> None:
    """Errors sit between the clusters: every score of f itself must rank them as less certain."""
    data = Source(Part(*blobs(spread=1.2)), tests={"test": Part(*blobs(900, seed=1, spread=1.2))})
    model = fit(name, data, epochs=8)
    test = model.predictions["test"]
    for score in ("softmax", "softmax_entropy", "dropout_entropy", "dropout_variance", "fused"):
        # Soft labels keep p away from 0 and 1, and its variance then hardly depends on the input.
        least = 0.55 if (name, score) == ("fsr-full", "dropout_variance") else 0.65
        assert failure_auroc(model.uncertainty(test, score), test.correct()) > least, score


# Not revar-paper: its default score, the literal U-Score, ranks at chance (docs/design/004).
@pytest.mark.parametrize("name", ["erm", "revar"])
def test_the_default_score_rejects_the_class_with_random_labels_first(name: str) -> None:
    """Two clusters have a label of their own, inputs of the third are labelled by a coin."""
    generator = np.random.default_rng(0)
    x, y = blobs(600)
    y = np.where(y == 2, generator.integers(0, 2, len(y)), y)
    x_test, region = blobs(600, seed=1)
    model = fit(name, Source(Part(x, y)), epochs=8)
    values = model.uncertainty(model.predict(x_test))
    assert auarc(values, region != 2) > 0.9


@every
def test_it_runs_in_bfloat16(name: str) -> None:
    model = fit(name, precision="bfloat16", epochs=6)
    assert evaluate(model.predictions["test"], model.fitted)["accuracy"] > 0.85


@every
@pytest.mark.parametrize("n_classes", [2, 100])
def test_it_runs_with_few_and_many_classes(name: str, n_classes: int) -> None:
    model = fit(name, source(max(240, 4 * n_classes), n_classes))
    assert model.predictions["test"].logits.shape[1] == n_classes


@every
def test_it_runs_on_images(name: str) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(96) % 2
    x = generator.integers(0, 120, (96, 8, 8, 3)).astype(np.uint8)
    x[y == 1, :4] += 120
    # A few steps an epoch: the meta steps must come often enough to happen at all.
    often = {"interval": 2} if "interval" in fields.hints(type(make_method(name))) else {}
    model = fit(name, Source(Part(x, y)), epochs=6, **often)
    assert evaluate(model.predictions["tune"], model.fitted)["accuracy"] > 0.8


@every
def test_a_continuous_target_is_refused_in_one_line(name: str) -> None:
    x, _ = blobs()
    with pytest.raises(InputError, match="continuous") as caught:
        fit(name, Source(Part(x, np.linspace(0, 1, len(x)))))
    assert "\n" not in str(caught.value)

"""Test-time augmentation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.augmented import predict_augmented
from revar.cli import run
from revar.data.augment import Augment
from revar.data.source import Part, Source
from revar.errors import InputError
from revar.functional import mode
from revar.model import Model
from support.problems import CPU, fit

NAMES = {"tta_softmax", "tta_entropy", "tta_mutual_information"}


def images(n: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Grey-blue images whose upper half is brighter for class 1."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = generator.integers(0, 120, (n, 8, 8, 3)).astype(np.uint8)
    x[y == 1, :4] += 60
    return x, y


@pytest.fixture(scope="module")
def model() -> Model:
    """Trained with shifts of a pixel and mirror images."""
    return fit("erm", Source(Part(*images(96))), epochs=4, augment="shift+flip")


def encoded(model: Model, x: Any) -> Tensor:
    """As the model stores them."""
    stored = model.inputs.encode(x)
    assert isinstance(stored, Tensor)
    return stored


def views(model: Model, x: NDArray[np.uint8], augment: Augment) -> list[NDArray[np.float64]]:
    """Probabilities of the images under every shift and mirror there is."""
    stored = encoded(model, x)
    found = []
    padded = torch.nn.functional.pad(stored, (augment.pad,) * 4)
    side = stored.shape[-1]
    with mode(model.networks, dropout=False, statistics=True), torch.no_grad():
        for top in range(2 * augment.pad + 1):
            for left in range(2 * augment.pad + 1):
                moved = padded[..., top : top + side, left : left + side]
                for seen in (moved, moved.flip(-1)) if augment.flip else (moved,):
                    logits = model.networks.classifier(model.networks.normalise(seen))
                    found.append(logits.double().softmax(dim=1).numpy())
    return found


def test_the_mean_is_over_the_image_and_its_copies(model: Model) -> None:
    """With mirrors only there are two versions: the mean is a mixture of both."""
    x, y = images(10, seed=1)
    stored = encoded(model, x)
    plain, mirrored = views(model, x, Augment(flip=True))
    copies = 5
    found = predict_augmented(
        model.networks, Augment(flip=True), stored, labels=y, copies=copies, seed=3, device=CPU
    )
    shares = (found.probabilities - plain) / (mirrored - plain)
    share = float(np.median(shares))
    np.testing.assert_allclose(
        found.probabilities, (1 - share) * plain + share * mirrored, atol=1e-6
    )
    # A whole number of the copies is mirrored; the image itself is not.
    assert share * (copies + 1) == pytest.approx(round(share * (copies + 1)), abs=1e-3)
    assert 0 < share < 1
    assert found.labels is y
    assert set(found.scores) == NAMES


def test_many_copies_come_near_the_mean_over_all_versions(model: Model) -> None:
    x, _ = images(6, seed=2)
    every = np.mean(views(model, x, Augment(pad=1, flip=True)), axis=0)
    found = model.predict_augmented(x, copies=300)
    plain = model.predict(x)
    distance = np.abs(found.probabilities - every).max()
    assert distance < 0.05
    assert distance < np.abs(plain.probabilities - every).max()


def test_the_score_of_an_image_depends_on_that_image_alone(model: Model) -> None:
    x, y = images(9, seed=3)
    whole = model.predict_augmented(x, y, copies=4)
    alone = model.predict_augmented(x[4:5], copies=4)
    stored = encoded(model, x)
    small = predict_augmented(
        model.networks,
        Augment(pad=1, flip=True),
        stored,
        copies=4,
        seed=0,
        device=CPU,
        batch_size=2,
    )
    large = predict_augmented(
        model.networks, Augment(pad=1, flip=True), stored, copies=4, seed=0, device=CPU
    )
    for name in NAMES:
        np.testing.assert_allclose(whole.scores[name][4], alone.scores[name][0], atol=1e-5)
        np.testing.assert_allclose(small.scores[name], large.scores[name], atol=1e-5)


def test_the_same_call_gives_the_same_bits_and_draws_from_no_generator(model: Model) -> None:
    x, _ = images(5, seed=4)
    torch.manual_seed(1)
    first = model.predict_augmented(x, copies=3)
    after = torch.rand(2)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(2), after)
    assert np.array_equal(first.logits, model.predict_augmented(x, copies=3).logits)
    assert len(model.predict_augmented(x[:0], copies=2)) == 0


def test_copies_say_something_about_disagreement(model: Model) -> None:
    x, _ = images(40, seed=5)
    found = model.predict_augmented(x, copies=6)
    information = found.scores["tta_mutual_information"]
    assert (information >= 0).all()
    assert information.max() > 1e-4


def test_refusals(model: Model) -> None:
    x, _ = images(4)
    with pytest.raises(InputError, match="1 or more"):
        model.predict_augmented(x, copies=0)
    plain = fit("erm", Source(Part(*images(48))), epochs=1, augment="none")
    with pytest.raises(InputError, match="--set augment=shift"):
        plain.predict_augmented(x)
    table = fit("erm", epochs=1)
    with pytest.raises(InputError, match="needs images"):
        table.predict_augmented(np.zeros((2, 4)))


def test_evaluate_with_augmentations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (x, y), (x_test, y_test) = images(80), images(30, seed=6)
    np.savez("photos.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    command = ["train", "--data", "photos.npz", "--out", "run", "--method", "erm"]
    assert run([*command, "--epochs", "2", "--set", "augment=shift+flip"]) == 0
    capsys.readouterr()
    assert run(["evaluate", "run", "--augmentations", "3", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["n"] == 30
    assert figures["default_score"] == "tta_softmax"
    assert set(figures["scores"]) >= NAMES
    x_new, y_new = images(20, seed=7)
    np.savez("new.npz", x=x_new, y=y_new)
    assert run(["evaluate", "run", "--augmentations", "2", "--on", "new.npz"]) == 0
    assert "new, 2 augmented copies" in capsys.readouterr().out
    # It served as a test set now.
    assert run(["select", "run", "--on", "new.npz", "--coverage", "0.8"]) == 2
    assert "cannot serve as calibration" in capsys.readouterr().err
    x_test[0, 0, 0, 0] ^= 1
    np.savez("photos.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    assert run(["evaluate", "run", "--augmentations", "2"]) == 2
    assert "has changed" in capsys.readouterr().err
    Path("photos.npz").unlink()
    assert run(["evaluate", "run", "--augmentations", "2"]) == 2
    assert 'no data at "photos.npz"' in capsys.readouterr().err


def test_a_run_without_test_data_asks_for_some(model: Model, tmp_path: Path) -> None:
    from revar.commands.mixtures import evaluate_augmented
    from revar.run import RunFolder

    folder = RunFolder(tmp_path / "run")
    folder.begin(model.recipe, {"spec": "arrays"}, resume=False)
    folder.write(replace(model))
    folder.end()
    with pytest.raises(InputError, match="give some with --on"):
        evaluate_augmented(folder.path, 2)

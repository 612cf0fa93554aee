"""Small models to export, and their graphs as a stranger would run them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from revar.data.source import Part, Source
from revar.export import export_model
from revar.fitting import fit_model
from revar.model import Model
from revar.progress import Silent
from revar.recipe import Budget, Recipe, make_method, with_settings
from revar.scores import available
from support.problems import CPU

Arrays = dict[str, NDArray[Any]]
Runner = Callable[[NDArray[Any]], Arrays]
TOLERANCE = 1e-5


def pictures(n: int, seed: int = 0, size: int = 12) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """[n, 3, size, size] noise around one of three colours, and which one."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    x = rng.normal(90, 60, size=(n, 3, size, size)) + 30 * np.eye(3)[y][:, :, None, None]
    return np.clip(x, 0, 255).astype(np.uint8), y


def train(method: str, backbone: str, x: Any, y: Any, **settings: object) -> Model:
    """One short run."""
    budget = Budget(epochs=int(str(settings.pop("epochs", 1))), batch_size=32)
    chosen = Recipe(method=make_method(method), backbone=backbone, budget=budget, test_passes=3)
    chosen = with_settings(chosen, {name: str(value) for name, value in settings.items()})
    return fit_model(chosen, Source(Part(x, y)), device=CPU, observer=Silent())


def onnx_runner(path: Path) -> Runner:
    """ONNX Runtime on the CPU."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda x: dict(zip(names, session.run(names, {"x": x}), strict=True))


def torch_runner(path: Path) -> Runner:
    """A torch program, read back."""
    module = torch.export.load(str(path)).module()

    def run(x: NDArray[Any]) -> Arrays:
        # As docs/export.md does: outputs need no gradient.
        return {name: value.numpy() for name, value in module(torch.from_numpy(x)).items()}

    return run


def runners(model: Model, folder: Path) -> dict[str, Runner]:
    """Both kinds of file, written and opened."""
    export_model(model, folder / "model.onnx")
    export_model(model, folder / "model.pt2")
    same = [json.loads((folder / f"model.{kind}.json").read_text()) for kind in ("onnx", "pt2")]
    assert same[0] == same[1]
    onnx, program = onnx_runner(folder / "model.onnx"), torch_runner(folder / "model.pt2")
    return {"onnx": onnx, "torch": program}


def close(found: NDArray[Any], expected: NDArray[Any], what: str) -> None:
    """Equal to 1e-5 of the largest value; a score near zero is the difference of two logits."""
    scale = max(float(np.abs(expected).max()), 1e-3)
    error = float(np.abs(found - expected).max()) / scale
    assert error <= TOLERANCE, f"{what}: {error:.2g}"


def same_as_model(found: Arrays, model: Model, raw: Any) -> None:
    """Every output against what ``Model.predict`` says about the same inputs."""
    predictions = model.predict(raw)
    close(found["logits"], predictions.logits, "logits")
    decides = model.threshold.score if model.threshold else None
    predicted, probabilities = model.answers(predictions, decides)
    np.testing.assert_allclose(found["probabilities"], probabilities, rtol=TOLERANCE, atol=1e-7)
    assert found["predicted"].tolist() == predicted.tolist()
    for name, values in found.items():
        score = name.removeprefix("score_")
        if score != name:
            assert score in available(predictions, model.fitted)
            close(values, model.uncertainty(predictions, score), name)
    threshold = model.threshold
    score = threshold.score if threshold else model.fitted.default_score
    uncertainty = model.uncertainty(predictions, score)
    close(found["uncertainty"], uncertainty, "uncertainty")
    accepted = np.ones(len(raw), dtype=bool) if threshold is None else threshold.accept(uncertainty)
    assert found["accepted"].dtype == bool
    limit = threshold.threshold if threshold else None
    # Within rounding of the threshold either decision is right.
    clear = np.ones(len(raw), dtype=bool)
    if limit is not None:
        clear = np.abs(uncertainty - limit) > TOLERANCE * np.abs(uncertainty).max()
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(found["accepted"][clear], accepted[clear])

"""Graphs say what ``revar predict`` says, in both formats and at any batch size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from revar.model import Model
from revar.scores.learned import Fusion
from support.exported import pictures, runners, same_as_model, train
from support.problems import blobs


def _rows(n: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    x, y = blobs(n, seed=seed)
    rows: NDArray[np.float32] = x.astype(np.float32)
    return rows, y


def _floats(n: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    x, y = pictures(n, seed, 16)
    scaled: NDArray[np.float32] = (x / 255).astype(np.float32)
    return scaled, y


Draw = Callable[[int, int], tuple[Any, Any]]
CASES: dict[str, tuple[str, str, Draw, str | None, dict[str, object]]] = {
    "rows, evidence": ("revar", "mlp", _rows, "uscore", {"scorer": "evidence"}),
    "rows, features": ("revar", "mlp", _rows, "own", {"scorer": "features", "orientation": "low"}),
    "rows, network": ("revar", "mlp", _rows, "uscore", {"scorer": "network"}),
    "rows, dropout": ("erm", "mlp", _rows, "mutual_information", {}),
    "rows, the mean of the passes": ("erm", "mlp", _rows, "mcd", {"dropout_rate": 0.8}),
    "rows, sat": ("sat", "mlp", _rows, "abstention", {}),
    "rows, selectivenet": ("selectivenet", "mlp", _rows, "selection", {}),
    "rows, the default": ("trajectory", "mlp", _rows, "uscore", {}),
    "images, no threshold": ("revar", "convnet", pictures, None, {}),
    "float images, resnet20": ("erm", "resnet20", _floats, "softmax", {}),
    "images, timm": ("revar", "test_resnet", pictures, "fused", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_equal_those_of_predict(case: str, tmp_path: Path) -> None:
    method, backbone, draw, score, settings = CASES[case]
    model = train(method, backbone, *draw(96, 0), **settings)
    if score == "fused":
        # So short a run fits nothing; this one reads everything, the passes too.
        model.fitted = replace(model.fitted, fusion=_FUSION)
    if score is not None:
        model.select(*draw(61, 1), coverage=0.6, score=score)
    for run in runners(model, tmp_path).values():
        for n in (1, 7, 600):
            x = draw(n, 2)[0]
            # As a tensor: there, channels come first.
            same_as_model(run(x), model, torch.from_numpy(x))


_FUSION = Fusion(
    features=("softmax", "dropout_entropy", "dropout_variance", "uscore"),
    coefficients=(1.5, 0.5, 20.0, 0.25), intercept=-2.0, fitted_on=100, errors=20,
)  # fmt: skip


def test_the_fused_score_without_passes_where_it_reads_none(tmp_path: Path) -> None:
    """A coefficient of zero costs nothing: the passes are neither taken nor exported."""
    model: Model = train("revar", "mlp", *_rows(96, 0))
    fusion = replace(_FUSION, coefficients=(1.5, 0.0, 0.0, 0.25))
    model.fitted = replace(model.fitted, fusion=fusion, default_score="fused")
    assert not model.needs().dropout
    x = _rows(50, 2)[0]
    for run in runners(model, tmp_path).values():
        found = run(x)
        assert "score_fused" in found
        assert not [name for name in found if "dropout" in name]
        same_as_model(found, model, x)


def test_infinity_is_not_accepted(tmp_path: Path) -> None:
    """A model refuses it; a graph can only abstain."""
    model: Model = train("erm", "mlp", *_rows(96, 0))
    model.select(*_rows(61, 1), coverage=0.9, score="softmax")
    x = _rows(40, 2)[0]
    for run in runners(model, tmp_path).values():
        plain = run(x)["accepted"]
        assert plain.sum() > 20
        for k, value in enumerate((np.inf, -np.inf)):
            odd = x.copy()
            odd[np.flatnonzero(plain)[k], 1] = value
            found = run(odd)["accepted"]
            assert not found[np.flatnonzero(plain)[k]]
            assert found.sum() == plain.sum() - 1

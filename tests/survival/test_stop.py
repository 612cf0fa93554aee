"""Stopped after any step, also the last of an epoch, and resumed: the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from revar import fields
from revar.commands.train import train
from revar.recipe import make_method
from revar.registry import METHODS
from revar.run import RunFolder
from revar.training import InterruptedRun
from support.problems import blobs
from support.survivor import differences

FAST = {"batch_size": "32", "test_passes": "3", "interval": "2"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    x, y = blobs()
    np.savez(path, x=x, y=y, x_unlabelled=x + 0.3)
    return path


def fit(archive: Path, out: Path, method: str, stop_at: int | None = None) -> RunFolder:
    """Three epochs of six steps each."""
    known = fields.hints(type(make_method(method)))
    settings = {k: v for k, v in FAST.items() if k != "interval" or k in known}
    if method == "revar":
        settings = {**settings, "unlabelled": "pooled", "unlabelled_from": "0.5"}
    steps = iter(range(1, 1000))
    return train(
        str(archive), out, method=method, epochs=3, settings=settings, resume=True,
        stop=lambda: next(steps) == stop_at,
    )  # fmt: skip


@pytest.mark.parametrize("method", [entry.name for entry in METHODS])
@pytest.mark.parametrize(
    "stops", [[1], [6], [12], [17], [18], [5, 1, 6, 3]], ids=lambda stops: "-".join(map(str, stops))
)
def test_stopped_after_some_steps(
    method: str, stops: list[int], archive: Path, tmp_path: Path
) -> None:
    fit(archive, tmp_path / "whole", method)
    for step in stops:
        with pytest.raises(InterruptedRun):
            fit(archive, tmp_path / "run", method, step)
        assert not RunFolder(tmp_path / "run").finished
    fit(archive, tmp_path / "run", method)
    assert differences(tmp_path / "whole", tmp_path / "run") == []

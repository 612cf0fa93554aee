"""Steps that are replayed: the same run, bit by bit, whatever the method."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from revar import SelectiveClassifier, fitting
from revar.registry import METHODS
from revar.replay import ReplayedSteps
from support.problems import blobs
from support.threads import one_thread

CPU = torch.device("cpu")
NEVER = {"fsr", "fsr-full"}
"""Methods whose steps are chosen on the host."""


class Again:
    """Stands in for a GPU's recorder: it repeats the very calls, knowing what the host knew then.

    A method that looks at more of the clock than its kind says, or takes a batch that is not put
    into its place, trains otherwise with it.
    """

    def record(self, operations: Callable[[], None]) -> Callable[[], None]:
        """The calls themselves."""
        return operations


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[ReplayedSteps]:
    """Replay all runs on the CPU; what replayed them."""
    made: list[ReplayedSteps] = []

    @contextmanager
    def replaying(device: torch.device, *, wanted: bool) -> Iterator[ReplayedSteps]:
        made.append(ReplayedSteps(Again(), device))
        yield made[-1]

    monkeypatch.setattr(fitting, "replaying", replaying)
    return made


def trained(method: str, **settings: Any) -> SelectiveClassifier:
    """A short run with batches of two sizes."""
    x, y = blobs(230)
    weight = np.linspace(0.5, 1.5, len(y)).astype(np.float32)
    with one_thread():
        return SelectiveClassifier(method, epochs=8, batch_size=24, random_state=0, **settings).fit(
            x, y, sample_weight=weight
        )


def state_of(model: SelectiveClassifier) -> dict[str, torch.Tensor]:
    """All that was learned."""
    return model.model_.networks.state_dict()


@pytest.mark.parametrize("method", [entry.name for entry in METHODS])
def test_a_replayed_run_is_the_same_run(method: str, request: pytest.FixtureRequest) -> None:
    plain = state_of(trained(method))
    made: list[ReplayedSteps] = request.getfixturevalue("replayed")
    again = state_of(trained(method))
    assert list(plain) == list(again)
    for name, value in plain.items():
        assert torch.equal(value, again[name]), name
    assert (made[0].replayed > 20) == (method not in NEVER)

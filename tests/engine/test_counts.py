"""What a training step does, counted: passes of each network, and times the host waits.

Seconds depend on the machine; these do not. A change that raises a count must say why.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from revar import ReVaR, SelectiveClassifier, training
from revar.methods.base import Bilevel
from support.operations import Operations
from support.problems import blobs
from support.threads import one_thread

WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique")
"""Operations whose result the host needs before it can go on."""
READING = ("tolist", "numpy", "cpu")
"""Methods of a tensor that copy it to the host."""


class Waits(TorchDispatchMode):
    """Counts them; optimisers keep their own step counts on the host, which wait for nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.places: Counter[str] = Counter()

    def note(self) -> None:
        """Something waited here."""
        frames = traceback.extract_stack()[:-2]
        if not any("torch/optim" in frame.filename for frame in frames):
            ours = [f for f in frames if "site-packages" not in f.filename]
            self.places[f"{ours[-1].filename}:{ours[-1].lineno}"] += 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(func.name().startswith(f"aten::{name}") for name in WAITING):
            self.note()
        return func(*args, **(kwargs or {}))


@contextmanager
def waits() -> Iterator[Counter[str]]:
    """Places where the host waits for the device."""
    with pytest.MonkeyPatch.context() as patch, Waits() as counter:
        for name in READING:
            patch.setattr(torch.Tensor, name, _noting(getattr(torch.Tensor, name), counter))
        yield counter.places


def _noting(inner: Any, counter: Waits) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        counter.note()
        return inner(*args, **kwargs)

    return call


@contextmanager
def counted(net: nn.Module | None, name: str, counts: Counter[str], method: str) -> Iterator[None]:
    """Count the calls of one method of a network."""
    if net is None:
        yield
        return
    inner = getattr(net, method)

    def call(*args: Any, **kwargs: Any) -> Any:
        counts[name] += 1
        return inner(*args, **kwargs)

    setattr(net, method, call)
    try:
        yield
    finally:
        delattr(net, method)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Counter[str], Counter[str]]]:
    """Of every step: its kind, the passes it took and the places where it waited."""
    found: list[tuple[str, Counter[str], Counter[str]]] = []
    plain = training.train_step

    def step(state: Any, method: Any, task: Any, budget: Any, batch: Any) -> None:
        clock = training.clock_of(state, budget)
        due = isinstance(method, Bilevel) and method.outer_due(clock)
        passes: Counter[str] = Counter()
        networks = state.networks
        with (
            counted(networks.classifier, "trunk", passes, "forward_features"),
            counted(networks.classifier, "head", passes, "forward_head"),
            counted(networks.scorer, "scorer", passes, "forward"),
            waits() as places,
        ):
            plain(state, method, task, budget, batch)
        found.append(("meta" if due else "plain", passes, places))

    monkeypatch.setattr(training, "train_step", step)
    return found


PASSES: dict[str, dict[str, dict[str, int]]] = {
    "erm": {"plain": {"trunk": 1, "head": 1}},
    "sat": {"plain": {"trunk": 1, "head": 1}},
    # The second pass of the head is the deterministic one that g reads.
    "trajectory": {"plain": {"trunk": 1, "head": 2, "scorer": 1}},
    "revar": {
        "plain": {"trunk": 1, "head": 2, "scorer": 1},
        # The step itself, which is the look-ahead; meta gradient (T heads on one trunk), forward
        # mode, and evidence for the candidates.
        "meta": {"trunk": 4, "head": 6, "scorer": 2},
    },
    "revar, own look-ahead": {
        "plain": {"trunk": 1, "head": 2, "scorer": 1},
        # The look-ahead and evidence for its weights are two more.
        "meta": {"trunk": 6, "head": 8, "scorer": 3},
    },
    "revar-paper": {
        "plain": {"trunk": 1, "head": 1, "scorer": 1},
        # Look-ahead, meta gradient, forward mode, and the step itself; g reads the inputs.
        "meta": {"trunk": 4, "head": 5, "scorer": 2},
    },
    "revar-paper, shared": {
        "plain": {"trunk": 1, "head": 1, "scorer": 1},
        # The step itself is the look-ahead, and g's one pass serves both; the alignments follow the
        # graph of the step, and take no pass.
        "meta": {"trunk": 2, "head": 3, "scorer": 1},
    },
    "revar-paper on features, shared": {
        "plain": {"trunk": 1, "head": 1, "scorer": 1},
        # A deterministic pass more, whose features g is taught on.
        "meta": {"trunk": 3, "head": 3, "scorer": 1},
    },
    "revar-paper on features, shared, no batch norm": {
        "plain": {"trunk": 1, "head": 1, "scorer": 1},
        # The training pass has the features of a deterministic one.
        "meta": {"trunk": 2, "head": 3, "scorer": 1},
    },
}
SHARED = replace(ReVaR.paper(), shares_gradient=True)
METHODS: dict[str, ReVaR] = {
    "revar, own look-ahead": ReVaR(shares_gradient=False),
    "revar-paper, shared": SHARED,
    "revar-paper on features, shared": replace(SHARED, scorer="features"),
    "revar-paper on features, shared, no batch norm": replace(SHARED, scorer="features"),
}


@pytest.mark.parametrize("method", PASSES)
def test_passes_of_a_step(method: str, steps: list[tuple[str, Counter[str], Counter[str]]]) -> None:
    x, y = blobs(200)
    backbone = "perceptron" if method.endswith("no batch norm") else "mlp"
    with one_thread():
        SelectiveClassifier(
            METHODS.get(method, method), backbone=backbone, epochs=8, batch_size=32, random_state=0
        ).fit(x, y)
    # The warm-up comes first: what a step costs later is what counts.
    last = {kind: passes for kind, passes, _ in steps[len(steps) // 2 :]}
    assert {kind: dict(passes) for kind, passes in last.items()} == PASSES[method]


@pytest.mark.parametrize(
    "method", ["erm", "sat", "trajectory", "vr", "mwn", "l2r", "revar", "revar-paper"]
)
def test_no_step_waits_for_the_device(
    method: str, steps: list[tuple[str, Counter[str], Counter[str]]]
) -> None:
    x, y = blobs(200)
    with one_thread():
        SelectiveClassifier(method, epochs=8, batch_size=32, random_state=0).fit(x, y)
    assert sum((places for *_, places in steps), Counter()) == Counter()
    assert len(steps) > 20


def test_a_wait_would_be_seen() -> None:
    x = torch.ones(3)
    for wait in (
        lambda: x.sum().item(),
        lambda: bool(x.any()),
        lambda: x.tolist(),
        lambda: x.cpu(),
    ):
        with waits() as places:
            wait()
        assert sum(places.values()) == 1
        assert "test_counts" in next(iter(places))


MOST: dict[str, dict[str, int]] = {
    "erm": {"plain": 145},
    "features": {"plain": 161, "meta": 440},
    "evidence": {"plain": 174, "meta": 462},
    "trajectory": {"plain": 295},
}
"""Operations of a step for a small net, which takes as long as they are many; a few to spare."""


@pytest.mark.parametrize("name", MOST)
def test_operations_of_a_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, found = training.train_step, Counter[str]()

    def step(state: Any, method: Any, task: Any, budget: Any, batch: Any) -> None:
        due = training.outer_due(state, method, training.clock_of(state, budget))
        with Operations() as operations:
            plain(state, method, task, budget, batch)
        # The last ones count: the first make what is kept, and begin with a warm-up.
        found["meta" if due else "plain"] = operations.counts.total()

    monkeypatch.setattr(training, "train_step", step)
    method: ReVaR | str = name
    if name in ("features", "evidence"):
        method = replace(ReVaR.paper(), scorer=name, shares_gradient=True)  # type: ignore[arg-type]
    x, y = blobs(400)
    with one_thread():
        SelectiveClassifier(method, backbone="mlp", epochs=8, batch_size=32, random_state=0).fit(
            x, y
        )
    assert all(found[kind] <= most for kind, most in MOST[name].items()), dict(found)

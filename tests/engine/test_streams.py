"""What may go on beside other work: in which order, and of what it reads nothing is made meanwhile.

Whether a GPU then computes the same is told by test_replay.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import revar.methods.revar
from revar import streams
from revar.fitting import build_networks
from revar.functional import mode
from revar.methods.revar import ReVaR
from revar.nets.base import Dropout
from revar.recipe import Budget, Recipe
from revar.streams import Branch
from revar.types import Batch, Task
from support.feeds import CLOCK, FixedFeeds

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class Stream:
    """One that tells what it was asked."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self._told = name, told

    def record_event(self) -> str:
        """Remember what it has been given so far."""
        self._told.append(f"{self.name} is remembered")
        return f"what {self.name} had"

    def wait_event(self, event: str) -> None:
        """Wait for what was remembered."""
        self._told.append(f"{self.name} waits for {event}")

    def wait_stream(self, other: Stream) -> None:
        """Wait for what another has been given so far."""
        self._told.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What becomes of streams while a step is recorded."""
    found: list[str] = []
    usual, side = Stream("usual", found), Stream("side", found)

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        found.append(f"on {stream.name}")
        try:
            yield
        finally:
            found.append(f"off {stream.name}")

    monkeypatch.setattr(streams, "stream_for", lambda *_: side)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: usual)
    monkeypatch.setattr(torch.cuda, "stream", on)
    return found


BEGUN, REST = "usual is remembered", ["side waits for what usual had", "on side"]


def test_a_branch_waits_for_what_came_before_and_is_waited_for(told: list[str]) -> None:
    branch = Branch(GPU)
    told.append("the losses")
    with branch.joined():
        told.append("the weights")
    joined = ["off side", "usual waits for side"]
    assert told == [BEGUN, "the losses", *REST, "the weights", *joined]


def test_a_branch_that_fails_is_joined_and_one_that_is_not_taken_is_none(told: list[str]) -> None:
    """Or what went wrong could not be told: a recording does not end while a branch is open."""
    Branch(GPU)
    assert told == [BEGUN]
    with pytest.raises(ValueError, match="a net that decides"), Branch(GPU).joined():
        raise ValueError("a net that decides on the host")
    assert told == [BEGUN, BEGUN, *REST, "off side", "usual waits for side"]


def test_on_a_cpu_all_is_in_line(told: list[str]) -> None:
    with Branch(CPU).joined():
        pass
    assert told == []


def test_a_step_that_is_not_recorded_is_in_line(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with Branch(GPU).joined():
        pass
    assert told == []


class Order(TorchDispatchMode):
    """Whether a branch reads what is made, or changed, beside it: there no order is certain."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.where: Literal["before", "beside", "branch", "after"] = "before"
        self.read: set[str] = set()
        self.branches = 0
        self._late: dict[int, Tensor] = {}
        self._kept: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Remember what is made and changed beside the branch, look for it inside."""
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        given, made = (
            [t for t in tree_leaves(p) if isinstance(t, Tensor)] for p in ((args, kwargs), found)
        )
        # So that no address is used twice.
        self._kept.append((given, made))
        # Views compute nothing.
        if self.where == "branch" and not func.is_view:
            late = [t for t in given if t.untyped_storage().data_ptr() in self._late]
            self.read |= {str(func)} if late else set()
        if self.where == "beside":
            schema = zip(func._schema.arguments, args, strict=False)
            changed = [v for a, v in schema if a.alias_info and a.alias_info.is_write]
            for tensor in (*made, *(t for t in tree_leaves(changed) if isinstance(t, Tensor))):
                self._late[tensor.untyped_storage().data_ptr()] = tensor
        return found


@pytest.mark.parametrize("scorer", ["network", "features", "evidence"])
@pytest.mark.parametrize(
    "backbone", ["resnet20", "mobilenetv3_small_050", "mobilenetv4_conv_small"]
)
@pytest.mark.parametrize("half", [False, True], ids=["single", "half"])
@pytest.mark.parametrize("learns", [False, True], ids=["asked", "learns"])
def test_a_branch_reads_nothing_that_is_made_beside_it(
    backbone: str, scorer: Literal["network", "features", "evidence"], *, half: bool, learns: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Some nets have layers between trunk and features, which the losses take as well.

    Where g learns from what it weights, only one that reads inputs has a branch.
    """
    order = Order()

    class Watched(Branch):
        def __init__(self, device: torch.device) -> None:
            super().__init__(device)
            order.where, order.branches = "beside", order.branches + 1

        @contextmanager
        def joined(self) -> Iterator[None]:
            order.where = "branch"
            yield
            order.where = "after"

    monkeypatch.setattr(revar.methods.revar, "Branch", Watched)
    method = ReVaR(
        scorer=scorer, scorer_backbone="resnet20" if scorer == "network" else None, warmup=0.0,
        candidates="train" if learns else "held_out", interval=1,
    )  # fmt: skip
    task = Task(n_classes=3, input_shape=(3, 32, 32))
    recipe = Recipe(method=method, backbone=backbone, dropout=Dropout(), budget=Budget())
    x, y = torch.randn(6, 3, 32, 32), torch.arange(6) % 3
    networks = build_networks(recipe, task, x, None, CPU)
    before = {n: v.clone() for n, v in networks.classifier.state_dict().items()}
    batch = Batch(x, y, torch.arange(6))
    with (
        order,
        torch.autocast("cpu", torch.bfloat16, enabled=half),
        mode(networks.classifier, dropout=True, statistics=False),
    ):
        result = method.loss(networks, task, batch, FixedFeeds(x, y, x, x, y), CLOCK)
    assert order.branches == (0 if learns and scorer != "network" else 1)
    assert order.where == ("after" if order.branches else "before")
    assert (result.scored is not None) is learns
    assert result.weights is not None
    assert order.read == set()
    counts = [n for n in before if n.endswith("num_batches_tracked")]
    after = networks.classifier.state_dict()
    assert {int(after[n] - before[n]) for n in counts} == {1}, "statistics were moved twice"

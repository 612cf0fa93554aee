"""What may go on beside other work; whether it computes the same is told by test_replay.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from revar import streams
from revar.streams import Branch

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class Stream:
    """One that tells what it was asked."""

    device = GPU

    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self._told = name, told

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
        yield
        found.append(f"off {stream.name}")

    monkeypatch.setattr(streams, "_side", lambda _: side)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: usual)
    monkeypatch.setattr(torch.cuda, "stream", on)
    return found


def test_a_branch_waits_for_what_came_before_and_is_waited_for(told: list[str]) -> None:
    branch = Branch(GPU)
    told.append("the losses")
    with branch.joined():
        told.append("the weights")
    assert told == [
        "side waits for usual", "the losses", "on side", "the weights", "off side",
        "usual waits for side",
    ]  # fmt: skip


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

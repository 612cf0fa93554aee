"""Where a recorded step goes back to in its random numbers, by generators that only count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch

from revar import spares
from revar.randomness import RandomState, preserved
from revar.spares import Positions, Spares, recording, watched, watching

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")


class Counting:
    """A GPU's generator, of which only the place is known; a graph sees states, not numbers."""

    def __init__(self, device: object = None) -> None:
        self.state = {"seed": 7, "offset": 0}

    def get_offset(self) -> int:
        return self.state["offset"]

    def set_offset(self, offset: int) -> None:
        self.state["offset"] = offset

    def get_state(self) -> torch.Tensor:
        return torch.tensor([self.state["seed"], self.state["offset"]])

    def set_state(self, state: torch.Tensor) -> None:
        self.state.update(zip(("seed", "offset"), state.tolist(), strict=True))

    def graphsafe_get_state(self) -> dict[str, int]:
        return self.state

    def graphsafe_set_state(self, state: dict[str, int]) -> None:
        self.state = state


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """The default generator of a GPU that is not there."""
    made = Counting()
    made.set_offset(100)
    monkeypatch.setattr(torch.cuda, "default_generators", (made,))
    monkeypatch.setattr(torch, "Generator", Counting)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda _: made.get_state())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, _: made.set_state(state))
    return made


class Steps:
    """A step that draws, goes back to its middle and to its beginning, and notes what it drew."""

    def __init__(self, default: Counting) -> None:
        self.default = default
        self.places: list[tuple[dict[str, int], int]] = []
        """Whose number was drawn, and how many of it had been drawn in the step before that."""

    def draw(self) -> None:
        state = self.default.state
        drawn = sum(owner is state for owner, _ in self.places)
        self.places.append((state, 4 * drawn))
        if recording() is None:
            state["offset"] += 4

    def __call__(self) -> None:
        with preserved(GPU) as start:
            self.draw()
            middle = RandomState.capture(GPU)
            self.draw()
            with start.again():
                self.draw()
            self.draw()
            with middle.again():
                self.draw()
                with start.again():
                    self.draw()
                self.draw()
            self.draw()
        self.draw()


def expected(start: int) -> list[int]:
    """Offsets of the numbers that such a step draws."""
    return [start + 4 * k for k in (0, 1, 0, 2, 1, 0, 2, 3, 0)]


def drawn_as_usual(default: Counting) -> tuple[list[int], Positions]:
    found: list[int] = []

    class Noting(Steps):
        def draw(self) -> None:
            found.append(self.default.get_offset())
            self.default.state["offset"] += 4

    with watched(GPU) as positions:
        Noting(default)()
    return found, positions


def test_a_step_as_usual_goes_back(default: Counting) -> None:
    found, positions = drawn_as_usual(default)
    assert found == expected(100)
    # Its beginning once, its middle once; three blocks and the end go back.
    assert (positions.remembered, positions.returns) == ([0, 4], 4)
    assert default.get_offset() == 104


def test_a_recorded_step_draws_the_same_numbers_wherever_it_begins(default: Counting) -> None:
    _, positions = drawn_as_usual(default)
    made = Spares(GPU, positions)
    own, step = default.state, Steps(default)
    with made.recording():
        step()
    assert default.state is own, "the default generator has its own state again"
    for start in (104, 400):
        default.set_offset(start)
        made.begin()
        # What a graph draws: from each generator, from where that stands.
        found = [owner["offset"] + before for owner, before in step.places]
        assert found == expected(start)
        for owner in {id(owner): owner for owner, _ in step.places}.values():
            owner["offset"] += 4 * sum(each is owner for each, _ in step.places)
        made.end()
        assert default.get_offset() == start + 4


@contextmanager
def being_recorded(default: Counting, positions: Positions) -> Iterator[None]:
    with Spares(GPU, positions).recording():
        yield


def test_a_step_that_does_more_than_the_one_watched_cannot_be_recorded(default: Counting) -> None:
    seen = Positions(cast("Any", default))
    seen.remember()
    with being_recorded(default, seen):
        state = RandomState.capture(GPU)
        with pytest.raises(RuntimeError, match="remembers its generators more often"):
            RandomState.capture(GPU)
        with pytest.raises(RuntimeError, match="restores its generators more often"):
            state.restore()
    assert recording() is None


def test_a_cpu_remembers_nothing() -> None:
    with watched(CPU) as positions, preserved(CPU):
        torch.rand(1)
    assert positions.remembered == []


def test_nobody_watches_after_a_step_that_failed() -> None:
    def fails() -> None:
        with watched(CPU) as positions:
            assert watching() is positions
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert watching() is spares._NOBODY


def test_a_block_from_an_earlier_state_leaves_the_later_one() -> None:
    torch.manual_seed(3)
    start = RandomState.capture(CPU)
    first, second = torch.rand(2)
    with start.again():
        assert torch.rand(1) == first
    third = torch.rand(1)
    start.restore()
    assert torch.equal(torch.rand(3), torch.stack([first, second, third[0]]))

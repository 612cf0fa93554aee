"""Work that the device may do beside other work.

Small kernels leave most of a GPU idle, and a network that weights examples reads what is there long
before its weights are needed. In a step that is recorded (`revar.replay`) such work becomes a
branch of its own: the same kernels on the same numbers, in an order the device chooses. Elsewhere
the host is what takes long, and everything stays in line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Literal

import torch


@cache
def stream_for(work: Literal["steps", "branch"], device: torch.device) -> torch.cuda.Stream:
    """Of a GPU: one for each kind of work, for which libraries keep one workspace."""
    assert work in ("steps", "branch")
    return torch.cuda.Stream(device)


class Branch:
    """A point in a step from which other work may go on, too.

    What the branch reads must be there where it begins, and stay until it is joined. That goes for
    what is kept on the way, too: half-precision copies of weights, and statistics.

    Args:
        device: of the step.
    """

    def __init__(self, device: torch.device) -> None:
        recorded = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self._device = device
        self._begun = torch.cuda.current_stream(device).record_event() if recorded else None

    def joined(self) -> AbstractContextManager[None]:
        """A block of the branch; what comes after it waits for it."""
        return nullcontext() if self._begun is None else self._joined(self._begun)

    @contextmanager
    def _joined(self, begun: torch.cuda.Event) -> Iterator[None]:
        side = stream_for("branch", self._device)
        side.wait_event(begun)
        try:
            with torch.cuda.stream(side):
                yield
        finally:
            # Whatever happened in the block: a recording cannot end before all of it is joined.
            torch.cuda.current_stream(self._device).wait_stream(side)

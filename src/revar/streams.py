"""Work that the device may do beside other work.

Small kernels leave most of a GPU idle, and a network that weights examples reads what is there long
before its weights are needed. In a step that is recorded (`revar.replay`) such work becomes a
branch of its own: the same kernels on the same numbers, in an order the device chooses. Elsewhere
the host is what takes long, and everything stays in line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


@cache
def _side(device: torch.device) -> torch.cuda.Stream:
    """The second stream of a GPU: one, so that libraries keep one workspace for it."""
    return torch.cuda.Stream(device)


class Branch:
    """A point in a step from which other work may go on, too; every branch has to be joined.

    What the branch reads must be there where it begins, and stay until it is joined.

    Args:
        device: of the step.
    """

    def __init__(self, device: torch.device) -> None:
        recorded = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self._stream = _side(device) if recorded else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(device))

    @contextmanager
    def joined(self) -> Iterator[None]:
        """A block of the branch; what comes after it waits for it."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

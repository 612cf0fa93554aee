"""A request that is not answered: a status and one sentence."""

from __future__ import annotations

import math


class Refused(Exception):  # noqa: N818  (it is an answer, not a fault of ours)
    """Becomes the answer ``{"error": sentence}``.

    Attributes:
        status: of HTTP.
        sentence: what, its value, the way out.
        headers: to send along.
    """

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        # One line, whatever a client or a library put into it.
        self.sentence = " ".join(sentence.split())[:500]
        self.headers = headers or {}


def busy(sentence: str, seconds: float) -> Refused:
    """503, with the time after which there should be room again."""
    return Refused(503, sentence, {"Retry-After": str(max(1, min(60, math.ceil(seconds))))})

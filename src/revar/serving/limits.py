"""How much is taken in at once, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from revar import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server takes on.

    Attributes:
        max_batch: most examples of one forward pass.
        max_wait: seconds an example waits for others that are on their way.
        queue: most examples that wait for a forward pass; beyond it 503.
        max_items: most examples of one request; beyond it 413.
        max_bytes: largest body of a request; beyond it 413.
        max_pixels: largest picture, before it is resized; beyond it 413.
        timeout: seconds for one request, from its first byte to its answer.
    """

    max_batch: int = 64
    max_wait: float = 0.005
    queue: int = 1024
    max_items: int = 256
    max_bytes: int = 32_000_000
    max_pixels: int = 40_000_000
    timeout: float = 30.0

    def __post_init__(self) -> None:
        fields.check(self)
        for name in ("max_batch", "max_items", "max_bytes", "max_pixels"):
            fields.require(getattr(self, name) >= 1, self, name, "be at least 1")
        fields.require(0.0 <= self.max_wait <= 10.0, self, "max_wait", "be in [0, 10] seconds")
        fields.require(0.0 < self.timeout <= 3600.0, self, "timeout", "be in (0, 3600] seconds")
        fields.require(
            self.queue >= self.max_items, self, "queue", f"hold one request of {self.max_items}"
        )

    @property
    def held_bytes(self) -> int:
        """Most bytes of bodies that are kept at once, of all requests together."""
        return 8 * self.max_bytes

"""One model at work: reads requests, batches them, decides, counts."""

from __future__ import annotations

import asyncio
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from torch import Tensor

from revar.serving.batching import Batcher
from revar.serving.bodies import BodyReader
from revar.serving.deciding import Decider, Decisions
from revar.serving.limits import Limits
from revar.serving.metrics import Metrics
from revar.serving.refusals import Refused, busy

_LONG = 20_000
"""Probabilities in an answer from which on it is written in a thread."""


class Service:
    """Everything behind the routes.

    Attributes:
        decider: the model.
        limits: what it takes on.
        metrics: what is counted.
    """

    def __init__(self, decider: Decider, limits: Limits, metrics: Metrics) -> None:
        self.decider, self.limits, self.metrics = decider, limits, metrics
        self._threads = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="read")
        self._reader = BodyReader(decider.model.inputs, limits, self._threads)
        self._batcher = Batcher(self._decide, limits, metrics.forward)
        self._started = time.monotonic()
        self._accepted = 0
        metrics.queue(lambda: self._batcher.waiting)

    def _decide(self, x: Tensor) -> Decisions:
        found = self.decider.decide(x)
        self.metrics.decided(found)
        return found

    def start(self) -> None:
        """Begin; needs a running loop."""
        self._batcher.start()

    async def close(self) -> None:
        """Finish what was accepted, then stop."""
        await self._batcher.close()
        self._threads.shutdown()

    async def predict(self, request: Request) -> bytes:
        """The answer to a request, as JSON.

        Raises:
            Refused: whatever is wrong with it, or with the time it came.
        """
        seconds = self.limits.timeout
        until = asyncio.get_running_loop().time() + seconds
        with self._batcher.expecting():
            try:
                async with asyncio.timeout_at(until):
                    examples = await self._reader.read(request)
            except TimeoutError as error:
                msg = f"the request was not complete after {seconds:g} seconds"
                raise Refused(408, msg, {"Connection": "close"}) from error
            decided = self._batcher.submit(examples.x)
        self._accepted += 1
        try:
            async with asyncio.timeout_at(until):
                decisions = await decided
        except TimeoutError as error:
            raise busy(f"no answer after {seconds:g} seconds: try again later", 5.0) from error
        finally:
            self._accepted -= 1

        def written() -> bytes:
            answers = self.decider.answers(examples, decisions)
            return json.dumps({"predictions": answers}, ensure_ascii=False).encode()

        if decisions.probabilities.size <= _LONG:
            return written()
        return await asyncio.get_running_loop().run_in_executor(self._threads, written)

    def health(self) -> dict[str, Any]:
        """Whether it works; nothing that is a secret."""
        last = self.metrics.drift.last
        return {
            "status": "ok",
            "seconds": round(time.monotonic() - self._started, 3),
            "accepted": self._accepted,
            "waiting": self._batcher.waiting,
            "drift": None if last is None else last.drifted,
        }

    def describe(self) -> dict[str, Any]:
        """The model, its rule, and the limits."""
        last = self.metrics.drift.last
        extra = {"limits": asdict(self.limits), "drift": None if last is None else last.message}
        return {**self.decider.describe(), **extra}

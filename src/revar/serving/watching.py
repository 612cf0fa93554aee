"""Around every request: how long, how it ended, and one sentence where it broke."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from revar.serving.metrics import Metrics

PATHS = ("/", "/predict", "/health", "/model", "/metrics", "/openapi.json")
_LOG = logging.getLogger("revar.serving")
_BROKEN = json.dumps({"error": "the server failed, which its log explains: it is not your fault"})


class Watching:
    """Counts requests, and answers in place of a stack trace.

    Attributes:
        app: what answers.
        metrics: what is told.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
            await send(message)

        # Clients choose paths: only known ones may become series.
        path = scope["path"] if scope["path"] in PATHS else "other"
        try:
            await self.app(scope, receive, watched)
        except Exception:
            _LOG.exception("a request to %s failed", path)
            if status:
                # Half an answer must not look like a whole one.
                raise
            await _apologise(watched)
        finally:
            self.metrics.request(path, status or 500, time.perf_counter() - began)


async def _apologise(send: Any) -> None:
    body = _BROKEN.encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""The routes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from revar import __version__
from revar.serving.deciding import Decider
from revar.serving.hosts import KnownHosts
from revar.serving.limits import Limits
from revar.serving.metrics import WINDOW, Metrics
from revar.serving.page import CONTENT_SECURITY_POLICY, PAGE
from revar.serving.refusals import Refused
from revar.serving.schema import PREDICT_BODY, Answers, Problem
from revar.serving.service import Service
from revar.serving.token import Token
from revar.serving.watching import Watching

_FRESH = {"Cache-Control": "no-store"}
_ROUTES = "POST /predict, GET /health, /model, /metrics and /"
_ABSENT = {404: "there is nothing at this address", 405: "this address takes another method"}
_CLOSED: dict[int | str, dict[str, Any]] = {401: {"model": Problem}}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 408, 413, 415, 422, 500, 503)
}


def create_app(
    decider: Decider,
    limits: Limits | None = None,
    *,
    token: Token | None = None,
    hosts: frozenset[str] | None = None,
    drift_window: int = WINDOW,
) -> FastAPI:
    """An application that answers for one model.

    Args:
        decider: the model.
        limits: what it takes on; the defaults if not given.
        token: what a client must know; nothing if not given.
        hosts: names under which clients may ask; any if not given.
        drift_window: examples of one look for drift.
    """
    metrics = Metrics(decider, window=drift_window)
    service = Service(decider, limits or Limits(), metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    # The pages for people that FastAPI makes load scripts from elsewhere.
    app = FastAPI(
        title="revar", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        description="A classifier that may abstain.",
    )  # fmt: skip
    if hosts is not None:
        app.add_middleware(KnownHosts, hosts=hosts)
    app.add_middleware(Watching, metrics=metrics)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _absent)

    def authorise(request: Request) -> None:
        if token is not None:
            token.check(request.headers.get("authorization"))

    @app.post("/predict", response_model=Answers, responses=_REFUSALS, openapi_extra=PREDICT_BODY)
    async def predict(request: Request) -> Response:
        """A label or "abstain" for each image or row."""
        authorise(request)
        return Response(await service.predict(request), 200, _FRESH, "application/json")

    @app.get("/health")
    async def health() -> Response:
        """Whether the server is up; open to everybody."""
        return _json({**service.health(), "token": token is not None})

    @app.get("/model", responses=_CLOSED)
    async def model(request: Request) -> Response:
        """What the model reads, its classes, and the rule by which it abstains."""
        authorise(request)
        return _json(service.describe())

    @app.get("/metrics", responses=_CLOSED)
    async def prometheus(request: Request) -> Response:
        """For Prometheus."""
        authorise(request)
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {**_FRESH, "Content-Security-Policy": CONTENT_SECURITY_POLICY}
        return Response(PAGE, 200, headers, "text/html; charset=utf-8")

    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _json({"error": error.sentence}, error.status, error.headers)


async def _absent(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = _ABSENT.get(error.status_code, "the request cannot be served")
    return _json({"error": f"{what}: try {_ROUTES}"}, error.status_code, dict(error.headers or {}))


def _json(
    content: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    # A client may have sent halves of characters, which a sentence then repeats.
    text = json.dumps(content, ensure_ascii=False).encode(errors="replace")
    return Response(text, status, {**_FRESH, **(headers or {})}, "application/json")

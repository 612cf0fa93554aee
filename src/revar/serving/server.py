"""The process: a socket, a loop, and an end that finishes what was accepted."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import uvicorn
from fastapi import FastAPI

from revar.errors import InputError
from revar.serving.limits import Limits

_CONNECTIONS = 1000
_IDLE = 15
"""Seconds that a connection without a request is kept."""
_GRACE = 5
_ENDING = (signal.SIGINT, signal.SIGTERM)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one.

    Raises:
        InputError: no such host, or the port is taken.
    """
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        # With its protocol named: asyncio turns Nagle's delay off only where it sees that.
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_CONNECTIONS)
        return listening
    except (OSError, OverflowError, UnicodeError) as error:
        if listening is not None:
            listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"cannot listen at {host} port {port}: {reason}; choose another --port or --host"
        raise InputError(msg) from error


def address_of(listening: socket.socket) -> str:
    """As one types it into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    return ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


@contextmanager
def _outlived() -> Iterator[None]:
    """Uvicorn repeats the signal that ended it, which would kill a process that ended well."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number in _ENDING:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve(
    app: FastAPI, listening: socket.socket, limits: Limits, ready: Callable[[], None]
) -> None:
    """Answer until SIGTERM or Ctrl-C, then finish what was accepted; a second one ends at once.

    Args:
        app: what answers.
        listening: where.
        limits: a request that is under way may take its whole time.
        ready: called when the first request can be answered.
    """
    config = uvicorn.Config(
        app, loop="asyncio", http="h11", ws="none", lifespan="on", log_config=None,
        log_level="warning", access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=_IDLE, limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=int(limits.timeout) + _GRACE,
    )  # fmt: skip
    with _outlived():
        _Server(config, ready).run(sockets=[listening])

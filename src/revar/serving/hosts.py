"""Which names a server that only this machine may reach answers to.

A page of a stranger can point a name of its own at 127.0.0.1 and then ask as if it were at home
(DNS rebinding). Its requests still carry that name.
"""

from __future__ import annotations

import json

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


def host_name(header: str) -> str:
    """Without the port.

    >>> host_name("localhost:8000"), host_name("[::1]:8000"), host_name("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdigit() else header).lower()


def bracketed(address: str) -> str:
    """An address as a browser sends it.

    >>> bracketed("::1"), bracketed("127.0.0.2")
    ('[::1]', '127.0.0.2')
    """
    return f"[{address}]" if ":" in address else address.lower()


class KnownHosts:
    """Refuses requests under other names.

    Attributes:
        app: what answers the others.
        hosts: the names.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            name = host_name(Headers(scope=scope).get("host", ""))
            if name not in self.hosts:
                sentence = (
                    "this server answers this machine only, and was asked for under another name: "
                    "start it with --host to serve others"
                )
                body = json.dumps({"error": sentence})
                await Response(body, 421, media_type="application/json")(scope, receive, send)
                return
        await self.app(scope, receive, send)

"""``revar serve``"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from revar.errors import InputError
from revar.serving.limits import Limits


def serve(
    run: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    token_file: Path | None = None,
    device: str = "auto",
    ready: Callable[[str, list[str]], None],
) -> None:
    """Answer requests for one run until told to stop.

    Args:
        run: the run folder.
        host: to listen at; this machine alone unless told otherwise.
        port: 0 takes a free one.
        limits: of sizes, numbers and times.
        token_file: holds the token that clients must send; ``REVAR_TOKEN`` if not given.
        device: ``auto``, ``cpu``, ``cuda``, ...
        ready: is told the address and remarks for people, once requests are answered.

    Raises:
        InputError: no run, no extra, no such host, or a port that is taken.
    """
    try:
        from revar.serving.app import create_app
        from revar.serving.deciding import Decider
        from revar.serving.hosts import LOOPBACK, bracketed
        from revar.serving.server import address_of, is_loopback, listen
        from revar.serving.server import serve as answer
        from revar.serving.token import find_token
    except ImportError as error:
        msg = f'serving needs the extra "serve" ({error.name}): pip install "revar[serve]"'
        raise InputError(msg) from error
    limits = limits or Limits()
    token = find_token(token_file)
    listening = listen(host, port)
    try:
        decider = Decider.of(Path(run), device)
        remarks = [str(decider.describe()["note"])]
        if token is None and not is_loopback(listening):
            remarks.append("anybody who reaches this address may ask: set REVAR_TOKEN")
        hosts = LOOPBACK | {bracketed(host)} if is_loopback(listening) else None
        app = create_app(decider, limits, token=token, hosts=hosts)
        answer(app, listening, limits, lambda: ready(address_of(listening), remarks))
    finally:
        listening.close()

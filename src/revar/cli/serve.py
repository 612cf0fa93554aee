"""``revar serve``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from revar.cli.app import OUT, Device, Run, app, note
from revar.commands.checks import check_run
from revar.errors import InputError


@app.command()
def serve(
    run: Run,
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines ask.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a token that clients must send; or set REVAR_TOKEN."),
    ] = None,
    max_batch: Annotated[int, typer.Option(help="Most examples of one forward pass.")] = 64,
    max_wait: Annotated[
        float, typer.Option(help="Milliseconds to wait for others that are on their way.")
    ] = 5.0,
    queue: Annotated[int, typer.Option(help="Most examples that wait; then 503.")] = 1024,
    max_items: Annotated[int, typer.Option(help="Most examples of one request.")] = 256,
    max_megabytes: Annotated[float, typer.Option(help="Largest request.")] = 32.0,
    max_megapixels: Annotated[float, typer.Option(help="Largest picture.")] = 40.0,
    timeout: Annotated[float, typer.Option(help="Seconds for one request.")] = 30.0,
    device: Device = "auto",
) -> None:
    """Answer over HTTP: POST /predict, GET /health, /model, /metrics, and a page at /.

    The threshold is the run's own, from 'revar select'; without one everything
    is answered. SIGTERM and Ctrl-C finish what was accepted.

    Example:
    revar serve runs/photos --port 8000
    """
    check_run(run)
    if not 0 <= port <= 65_535:
        raise InputError(f"--port is {port}, it must be in [0, 65535]")
    if token_file is not None and not token_file.is_file():
        raise InputError(f'no token file at "{token_file}"')
    from revar.commands.serve import serve as run_serve
    from revar.serving.limits import Limits

    limits = Limits(
        max_batch=max_batch, max_wait=max_wait / 1000, queue=queue, max_items=max_items,
        max_bytes=round(max_megabytes * 1e6), max_pixels=round(max_megapixels * 1e6),
        timeout=timeout,
    )  # fmt: skip

    def ready(address: str, remarks: list[str]) -> None:
        for remark in remarks:
            note(remark)
        OUT.print(f"serving {run} at {address}", highlight=False, markup=False, soft_wrap=True)

    run_serve(
        run, host=host, port=port, limits=limits, token_file=token_file, device=device, ready=ready
    )
    note("stopped")

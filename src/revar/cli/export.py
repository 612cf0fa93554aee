"""``revar export``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from revar.cli.app import OUT, Json, Run, app, note, print_json
from revar.commands.checks import check_run
from revar.errors import InputError

_SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}


@app.command()
def export(
    run: Run,
    to: Annotated[str, typer.Option(help="onnx, or torch (torch.export).", show_default=False)],
    out: Annotated[Path, typer.Option(help="File to write, .onnx or .pt2.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Write a run as one graph that needs no revar: raw values to labels and decisions.

    The threshold is the run's own, from 'revar select'; without one everything
    is accepted. FILE.json beside it has the classes, the score and the threshold.

    Example:
    revar export runs/photos --to onnx --out photos.onnx
    """
    check_run(run)
    if to not in _SUFFIX:
        raise InputError(f'--to is "{to}": onnx or torch is needed')
    if out.suffix != _SUFFIX[to]:
        raise InputError(f'--to {to} writes a {_SUFFIX[to]} file, and --out is "{out.name}"')
    if out.exists():
        raise InputError(f'"{out}" exists: choose another --out')
    from revar.commands.export import export as run_export

    done = run_export(run, out)
    for remark in done.description["notes"]:
        note(remark)
    if as_json:
        print_json(done.description)
    else:
        OUT.print(f"{out}, described in {out}.json", highlight=False, markup=False, soft_wrap=True)

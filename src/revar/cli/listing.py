"""``revar list``"""

from __future__ import annotations

from typing import Annotated

import typer

from revar.cli.app import OUT, Json, app, print_json
from revar.errors import InputError


@app.command(name="list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="methods, scores, calibrators, backbones, datasets or tables.",
            show_default=False,
        ),
    ],
    timm: Annotated[
        str | None, typer.Option(help="With backbones: timm's names for this pattern.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Every name that can be typed: methods, scores, data sets, tables and so on."""
    from revar.commands.listing import list_names

    entries = list_names(kind, timm=timm)
    if as_json:
        print_json(entries)
        return
    if not entries:
        raise InputError(f'timm has no model that matches "{timm}"')
    from revar.report.terminal import names_table

    OUT.print(names_table(kind, entries))

"""``revar report``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from revar.cli.app import OUT, Json, app, note, print_json
from revar.commands.checks import check_columns, check_data, check_run


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="HTML file to write, its CSV beside it.")] = Path(
        "report.html"
    ),
    data: Annotated[
        list[str] | None,
        typer.Option(help="Where inputs of a test set are now, as --on; may be given again."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Column of a .csv of --data to break figures down by."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the page; the runs' names.")] = None,
    as_json: Json = False,
) -> None:
    """Write a page to choose an operating point on, one file that opens from disk.

    Curves, a slider over coverage or risk, confusions, calibration, training,
    examples and a model card, for one run or several side by side.

    Example:
    revar report runs/erm runs/revar --out page.html
    """
    for path in runs:
        check_run(path)
    for spec in data or []:
        check_data(spec)
    check_columns(data or [None], "--data", group=group)
    from revar.commands.report import report as run_report

    done = run_report(runs, out, data=data or [], group=group, title=title)
    if as_json:
        print_json(
            {
                "page": str(done.page), "csv": str(done.csv), "bytes": done.size,
                "notes": list(done.notes),
            }
        )  # fmt: skip
        return
    for text in done.notes:
        note(text)
    OUT.print(f"page  {done.page}", highlight=False, soft_wrap=True)
    OUT.print(f"csv   {done.csv}", highlight=False, soft_wrap=True)

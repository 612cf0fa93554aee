"""``revar paper NAME``: every table by its name, and cells from machine to machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from revar.cli.app import OUT, Device, Json, counting, note, print_json
from revar.cli.paper import Scale, paper
from revar.commands.checks import check_folder
from revar.published import published
from revar.tables.names import NAMES

if TYPE_CHECKING:
    from revar.tables.executors import Outcome


def _command(names: tuple[str, ...]) -> Callable[..., None]:
    def command(
        scale: Scale = "small",
        out: Annotated[
            Path | None,
            typer.Option(help="Folder of cells and tables; paper/SCALE if not given."),
        ] = None,
        seeds: Annotated[int | None, typer.Option(help="How many, if not the scale's own.")] = None,
        executor: Annotated[
            str | None,
            typer.Option(help="here, local (processes), ray, or none: train nothing."),
        ] = None,
        workers: Annotated[
            int | None,
            typer.Option(
                help="Runs at once; if not given as many as cores or a GPU's memory hold."
            ),
        ] = None,
        address: Annotated[str | None, typer.Option(help="Of a running Ray cluster.")] = None,
        device: Device = "auto",
        as_json: Json = False,
    ) -> None:
        _answer(names, scale, out, seeds, executor, workers, address, device, as_json=as_json)

    return command


def _answer(
    names: tuple[str, ...],
    scale: str,
    out: Path | None,
    seeds: int | None,
    executor: str | None,
    workers: int | None,
    address: str | None,
    device: str,
    *,
    as_json: bool,
) -> None:
    folder = out or Path("paper") / scale
    check_folder(folder)
    from revar.commands.tables import run_tables
    from revar.data.published import data_folder
    from revar.report.tables import LEGEND, standing_in, terminal

    data_folder()  # a wrong one is told once, and not by every run
    with counting("runs") as advance:

        def tell(done: int, total: int, outcome: Outcome | None) -> None:
            advance(done, total)
            if outcome is not None and outcome.reason is not None:
                cell = outcome.cell
                where = f"{cell.method} on {cell.data.name}, seed {cell.seed}"
                note(f"failed: {where}: {outcome.reason}")

        answers = run_tables(
            names, scale, folder, seeds=seeds, executor=executor,
            workers=workers, address=address, device=device, tell=tell,
        )  # fmt: skip
    if as_json:
        print_json({"tables": answers.records(), "folder": str(answers.folder)})
    else:
        for one, theirs in answers.tables:
            OUT.print(terminal(one.grid, one.answers, theirs))
            if one.grid.stands_for:
                OUT.print(standing_in(one.grid.stands_for), style="yellow")
        OUT.print(LEGEND, style="dim")
        note(f"written to {answers.folder}")
    for place, reason in answers.left_out.items():
        note(f"left out: {place}: {reason}")
    for failure in answers.failures:
        note(f"incomplete: {failure}")
    if answers.failures:
        raise typer.Exit(1)


for _name in NAMES:
    _help = f"{published(_name).caption}"
    paper.command(name=_name, help=_help)(_command((_name,)))
paper.command(
    name="all", help="Every table but controlled; runs that tables share are trained once."
)(_command(("all",)))


@paper.command(name="dr-images")
def dr_images(
    scale: Scale = "small",
    out: Annotated[
        Path | None, typer.Option(help="The --out of tables; paper/SCALE if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the run.")] = 0,
    coverage: Annotated[
        float, typer.Option(help="Share of the tune split to answer; sets the threshold.")
    ] = 0.8,
) -> None:
    """Retinal images of three countries with their U-Scores and what was decided.

    Reads a run of dr-coverage and trains nothing. Of its two pictures the one of
    DeepDRiD may be shown to others (CC BY-SA 4.0); the other may not.

    Example:
    revar paper dr-images --scale small --out tables
    """
    from revar.tables.images import draw_images
    from revar.tables.places import scale_of

    folder = out or Path("paper") / scale
    files = draw_images(
        scale_of(scale), folder / "cells", folder / "tables", seed=seed, coverage=coverage
    )
    for file in files:
        note(f"written to {file}")


@paper.command()
def pack(
    folder: Annotated[Path, typer.Argument(help="The --out of tables.")],
    file: Annotated[Path, typer.Argument(help="To write, such as cells.zip.")],
    light: Annotated[
        bool,
        typer.Option("--light", help="Figures only: no predictions, a hundredth of the size."),
    ] = False,
) -> None:
    """Put the finished cells of a folder into one small file, without weights."""
    from revar.tables.parcels import pack as run_pack

    packed = run_pack(folder / "cells", file, predictions=not light)
    note(f"{packed} cells packed into {file}")


@paper.command()
def merge(
    file: Annotated[Path, typer.Argument(help="That pack wrote.")],
    folder: Annotated[Path, typer.Argument(help="The --out of tables.")],
) -> None:
    """Add the cells of a file to a folder; those it has already stay as they are.

    A cell that came without predictions gets those of the file.
    """
    from revar.tables.parcels import merge as run_merge

    merged = run_merge(file, folder / "cells")
    told = f"{merged.new} cells added, {merged.completed} were completed"
    note(f"{told}, {merged.known} were there")

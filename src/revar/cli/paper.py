"""``revar paper``"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from revar.cli.app import OUT, Json, app, counting, note, print_json

paper = typer.Typer(
    help="The paper's tables and figures, as questions about runs.", no_args_is_help=True
)
app.add_typer(paper, name="paper")

Scale = Annotated[
    str,
    typer.Option(
        help="smoke: seconds, small: half an hour on an H200 for all tables, paper: days."
    ),
]


@paper.command()
def controlled(
    scale: Annotated[
        str, typer.Option(help="smoke: seconds, small: minutes on two cores, paper: hours.")
    ] = "small",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write to; paper/controlled-SCALE if not given."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many, if not the scale's own.")] = None,
    classifier: Annotated[
        str, typer.Option(help="The regression model f: linear or perceptron.")
    ] = "linear",
    workers: Annotated[int | None, typer.Option(help="Processes; all cores if not given.")] = None,
    as_json: Json = False,
) -> None:
    """What the U-Score learns from each source of uncertainty (section 4).

    Five scenarios of the paper and one of ours (3b), five methods, ten seeds.
    Writes controlled.csv, .md and .png, interpolation.csv and .png, and
    ablation.csv; finished runs are kept, so a second call goes on.

    Example:
    revar paper controlled --scale smoke --out study
    """
    from revar.commands.paper import run_controlled
    from revar.report.controlled import study_table

    folder = out or Path("paper") / f"controlled-{scale}"
    with counting("controlled study") as advance:
        study = run_controlled(
            scale, folder, seeds=seeds, classifier=classifier, workers=workers, advance=advance
        )
    if as_json:
        print_json(
            {
                "table": study.table, "interpolation": study.interpolation,
                "ablation": study.ablation, "folder": str(folder),
            }
        )  # fmt: skip
        return
    OUT.print(study_table(study.table))
    if study.ablation:
        OUT.print("\nablation in scenario 1, Spearman", highlight=False)
        for line in study.ablation:
            error = line["spearman_error"]
            spread = "" if math.isnan(error) else f" ± {error:.3f}"
            OUT.print(f"  {line['method']:<24} {line['spearman']:.3f}{spread}", highlight=False)
    OUT.print()
    for sentence in study.sentences:
        OUT.print(sentence, highlight=False)
    note(f"written to {folder}")

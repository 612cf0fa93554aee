"""``revar evaluate``, ``select`` and ``predict``: what to do with a trained run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from revar.cli.app import (
    OUT,
    Confidence,
    Device,
    Json,
    Run,
    Score,
    SkipUnreadable,
    Target,
    app,
    note,
    print_json,
)
from revar.commands.checks import check_columns, check_data, check_run, check_wish
from revar.errors import InputError


@app.command()
def evaluate(
    run: Run,
    on: Annotated[
        str | None, typer.Option(help="Labelled data, as --data of train; its test part if any.")
    ] = None,
    with_: Annotated[
        list[Path] | None,
        typer.Option("--with", help="A further run of an ensemble; may be given again."),
    ] = None,
    augmentations: Annotated[
        int | None, typer.Option(help="Average over so many augmented copies of each image.")
    ] = None,
    calibrator: Annotated[
        str | None,
        typer.Option(
            help="Calibrate first, by the tune split of a run that has one (trained with --set "
            "tune_fraction=0.1): 'revar list calibrators'."
        ),
    ] = None,
    target: Target = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Figures of a run, or of several together, on a test split or on other labelled data."""
    for path in (run, *(with_ or [])):
        check_run(path)
    if on is not None:
        check_data(on)
    check_columns((on,), target=target)
    if sum([bool(with_), augmentations is not None, calibrator is not None]) > 1:
        raise InputError("--with, --augmentations and --calibrator cannot be mixed: choose one")
    from revar.commands.calibrated import evaluate_calibrated
    from revar.commands.evaluate import evaluate as run_evaluate
    from revar.commands.mixtures import evaluate_augmented, evaluate_ensemble

    options: dict[str, Any] = {
        "on": on, "target": target, "skip_unreadable": skip_unreadable, "device": device,
    }  # fmt: skip
    if augmentations is not None:
        result = evaluate_augmented(run, augmentations, **options)
    elif calibrator is not None:
        result = evaluate_calibrated(run, calibrator, **options)
    elif with_:
        result = evaluate_ensemble([run, *with_], **options)
    else:
        result = run_evaluate(run, **options)
    if result.note:
        note(result.note)
    if as_json:
        print_json(result.figures)
        return
    from revar.report.terminal import evaluation_table

    OUT.print(evaluation_table(result.name, result.figures))


@app.command()
def select(
    run: Run,
    on: Annotated[
        str,
        typer.Option(help="Labelled data the run has not seen, as --data.", show_default=False),
    ],
    max_risk: Annotated[
        float | None, typer.Option(help="Most errors among the accepted, such as 0.05.")
    ] = None,
    confidence: Confidence = 0.95,
    coverage: Annotated[
        float | None, typer.Option(help="Or: share of inputs to accept, in (0, 1].")
    ] = None,
    score: Score = None,
    procedure: Annotated[
        str, typer.Option(help="fixed_sequence, or sgr (Geifman and El-Yaniv 2017).")
    ] = "fixed_sequence",
    target: Target = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Choose when to abstain, with a guarantee, and keep the threshold with the run.

    With --max-risk 0.05 --confidence 0.95: at most 5 % of the accepted inputs
    are wrong, or no threshold is set; over many draws of calibration data this
    fails at most once in twenty. The exit code is 1 where no threshold will do.

    Example:
    revar select runs/photos --on calibration/ --max-risk 0.05 --confidence 0.95
    """
    check_run(run)
    check_data(on)
    check_columns((on,), target=target)
    check_wish(coverage, max_risk, confidence)
    if coverage is None and max_risk is None:
        raise InputError("nothing is asked for: give --max-risk or --coverage")
    from revar import fields
    from revar.commands.select import select as run_select

    result = run_select(
        run, on=on, coverage=coverage, max_risk=max_risk, confidence=confidence,
        procedure=procedure, score=score, target=target,  # type: ignore[arg-type]
        skip_unreadable=skip_unreadable, device=device,
    )  # fmt: skip
    if as_json:
        print_json({**fields.to_json(result.threshold), "stored": result.stored})
    else:
        OUT.print(result.threshold.describe(), highlight=False, soft_wrap=True)
        note("kept with the run" if result.stored else "the run is left as it was")
    if not result.stored:
        raise typer.Exit(1)


@app.command()
def predict(
    run: Run,
    inputs: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="An image, a folder of images, an .npz with x, or a .csv.",
            show_default=False,
        ),
    ],
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Share of inputs to accept, in (0, 1]; by the run's calibration data, if any."
        ),
    ] = None,
    max_risk: Annotated[
        float | None,
        typer.Option(help="Most errors among the accepted, by the run's calibration data."),
    ] = None,
    confidence: Confidence = 0.95,
    score: Score = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write instead of the terminal.")
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
) -> None:
    """Labels, accept or abstain, and probabilities, as CSV.

    Columns: input, label, accepted, uncertainty, probability_<class>...
    The label is given for rejected inputs too.
    """
    check_run(run)
    check_data(inputs)
    check_wish(coverage, max_risk, confidence)
    if out is not None and out.exists():
        raise InputError(f'"{out}" exists: choose another --out')
    if out is not None and not out.parent.is_dir():
        raise InputError(f'no folder "{out.parent}" to write "{out.name}" in: choose another --out')
    from revar.commands.predict import predict as run_predict

    table = run_predict(
        run, inputs, coverage=coverage, max_risk=max_risk, confidence=confidence, score=score,
        skip_unreadable=skip_unreadable, device=device,
    )  # fmt: skip
    note(table.note)
    if out is None:
        table.write(sys.stdout)
    else:
        table.save(out)
        note(f"{table.accepted} of {len(table.rows)} accepted; written to {out}")

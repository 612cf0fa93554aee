"""The command line: strings to calls. Nothing heavy is imported before it is used."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console

from revar import __version__
from revar.commands.checks import (
    check_data,
    check_method,
    check_run,
    check_unused,
    check_wish,
)
from revar.errors import DataWarning, InputError

if TYPE_CHECKING:
    from revar.training import Observer

app = typer.Typer(
    name="revar",
    help="Classifiers that know when to stay silent.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# typer carries its own click since 0.25; what it exports tells which one is in use.
_ClickException: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
_arguments: list[str] = []
"""What the user typed, to say it again."""
_out = Console()
_err = Console(stderr=True, soft_wrap=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Go on without images that cannot be read.")
]
Confidence = Annotated[float, typer.Option(help="Chance that a limit on the risk holds.")]
Run = Annotated[Path, typer.Argument(help="A run folder.", show_default=False)]


def _print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _note(text: str) -> None:
    _err.print(text, style="dim", highlight=False, markup=False)


@contextmanager
def _watch(label: str) -> Iterator[Observer]:
    from revar.progress import Bar

    with Bar(_err, label) as bar:
        yield bar


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f'--set "{pair}" is not field=value, such as --set interval=5')
        settings[name.strip()] = value.strip()
    return settings


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        sys.stdout.write(f"revar {__version__}\n")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs and picture.")] = Path("revar-demo"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    epochs: Annotated[int, typer.Option(help="Epochs of each run.")] = 30,
    as_json: Json = False,
) -> None:
    """Train ERM and ReVaR on noisy digits and compare when they should stay silent.

    Under a minute on a laptop. Runs that are there already are reused.
    """
    from revar.commands.demo import SETS
    from revar.commands.demo import demo as run_demo

    result = run_demo(out, seed=seed, epochs=epochs, watch=_watch)
    if as_json:
        _print_json(result.figures)
        return
    from revar.report.terminal import auarc_table

    _out.print(auarc_table(result.figures, SETS))
    _out.print(f"picture  {result.figure}", highlight=False)
    for path in result.runs:
        _out.print(f"run      {path}", highlight=False)
    _out.print(f"next     revar evaluate {result.runs[-1]}", highlight=False)


@app.command()
def train(
    data: Annotated[
        str,
        typer.Option(
            help="A name of 'revar list datasets', a folder of class folders, an .npz (x, y, "
            "optional x_test, y_test, x_meta, y_meta, x_unlabelled, groups) or a .csv.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder to write. [default: runs/DATA-METHOD-seedSEED]"),
    ] = None,
    method: Annotated[str, typer.Option(help="A name of 'revar list methods'.")] = "revar",
    backbone: Annotated[
        str, typer.Option(help="A name of 'revar list backbones', or of timm.")
    ] = "auto",
    pretrained: Annotated[
        str | None,
        typer.Option(help="Start from a file of weights, or 'timm' from those timm has."),
    ] = None,
    frozen: Annotated[
        bool, typer.Option("--freeze", help="With --pretrained: train the last layer only.")
    ] = False,
    layer_decay: Annotated[
        float, typer.Option(help="Learning rate of each layer over that of the next, in (0, 1].")
    ] = 1.0,
    epochs: Annotated[int, typer.Option(help="Passes over the training data.")] = 30,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    target: Annotated[str | None, typer.Option(help="Label column of a .csv.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Column of a .csv whose rows stay in one split.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Column of a .csv that names image files.")
    ] = None,
    meta: Annotated[str | None, typer.Option(help="A meta set of its own, as --data.")] = None,
    unlabelled: Annotated[str | None, typer.Option(help="Inputs without labels.")] = None,
    label_noise: Annotated[
        str | None,
        typer.Option(
            help="Flip training labels, to try a method: symmetric:0.4, asymmetric:0.2, "
            "asymmetric-cifar10:0.2 or instance:0.2. Test sets and --meta stay clean."
        ),
    ] = None,
    clean_meta: Annotated[
        bool, typer.Option("--clean-meta", help="Keep --label-noise out of the meta set.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any field of method or budget: --set interval=15."),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an unfinished run.")] = False,
    device: Device = "auto",
) -> None:
    """Train a classifier that can abstain and write its run folder.

    Examples:
    revar train --data digits
    revar train --data photos/ --out runs/photos --epochs 60
    revar train --data patients.csv --target outcome --group patient
    """
    settings = _settings(set_ or [])
    folder = out or Path("runs") / f"{Path(data).stem.replace(':', '-')}-{method}-seed{seed}"
    check_method(method)
    check_data(data)
    if not resume:
        check_unused(folder)
    from revar.commands.evaluate import evaluate as run_evaluate
    from revar.commands.train import train as run_train
    from revar.report.terminal import evaluation_table
    from revar.signals import Signals
    from revar.training import InterruptedRun

    with Signals() as signals:
        try:
            with _watch(method) as observer:
                run = run_train(
                    data, folder, method=method, backbone=backbone, pretrained=pretrained,
                    frozen=frozen, layer_decay=layer_decay, epochs=epochs, seed=seed,
                    target=target, group=group, image=image, meta=meta,
                    unlabelled=unlabelled, label_noise=label_noise, clean_meta=clean_meta,
                    skip_unreadable=skip_unreadable,
                    settings=settings, resume=resume, device=device, observer=observer,
                    stop=signals.stop,
                )  # fmt: skip
        except InterruptedRun:
            again = shlex.join([*_arguments, *([] if resume else ["--resume"])])
            _note(f"stopped and saved; to go on: revar {again}")
            raise typer.Exit(signals.exit_code) from None
    if "test" in run.prediction_names():
        result = run_evaluate(run.path)
        _out.print(evaluation_table(result.name, result.figures))
    else:
        _note("the data has no test split: 'revar evaluate RUN --on DATA' gives figures")
    _out.print(f"run   {run.path}", highlight=False, soft_wrap=True)


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
        typer.Option(help="Calibrate first, by the tune split: 'revar list calibrators'."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Label column of a .csv; that of training if not given.")
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Figures of a run, or of several together, on a test split or on other labelled data."""
    for path in (run, *(with_ or [])):
        check_run(path)
    if on is not None:
        check_data(on)
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
        _note(result.note)
    if as_json:
        _print_json(result.figures)
        return
    from revar.report.terminal import evaluation_table

    _out.print(evaluation_table(result.name, result.figures))


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
    score: Annotated[
        str | None, typer.Option(help="A name of 'revar list scores'; the method's own default.")
    ] = None,
    procedure: Annotated[
        str, typer.Option(help="fixed_sequence, or sgr (Geifman and El-Yaniv 2017).")
    ] = "fixed_sequence",
    target: Annotated[
        str | None, typer.Option(help="Label column of a .csv; that of training if not given.")
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Choose when to abstain, with a guarantee, and keep the threshold with the run.

    With --max-risk 0.05 --confidence 0.95: at most 5 % of the accepted inputs are wrong, or no
    threshold is set; over many draws of calibration data this fails at most once in twenty. The
    exit code is 1 where no threshold will do.

    Example:
    revar select runs/photos --on calibration/ --max-risk 0.05 --confidence 0.95
    """
    check_run(run)
    check_data(on)
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
        _print_json({**fields.to_json(result.threshold), "stored": result.stored})
    else:
        _out.print(result.threshold.describe(), highlight=False, soft_wrap=True)
        _note("kept with the run" if result.stored else "the run is left as it was")
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
        float | None, typer.Option(help="Share of inputs to accept, in (0, 1].")
    ] = None,
    max_risk: Annotated[
        float | None,
        typer.Option(help="Most errors among the accepted, by the run's calibration data."),
    ] = None,
    confidence: Confidence = 0.95,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write instead of the terminal.")
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
) -> None:
    """Labels, accept or abstain, and probabilities, as CSV.

    Columns: input, label, accepted, uncertainty, probability_<class>... The label is kept when the
    input is rejected.
    """
    check_run(run)
    check_data(inputs)
    check_wish(coverage, max_risk, confidence)
    if out is not None and out.exists():
        raise InputError(f'"{out}" exists: choose another --out')
    from revar.commands.predict import predict as run_predict

    table = run_predict(
        run, inputs, coverage=coverage, max_risk=max_risk, confidence=confidence,
        skip_unreadable=skip_unreadable, device=device,
    )  # fmt: skip
    _note(table.note)
    if out is None:
        table.write(sys.stdout)
    else:
        with out.open("w", newline="", encoding="utf-8") as file:
            table.write(file)
        _note(f"{table.accepted} of {len(table.rows)} accepted; written to {out}")


@app.command(name="list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="methods, scores, calibrators, backbones or datasets.")
    ],
    timm: Annotated[
        str | None, typer.Option(help="With backbones: timm's names for this pattern.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Every name that can be typed: methods, scores, calibrators, backbones or datasets."""
    from revar.commands.listing import list_names

    entries = list_names(kind, timm=timm)
    if as_json:
        _print_json(entries)
        return
    if not entries:
        raise InputError(f'timm has no model that matches "{timm}"')
    from revar.report.terminal import names_table

    _out.print(names_table(kind, entries))


def _fail(message: str) -> int:
    _err.print(f"error: {' '.join(message.split())}", style="red", highlight=False, markup=False)
    return 2


def _fail_usage(error: Any) -> int:
    """What typer found wrong with the words of the command line, in one line."""
    if type(error).__name__ == "NoArgsIsHelpError":
        # Its message is the help itself.
        sys.stdout.write(error.format_message() + "\n")
        return 2
    path = error.ctx.command_path if getattr(error, "ctx", None) else "revar"
    return _fail(f"{error.format_message().rstrip('.')}: see '{path} --help'")


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code. Bad input is one line on stderr and code 2."""
    _arguments[:] = arguments
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        shown = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, DataWarning):
                _err.print(f"warning: {message}", style="yellow", highlight=False, markup=False)
            else:
                shown(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments, prog_name="revar", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except InputError as error:
        return _fail(str(error))
    except _ClickException as error:
        return _fail_usage(error)
    except OSError as error:
        where = f' "{error.filename}"' if error.filename else ""
        return _fail(f"{error.strerror or error}{where}")
    except (KeyboardInterrupt, typer.Abort):
        _err.print("interrupted", style="red")
        return 130


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))

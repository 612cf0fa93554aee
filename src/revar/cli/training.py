"""``revar demo`` and ``revar train``"""

from __future__ import annotations

import shlex
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from revar.cli.app import (
    ARGUMENTS,
    ERR,
    OUT,
    Device,
    Json,
    SkipUnreadable,
    app,
    note,
    print_json,
    watch,
)
from revar.commands.checks import (
    check_columns,
    check_data,
    check_folder,
    check_method,
    check_unused,
)
from revar.commands.processes import (
    LOST,
    count,
    end_with_parent,
    is_launched,
    launch,
    leave,
    needs_launch,
    rank,
)
from revar.errors import InputError
from revar.registry import DEFAULT_METHOD


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, picture and report.")] = Path(
        "revar-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    epochs: Annotated[int, typer.Option(help="Epochs of each run.")] = 30,
    as_json: Json = False,
) -> None:
    """Train plainly and by our default on noisy digits, and compare when they should stay silent.

    Under a minute on a laptop. Ends with a report to open in a browser. Runs
    that are there already are reused.
    """
    check_folder(out)
    from revar.commands.demo import SETS
    from revar.commands.demo import demo as run_demo

    result = run_demo(out, seed=seed, epochs=epochs, watch=watch)
    if as_json:
        print_json(result.figures)
        return
    from revar.report.terminal import auarc_table

    OUT.print(auarc_table(result.figures, SETS))
    OUT.print(f"picture  {result.figure}", highlight=False)
    for path in result.runs:
        OUT.print(f"run      {path}", highlight=False)
    OUT.print(f"next     revar evaluate {result.runs[-1]}", highlight=False)
    OUT.print(f"report   {result.page}: open it in a browser", highlight=False)


@app.command()
def train(
    data: Annotated[
        str,
        typer.Option(
            help="A name of 'revar list datasets', a folder of class folders (or of train, meta "
            "and test with such), an .npz (x, y, optional x_test, y_test, x_meta, y_meta, "
            "x_unlabelled, groups) or a .csv.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Run folder to write.",
            # Text in square brackets would be read as markup and vanish from the help.
            show_default="runs/DATA-METHOD-seedSEED",
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="A name of 'revar list methods'.")] = DEFAULT_METHOD,
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
    leave_out: Annotated[
        list[str] | None,
        typer.Option(help="Column of a .csv that is no input, such as an id; may be given again."),
    ] = None,
    meta: Annotated[
        str | None,
        typer.Option(help="A meta set of its own, as --data, for methods that learn from one."),
    ] = None,
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
        typer.Option("--set", help="Any field of method, budget or splits: --set interval=15."),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an unfinished run.")] = False,
    processes: Annotated[
        int,
        typer.Option(help="Processes that share every batch, each with a GPU or cores of its own."),
    ] = 1,
    device: Device = "auto",
) -> None:
    """Train a classifier that can abstain and write its run folder.

    Examples:
    revar train --data digits
    revar train --data photos/ --out runs/photos --epochs 60
    revar train --data patients.csv --target outcome --group patient
    """
    settings = _settings(set_ or [])
    # Of "." and "..", too, which have no stem.
    name = (Path(data).resolve() if Path(data).exists() else Path(data)).stem.replace(":", "-")
    folder = out or Path("runs") / f"{name}-{method}-seed{seed}"
    check_method(method)
    check_data(data)
    check_columns((data,), group=group, leave_out=next(iter(leave_out or []), None))
    check_columns((data, meta, unlabelled), target=target, image=image)
    speaks = rank() == 0
    if resume:
        check_folder(folder)
    elif speaks:
        check_unused(folder)
    if needs_launch(processes):
        raise typer.Exit(_launch(processes, resume=resume))
    end_with_parent()
    from revar.commands.evaluate import evaluate as run_evaluate
    from revar.commands.train import train as run_train
    from revar.parallel import LostProcess
    from revar.progress import Silent
    from revar.report.terminal import evaluation_table
    from revar.signals import Signals
    from revar.training import InterruptedRun

    if not speaks:
        warnings.simplefilter("ignore")
    with Signals() as signals:
        try:
            with watch(method) if speaks else nullcontext(Silent()) as observer:
                run = run_train(
                    data, folder, method=method, backbone=backbone, pretrained=pretrained,
                    frozen=frozen, layer_decay=layer_decay, epochs=epochs, seed=seed,
                    target=target, group=group, image=image, leave_out=leave_out or [],
                    meta=meta, unlabelled=unlabelled, label_noise=label_noise,
                    clean_meta=clean_meta, skip_unreadable=skip_unreadable,
                    settings=settings, resume=resume, device=device, observer=observer,
                    stop=signals.stop,
                )  # fmt: skip
        except InterruptedRun:
            if speaks:
                note(f"stopped and saved; to go on: {_again(resume=resume)}")
            raise typer.Exit(signals.exit_code) from None
        except LostProcess as error:
            # Where we started the processes ourselves, we have seen which one it was.
            if speaks and not is_launched():
                note(f"error: {error}; to go on: {_again(resume=resume)}")
            leave(LOST if is_launched() else 1)
    if not speaks:
        return
    if "test" in run.prediction_names():
        result = run_evaluate(run.path)
        OUT.print(evaluation_table(result.name, result.figures))
    else:
        note("the data has no test split: 'revar evaluate RUN --on DATA' gives figures")
    OUT.print(f"run   {run.path}", highlight=False, soft_wrap=True)


def _again(*, resume: bool) -> str:
    """The command line that goes on with this run."""
    missing = [] if resume else ["--resume"]
    if count() > 1 and not any(word.startswith("--processes") for word in ARGUMENTS):
        missing += ["--processes", str(count())]
    return shlex.join(["revar", *ARGUMENTS, *missing])


def _launch(processes: int, *, resume: bool) -> int:
    """Run this command line in several processes; the exit code."""
    code, line = launch(processes, ARGUMENTS)
    if line is not None:
        way_out = f"; to go on: {_again(resume=resume)}" if code == 1 else ""
        ERR.print(f"error: {line}{way_out}", style="red", highlight=False, markup=False)
    return code


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f'--set "{pair}" is not field=value, such as --set interval=5')
        settings[name.strip()] = value.strip()
    return settings

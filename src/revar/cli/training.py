"""``revar demo`` and ``revar train``"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from revar.cli.app import ARGUMENTS, OUT, Device, Json, SkipUnreadable, app, note, print_json, watch
from revar.commands.checks import (
    check_columns,
    check_data,
    check_folder,
    check_method,
    check_unused,
)
from revar.errors import InputError


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, picture and report.")] = Path(
        "revar-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    epochs: Annotated[int, typer.Option(help="Epochs of each run.")] = 30,
    as_json: Json = False,
) -> None:
    """Train ERM and ReVaR on noisy digits and compare when they should stay silent.

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
    check_columns((data,), group=group)
    check_columns((data, meta, unlabelled), target=target, image=image)
    if resume:
        check_folder(folder)
    else:
        check_unused(folder)
    from revar.commands.evaluate import evaluate as run_evaluate
    from revar.commands.train import train as run_train
    from revar.report.terminal import evaluation_table
    from revar.signals import Signals
    from revar.training import InterruptedRun

    with Signals() as signals:
        try:
            with watch(method) as observer:
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
            again = shlex.join([*ARGUMENTS, *([] if resume else ["--resume"])])
            note(f"stopped and saved; to go on: revar {again}")
            raise typer.Exit(signals.exit_code) from None
    if "test" in run.prediction_names():
        result = run_evaluate(run.path)
        OUT.print(evaluation_table(result.name, result.figures))
    else:
        note("the data has no test split: 'revar evaluate RUN --on DATA' gives figures")
    OUT.print(f"run   {run.path}", highlight=False, soft_wrap=True)


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f'--set "{pair}" is not field=value, such as --set interval=5')
        settings[name.strip()] = value.strip()
    return settings

"""The application, and what its commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from revar import __version__
from revar.signals import Stopped

if TYPE_CHECKING:
    from revar.training import Observer


class _Commands(TyperGroup):
    """Some versions of typer end without a word on Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Stopped from error


app = typer.Typer(
    cls=_Commands,
    name="revar",
    help="Classifiers that know when to stay silent.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ARGUMENTS: list[str] = []
"""What the user typed, to say it again."""
OUT = Console()
ERR = Console(stderr=True, soft_wrap=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Go on without images that cannot be read.")
]
Target = Annotated[
    str | None, typer.Option(help="Label column of a .csv; that of training if not given.")
]
Score = Annotated[
    str | None,
    typer.Option(help="A name of 'revar list scores'; if not given, what the run decides by."),
]
Confidence = Annotated[float, typer.Option(help="Chance that a limit on the risk holds.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]


def print_json(data: Any) -> None:
    """For machines, on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def note(text: str) -> None:
    """A remark for people, on standard error."""
    ERR.print(text, style="dim", highlight=False, markup=False)


@contextmanager
def watch(label: str) -> Iterator[Observer]:
    """A progress bar."""
    from revar.progress import Bar

    with Bar(ERR, label) as bar:
        yield bar


@contextmanager
def counting(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that counts finished runs; it appears when it is first told of some.

    Not before, so that a refusal is one line and nothing else.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=ERR, transient=True)
    bar = progress.add_task("")

    def advance(done: int, total: int) -> None:
        progress.start()
        progress.update(bar, completed=done, total=total)

    try:
        yield advance
    finally:
        if progress.live.is_started:
            progress.stop()


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        sys.stdout.write(f"revar {__version__}\n")
        raise typer.Exit

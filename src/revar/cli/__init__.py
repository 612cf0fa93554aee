"""The command line: strings to calls. Nothing heavy is imported before it is used."""

from __future__ import annotations

import sys
import warnings
from typing import Any, TextIO

import typer

from revar.cli import (  # noqa: F401  (each adds its commands)
    export,
    listing,
    paper,
    report,
    serve,
    tables,
    training,
    using,
)
from revar.cli.app import ARGUMENTS, ERR, app
from revar.commands.processes import LOST, count, is_launched, leave, rank
from revar.errors import DataWarning, InputError, escaped
from revar.signals import Stopped

# typer carries its own click since 0.25; what it exports tells which one is in use.
_ClickException: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def _fail(message: str) -> int:
    ERR.print(f"error: {' '.join(message.split())}", style="red", highlight=False, markup=False)
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
    ARGUMENTS[:] = arguments
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
                ERR.print(f"warning: {message}", style="yellow", highlight=False, markup=False)
            else:
                shown(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        return _run(arguments)


def _check_words(arguments: list[str]) -> None:
    """Refuse empty words, since a path that is empty is the folder one is in, and odd bytes.

    Raises:
        InputError: naming the word, or what is before it.
    """
    for before, word in zip(["revar", *arguments], arguments, strict=False):
        if not word or (word.startswith("--") and word.endswith("=")):
            where = f"after {before}" if not word else f"in {word}"
            raise InputError(f'nothing is given {where}: is "" a variable that is not set?')
        if escaped(word) != word:
            raise InputError(f'"{escaped(word)}" is not UTF-8: give it another name')


def _run(arguments: list[str]) -> int:
    try:
        _check_words(arguments)
        code = app(arguments, prog_name="revar", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except InputError as error:
        return _fail(str(error))
    except _ClickException as error:
        return _fail_usage(error)
    except OSError as error:
        where = f' "{error.filename}"' if error.filename else ""
        return _fail(f"{error.strerror or error}{where}")
    except RuntimeError as error:
        # By its name: torch is not imported for a word about it.
        if type(error).__name__ != "OutOfMemoryError":
            raise
        ways = "--set batch_size=N, --set recompute=true or --set micro_batch=N"
        return _fail(f"the GPU has no memory left, use less by {ways}: {error}".partition("\n")[0])
    except Stopped as stopped:
        if is_launched():
            # Whoever started this process speaks for all.
            return LOST
        if rank() == 0:
            ERR.print(str(stopped), style="red", highlight=False, markup=False)
        return stopped.exit_code


def main() -> None:
    """The console script."""
    code = run(sys.argv[1:])
    if count() > 1:
        leave(code)
    sys.exit(code)

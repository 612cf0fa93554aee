"""What goes wrong because of what the caller gave, said in one line."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Something the caller gave cannot be used.

    The message is one line: what, its value, the way out. The command line prints it and
    exits with code 2; Python callers may catch it as a ``ValueError``.
    """


class InputTypeError(InputError, TypeError):
    """The same for what is of the wrong type altogether, which some callers expect to catch."""


class DataWarning(UserWarning):
    """Something about the data that the caller should know; work goes on."""


class UndefinedMetricWarning(UserWarning):
    """A figure has no value on this data; it is NaN and the message says why."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is in no list, with the nearest one that is.

    >>> unknown("method", "revr", ["erm", "revar"])
    InputError('unknown method "revr": did you mean "revar"? known: erm, revar')
    """
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    return InputError(f'unknown {kind} "{name}": {hint}known: {", ".join(names)}')


def escaped(name: str) -> str:
    r"""A name of a file with bytes that are no UTF-8 shown as such, others as they are.

    >>> print(escaped("caf\udce9.png"))
    caf\xe9.png
    """
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")

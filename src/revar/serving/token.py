"""A secret that a client must know. It is never printed, logged or sent."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from revar.errors import InputError
from revar.serving.refusals import Refused

VARIABLE = "REVAR_TOKEN"
_SHORTEST = 8


class Token:
    """Compares in constant time, also for secrets of other lengths."""

    def __init__(self, secret: str, source: str) -> None:
        # RFC 6750 allows fewer characters still; spaces and controls could never be sent.
        if not secret.isascii() or any(c <= " " or c == "\x7f" for c in secret):
            raise InputError(f"the token in {source} must be printable ASCII without spaces")
        if len(secret) < _SHORTEST:
            msg = (
                f"the token in {source} has {len(secret)} characters: use at least {_SHORTEST}, "
                "such as those of 'openssl rand -hex 32'"
            )
            raise InputError(msg)
        self._digest = hashlib.sha256(secret.encode()).digest()

    def check(self, authorization: str | None) -> None:
        """Refuse a request whose ``Authorization`` is not this token.

        Raises:
            Refused: 401.
        """
        scheme, _, given = (authorization or "").partition(" ")
        digest = hashlib.sha256(given.strip().encode(errors="surrogateescape")).digest()
        same = hmac.compare_digest(digest, self._digest)
        if scheme.lower() == "bearer" and same:
            return
        said = "the token is wrong" if authorization else "a token is needed"
        raise Refused(
            401, f"{said}: send the header Authorization: Bearer TOKEN",
            {"WWW-Authenticate": 'Bearer realm="revar"'},
        )  # fmt: skip


def find_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> Token | None:
    """The token of a file, or of the variable ``REVAR_TOKEN``, or none.

    Raises:
        InputError: the file cannot be read, or what it holds is no token.
    """
    if file is not None:
        try:
            content = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f'cannot read the token file "{file}"') from error
        return Token(content.strip(), f'"{file}"')
    if VARIABLE in environment:
        return Token(environment[VARIABLE], VARIABLE)
    return None

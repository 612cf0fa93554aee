"""Where published data sets are on this machine: the folder that ``REVAR_DATA`` names."""

from __future__ import annotations

import os
from pathlib import Path

from revar.errors import InputError

VARIABLE = "REVAR_DATA"
_PAGE = "docs/datasets.md says how to lay it out"


def published(name: str, *places: str) -> Path:
    """The first of these places that is there.

    Args:
        name: of the data set.
        places: under the folder.

    Raises:
        InputError: the variable is not set, or there is nothing in these places.
    """
    root = os.environ.get(VARIABLE)
    if not root:
        msg = f'dataset "{name}" is read from the folder {VARIABLE}, which is not set: {_PAGE}'
        raise InputError(msg)
    for place in places:
        if (Path(root) / place).exists():
            return Path(root) / place
    wanted = " or ".join(f'"{place}"' for place in places)
    raise InputError(f'dataset "{name}": {VARIABLE}={root} has no {wanted}: {_PAGE}')

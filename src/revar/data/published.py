"""Where published data sets are on this machine: the folder that ``REVAR_DATA`` names."""

from __future__ import annotations

import os
from pathlib import Path

from revar.errors import InputError
from revar.library.specs import DatasetSpec, Found

VARIABLE = "REVAR_DATA"
_PAGE = "docs/datasets.md says how to lay it out"


def data_folder() -> Path | None:
    """Where data sets are, or nothing if nobody has said so.

    Raises:
        InputError: the variable names no folder.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    if not Path(named).is_dir():
        raise InputError(f"{VARIABLE}={named} is no folder: correct it, or unset it")
    return Path(named)


def published(name: str, *places: str, way: str = _PAGE) -> Path:
    """The first of these places that is there.

    Args:
        name: of the data set.
        places: under the folder.
        way: where to get it and how to lay it out.

    Raises:
        InputError: the variable is not set or names no folder, or these places are empty.
    """
    root = data_folder()
    if root is None:
        msg = f'dataset "{name}" is read from the folder {VARIABLE}, which is not set: {way}'
        raise InputError(msg)
    for place in places:
        if (root / place).exists():
            return root / place
    wanted = " or ".join(f'"{place}"' for place in places)
    raise InputError(f'dataset "{name}": {VARIABLE}={root} has no {wanted}: {way}')


def how_to_get(spec: DatasetSpec) -> str:
    """Where to get a data set and how to lay it out, in one line."""
    ways = " or ".join(f'"{form.place}" ({form.layout})' for form in spec.forms)
    after = f', with the images of "{spec.base}"' if spec.base else ""
    return f"get it from {spec.obtain} and lay it out as {ways}{after}; see docs/datasets.md"


def locate(spec: DatasetSpec) -> Found:
    """Find a data set.

    Raises:
        InputError: it is not there; the line says where to get it and how to lay it out.
    """
    places = [form.place for form in spec.forms]
    path = published(spec.name, *places, way=how_to_get(spec))
    root = Path(os.environ[VARIABLE])
    form = next(form for form in spec.forms if root / form.place == path)
    return Found(spec=spec, form=form, root=root)

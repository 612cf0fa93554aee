"""What can be found wrong before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from revar.data.kinds import conversion, is_csv
from revar.errors import InputError, unknown
from revar.registry import DATASETS, METHODS, find


def check_method(name: str) -> None:
    """Refuse a method that is not registered."""
    find("method", name, METHODS)


def check_data(spec: str) -> None:
    """Refuse a SPEC that names nothing."""
    names = [entry.name for entry in DATASETS]
    if spec.partition(":")[0] in names or Path(spec).exists():
        return
    # What looks like a path is one; anything else was meant to be a name.
    if Path(spec).suffix or len(Path(spec).parts) != 1:
        raise InputError(f'no data at "{spec}": give a file or folder that is there')
    raise unknown("dataset", spec, names)


def check_run(path: Path) -> None:
    """Refuse a folder that is no run."""
    if not path.exists():
        raise InputError(f'no run at "{path}": give a folder that revar train has made')
    if not (path / "recipe.json").is_file():
        raise InputError(f'"{path}" is no run: it has no recipe.json')


def check_columns(specs: Iterable[str | None], data: str = "--on", **columns: str | None) -> None:
    """Refuse names of columns where no data is a table.

    Args:
        specs: the data they could be columns of.
        data: the option that gives such data.
        columns: option to what was given for it.
    """
    given = [spec for spec in specs if spec is not None]
    if any(map(is_csv, given)):
        return
    for name, column in columns.items():
        option = name.replace("_", "-")
        if column is not None:
            where = f": give one with {data}"
            if given:
                where = f', and "{given[0]}" is none{conversion(given[0])}'
            raise InputError(f'--{option} "{column}" is for a column of a .csv{where}')


def check_folder(path: Path) -> None:
    """Refuse a place that cannot be a folder."""
    there = next((place for place in (path, *path.parents) if place.exists()), None)
    if there is None or there.is_dir():
        return
    below = "" if there == path else f', so there can be no "{path}"'
    raise InputError(f'"{there}" is a file{below}: choose another --out')


def check_unused(path: Path) -> None:
    """Refuse to write where something is."""
    check_folder(path)
    if not path.exists():
        return
    if (path / "recipe.json").exists():
        raise InputError(f'"{path}" holds a run already: use --resume, or choose another --out')
    if any(path.iterdir()):
        raise InputError(f'"{path}" exists and is not empty: choose another --out')


def check_wish(coverage: float | None, max_risk: float | None, confidence: float) -> None:
    """Refuse wishes that no threshold can fulfil.

    Raises:
        InputError: both a coverage and a risk, or one out of its range.
    """
    if coverage is not None and max_risk is not None:
        raise InputError("--coverage and --max-risk cannot go together: give one of them")
    if coverage is not None and not 0.0 < coverage <= 1.0:
        raise InputError(f"--coverage is {coverage}, it must be in (0, 1]")
    for name, value in (("max-risk", max_risk), ("confidence", confidence)):
        if value is not None and not 0.0 < value < 1.0:
            raise InputError(f"--{name} is {value}, it must be in (0, 1)")

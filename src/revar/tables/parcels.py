"""Cells from one machine to another, in one file."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from revar.errors import InputError
from revar.tables.cell import digest_of
from revar.tables.store import ASKED, METRICS, SCORES, Finished

_WHOLE = {ASKED, METRICS, SCORES, "log.jsonl", "provenance.json"}
_PREDICTIONS = "predictions"


class Merged(NamedTuple):
    """What became of the cells of a file.

    Attributes:
        new: how many were not there.
        completed: how many were there without predictions, and have got them.
        known: how many stay as they are.
    """

    new: int
    completed: int
    known: int


def _cells(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.glob(f"*/{ASKED}") if path.parent.name[0] != ".")


def pack(
    root: Path, file: Path, only: Iterable[str] | None = None, *, predictions: bool = True
) -> int:
    """Put finished cells into one file, without weights; how many there were.

    Args:
        root: of the store.
        file: to write; it must not exist.
        only: digests, or all.
        predictions: with them; a table that asks for more than figures needs them.

    Raises:
        InputError: nothing to pack, or the file exists.
    """
    chosen = None if only is None else set(only)
    cells = [path for path in _cells(root) if chosen is None or path.name in chosen]
    if not cells:
        raise InputError(f'"{root}" has no finished cells to pack')
    if file.exists():
        raise InputError(f'"{file}" exists: choose another file')
    left_out = {"run"} if predictions else {"run", _PREDICTIONS}
    beside = file.with_name(f".{file.name}.new")
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        for cell in cells:
            for path in sorted(cell.rglob("*")):
                inside = path.relative_to(cell)
                if path.is_file() and inside.parts[0] not in left_out:
                    archive.write(path, f"{cell.name}/{inside.as_posix()}")
    beside.replace(file)
    return len(cells)


def merge(file: Path, root: Path) -> Merged:
    """Unpack cells into a store; those it has already stay as they are.

    One that is there without predictions gets those of the file, if all figures are the same.

    Args:
        file: that `pack` wrote.
        root: of the store.

    Raises:
        InputError: it is no such file, or damaged, or has other figures for a cell that lacks
            predictions; the store is then as it was.
    """
    try:
        archive = zipfile.ZipFile(file)
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f'"{file}" is no parcel of cells: {error}') from error
    with archive:
        _require_sound(archive, file)
        members = _members(archive, file)
        new = [digest for digest in members if not (root / digest / ASKED).exists()]
        for digest in new:
            if (root / digest).exists():
                msg = f'"{root / digest}" is no finished cell: remove it, or wait for who makes it'
                raise InputError(f"{msg}; nothing was merged")
        completed = [
            digest
            for digest in members
            if digest not in new and _completes(archive, digest, members[digest], root, file)
        ]
        root.mkdir(parents=True, exist_ok=True)
        # All is unpacked before anything gets its name.
        with TemporaryDirectory(prefix=".merged-", dir=root) as folder:
            beside = Path(folder)
            for digest in (*new, *completed):
                for inside in members[digest]:
                    target = beside / digest / inside
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(f"{digest}/{inside}"))
            for digest in new:
                (beside / digest).replace(root / digest)
            for digest in completed:
                _move_away(root / digest / _PREDICTIONS)
                (beside / digest / _PREDICTIONS).replace(root / digest / _PREDICTIONS)
    return Merged(len(new), len(completed), len(members) - len(new) - len(completed))


def _move_away(folder: Path) -> None:
    """Move away what lies where predictions should, and holds none."""
    if folder.exists():
        folder.replace(folder.with_name(f"{folder.name}.odd"))


def _require_sound(archive: zipfile.ZipFile, file: Path) -> None:
    try:
        bad = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as error:
        raise InputError(f'"{file}" is damaged: {error}') from error
    if bad is not None:
        raise InputError(f'"{file}" is damaged: {bad} has another checksum')


def _members(archive: zipfile.ZipFile, file: Path) -> dict[str, list[str]]:
    """The files of each cell, by its digest, once it is clear that they are cells."""
    refused = f'"{file}" is no parcel of cells'
    members: dict[str, list[str]] = {}
    for name in archive.namelist():
        digest, _, inside = name.partition("/")
        if name.endswith("/"):
            continue  # A folder, as other programs list them.
        if not inside or ".." in Path(name).parts or Path(name).is_absolute():
            raise InputError(f'{refused}: it holds "{name}"')
        members.setdefault(digest, []).append(inside)
    if not members:
        raise InputError(f"{refused}: it is empty")
    for digest, files in members.items():
        if not set(files) >= _WHOLE:
            missing = sorted(_WHOLE - set(files))[0]
            raise InputError(f'{refused}: "{digest}" has no {missing}')
        asked = _object(archive, f"{digest}/{ASKED}", refused)
        asked.pop("recipe", None)
        if digest_of(asked) != digest:
            msg = f'what {ASKED} of "{digest}" asks has the digest "{digest_of(asked)}"'
            raise InputError(f"{refused}: {msg}")
        for name in (METRICS, SCORES):
            _object(archive, f"{digest}/{name}", refused)
    return members


def _object(archive: zipfile.ZipFile, name: str, refused: str) -> dict[str, Any]:
    try:
        found = json.loads(archive.read(name))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{refused}: {name} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{refused}: {name} is no JSON object")
    return found


def _completes(
    archive: zipfile.ZipFile, digest: str, files: list[str], root: Path, file: Path
) -> bool:
    """Whether a cell of the file has the predictions that the one of the store lacks."""
    there = Finished(root / digest)
    comes = any(name.startswith(f"{_PREDICTIONS}/") for name in files)
    if not comes or there.has_predictions:
        return False
    for name in (METRICS, SCORES):
        both = there.read(name), _object(archive, f"{digest}/{name}", f'"{file}"')
        # As text, because NaN is not itself.
        if len({json.dumps(one, sort_keys=True) for one in both}) > 1:
            raise InputError(
                f'"{file}" has other figures ({name}) for cell "{digest}", which is here without '
                f'predictions: remove "{there.path}" to take those of the file'
            )
    return True

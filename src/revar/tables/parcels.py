"""Cells from one machine to another, in one file."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path

from revar.errors import InputError

_WHOLE = {"cell.json", "metrics.json", "scores.json", "log.jsonl", "provenance.json"}


def _cells(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.glob("*/cell.json") if path.parent.name[0] != ".")


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
    left_out = {"run"} if predictions else {"run", "predictions"}
    beside = file.with_name(f".{file.name}.new")
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        for cell in cells:
            for path in sorted(cell.rglob("*")):
                inside = path.relative_to(cell)
                if path.is_file() and inside.parts[0] not in left_out:
                    archive.write(path, f"{cell.name}/{inside.as_posix()}")
    beside.replace(file)
    return len(cells)


def merge(file: Path, root: Path) -> tuple[int, int]:
    """Unpack cells into a store; those it has already stay as they are.

    Args:
        file: that `pack` wrote.
        root: of the store.

    Returns:
        How many were new, and how many were there.

    Raises:
        InputError: it is no such file, or damaged; the store is then as it was.
    """
    try:
        archive = zipfile.ZipFile(file)
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f'"{file}" is no parcel of cells: {error}') from error
    with archive:
        if archive.testzip() is not None:
            raise InputError(f'"{file}" is damaged: {archive.testzip()} has another checksum')
        members: dict[str, list[str]] = {}
        for name in archive.namelist():
            digest, _, inside = name.partition("/")
            if not inside or ".." in Path(name).parts or Path(name).is_absolute():
                raise InputError(f'"{file}" is no parcel of cells: it holds "{name}"')
            members.setdefault(digest, []).append(inside)
        for digest, files in members.items():
            if not set(files) >= _WHOLE:
                missing = sorted(_WHOLE - set(files))[0]
                raise InputError(f'"{file}" is no parcel of cells: "{digest}" has no {missing}')
            json.loads(archive.read(f"{digest}/cell.json"))
        root.mkdir(parents=True, exist_ok=True)
        new = [digest for digest in members if not (root / digest / "cell.json").exists()]
        for digest in new:
            beside = root / f".{digest}.merged"
            shutil.rmtree(beside, ignore_errors=True)
            for inside in members[digest]:
                target = beside / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(f"{digest}/{inside}"))
            beside.replace(root / digest)
    return len(new), len(members) - len(new)

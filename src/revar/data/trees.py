"""Image files by their names alone: which are there, and how many; none is opened."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from revar.data.images import SUFFIXES
from revar.errors import InputError


def classes_in(root: Path) -> list[str]:
    """Names of the class folders, in their order.

    Raises:
        InputError: no such folder.
    """
    if not root.is_dir():
        raise InputError(f'"{root}" is missing')
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def every_second(root: Path) -> list[str]:
    """The first class folder, the third and so on."""
    return classes_in(root)[::2]


def count_images(root: Path, classes: Collection[str] | None = None) -> int:
    """Image files in ``root/<class>/``, at any depth below the class.

    Args:
        root: the folder.
        classes: the names wanted, or none: all that are there.

    Raises:
        InputError: no such folder, or no images in these.
    """
    return sum(count_by_class(root, classes).values())


def count_by_class(root: Path, classes: Collection[str] | None = None) -> dict[str, int]:
    """The same for each class."""
    there = classes_in(root)
    wanted = there if classes is None else sorted({*there} & {*classes})
    found = {label: _count(root / label) for label in wanted}
    if not any(found.values()):
        raise InputError(f'"{root}" has no images in class folders: expected <class>/<image>')
    return found


def _count(root: Path) -> int:
    return sum(name.lower().endswith(SUFFIXES) for _, _, files in os.walk(root) for name in files)


def require(folder: Path, names: Iterable[str]) -> None:
    """Refuse if files are missing; each folder is listed once.

    Args:
        folder: that the names start from.
        names: paths of files with forward slashes.

    Raises:
        InputError: how many are missing, and the first of them.
    """
    seen: dict[str, frozenset[str]] = {}
    missing: list[str] = []
    total = 0
    for name in names:
        above, _, file = name.rpartition("/")
        if above not in seen:
            seen[above] = _listed(folder / above)
        total += 1
        if file not in seen[above]:
            missing.append(name)
    if missing:
        first = folder / missing[0]
        msg = f'{len(missing):,} of {total:,} images are missing, the first is "{first}"'
        raise InputError(msg)


def _listed(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir()) if folder.is_dir() else frozenset()

"""Which image files lie in a folder, and what its folders stand for; no image is opened."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from revar.data.images import SUFFIXES
from revar.errors import DataWarning, InputError, escaped

_PARTS = ("train", "meta", "test")
_ALIKE = {
    *_PARTS, "training", "testing", "tests", "val", "valid", "validation", "dev", "eval",
    "evaluation", "calibration",
}  # fmt: skip
"""What folders of parts are called elsewhere."""


def image_files(root: Path) -> list[Path]:
    """The images below a folder, or the file itself, in the order of their paths.

    Links are followed, each folder is gone through once, hidden files and folders are left out. A
    link that leads nowhere is listed like an image, for whoever reads it to name it.

    Raises:
        InputError: a name is not UTF-8.
    """
    if root.is_file():
        return [root]
    found: list[Path] = []
    folders, linked, seen = [root], list[Path](), set[tuple[int, int]]()
    above = root.resolve()
    while folders or linked:
        # A folder that is here goes by its own name, not by that of a link to it.
        folder = folders.pop() if folders else linked.pop()
        about = folder.stat()
        if (about.st_dev, about.st_ino) in seen:
            continue
        seen.add((about.st_dev, about.st_ino))
        images, below, links = _entries(folder)
        found += images
        folders += below
        # Up to what the root lies in there are other classes.
        links = [link for link in links if not above.is_relative_to(link.resolve())]
        if links:
            linked = sorted([*linked, *links], reverse=True)
    found.sort()
    for path in found:
        _check_name(path)
    return found


def _entries(folder: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Images, folders and linked folders right below one."""
    images, folders, links = [], [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = folder / entry.name
            suffix = path.suffix.lower()
            if entry.is_symlink():
                if path.is_dir():
                    links.append(path)
                elif (suffix in SUFFIXES and path.is_file()) or (
                    # Without a suffix it was a folder of images, perhaps.
                    suffix in ("", *SUFFIXES) and not path.exists()
                ):
                    images.append(path)
            elif entry.is_dir():
                folders.append(path)
            elif suffix in SUFFIXES and entry.is_file():
                images.append(path)
    return images, folders, links


def _check_name(path: Path) -> None:
    shown = escaped(str(path))
    if shown != str(path):
        raise InputError(f'the name of "{shown}" is not UTF-8: rename it')


def classes_below(root: Path) -> list[tuple[Path, str]]:
    """The images of ``root/<class>/`` with the names of their classes.

    Raises:
        InputError: there are none.
    """
    listed = [(file, folder.name) for folder in _folders(root) for file in image_files(folder)]
    if not listed:
        raise InputError(f'"{root}" has no images in class folders: expected <class>/<image>')
    return listed


def parts_of(root: Path) -> dict[str, Path]:
    """The folders with class folders by ``train``, ``meta`` and ``test``; else root is ``train``.

    Raises:
        InputError: class folders that look like parts of other names.
    """
    folders = _folders(root)
    alike = [folder for folder in folders if folder.name.lower() in _ALIKE]
    named = [folder for folder in alike if folder.name.lower() in _PARTS]
    trains = [folder for folder in named if folder.name.lower() == "train"]
    # "Train" next to "Bus" and "Ship" is one of them.
    if trains and (trains[0].name == "train" or len(alike) > 1 or len(folders) == 1):
        parts: dict[str, Path] = {}
        for folder in named:
            there = parts.setdefault(folder.name.lower(), folder)
            if there is not folder:
                msg = f'"{root}" has both "{there.name}" and "{folder.name}": keep one of them'
                raise InputError(msg)
        unread = [folder for folder in alike if folder not in named and image_files(folder)]
        if unread:
            msg = (
                f"{_names(unread)} is not read, parts are called train, meta and test: rename "
                f'it, or give "{unread[0]}" to --on'
            )
            warnings.warn(msg, DataWarning, stacklevel=3)
        return {name: parts[name] for name in _PARTS if name in parts}
    _check_alike(root, folders, alike)
    return {"train": root}


def _check_alike(root: Path, folders: list[Path], alike: list[Path]) -> None:
    """Refuse classes that look like parts, or say that one is taken for a class."""
    nested = [folder for folder in alike if _holds_folders_only(folder)]
    if len(alike) > 1 or (nested and len(folders) == 1):
        msg = (
            f'"{root}" has {_names(alike)}, which look like parts and not like classes: parts '
            f'are "train" (needed), "meta" and "test"; rename them, or give "{alike[0]}" alone'
        )
        raise InputError(msg)
    if nested:
        msg = (
            f'"{nested[0]}" is taken for a class, whatever the folders in it are called: a part '
            'is called meta or test and stands next to "train"'
        )
        warnings.warn(msg, DataWarning, stacklevel=4)


def _holds_folders_only(root: Path) -> bool:
    images, folders, links = _entries(root)
    return not images and any(image_files(folder) for folder in (*folders, *links))


def _names(folders: list[Path]) -> str:
    return ", ".join(f'"{folder.name}"' for folder in folders)


def _folders(root: Path) -> list[Path]:
    """The folders right below one, or links to such, that are not hidden."""
    seen = sorted(path for path in root.iterdir() if path.name[0] != ".")
    for path in seen:
        if path.is_symlink() and not path.suffix and not path.exists():
            raise InputError(f'"{path}" is a link to a folder that is gone: mend or remove it')
    return [path for path in seen if path.is_dir()]

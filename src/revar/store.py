"""A folder whose files are whole, or refused by name.

Every file is listed with its SHA-256 in ``manifest.json``. A file is written beside its place, to
the disk, and renamed; the manifest accepts both the old and the new content while that happens,
so a process may be killed at any moment and the folder stays readable.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from revar.errors import InputError

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Store:
    """Files of one folder, by their path below it.

    Attributes:
        folder: must exist before anything is written.
    """

    folder: Path

    def names(self) -> set[str]:
        """The files the manifest lists; none if there is no manifest.

        Raises:
            InputError: the manifest is damaged.
        """
        return set(self._manifest())

    def write(self, name: str, data: bytes) -> None:
        """Write a file; until it returns, a reader finds the old content or the new.

        Raises:
            InputError: the disk is full, the folder is read-only, ...
        """
        path = self.folder / name
        digest = hashlib.sha256(data).hexdigest()
        listed = self._manifest()
        if listed.get(name) == [digest] and path.exists():
            return
        beside = path.with_name(_beside(path.name))
        path.parent.mkdir(exist_ok=True)
        _write_to_disk(beside, data)
        self._write_manifest({**listed, name: [digest, *listed.get(name, [])]})
        beside.replace(path)
        self._write_manifest({**listed, name: [digest]})

    def adopt(self, name: str) -> None:
        """List a file that was written by other means, as it is now."""
        digest = hashlib.sha256((self.folder / name).read_bytes()).hexdigest()
        self._write_manifest({**self._manifest(), name: [digest]})

    def read(self, name: str) -> bytes:
        """The content of a file, checked.

        Raises:
            InputError: it is missing, damaged, or another file's.
        """
        path = self.folder / name
        listed = self._manifest()
        try:
            data = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError) as error:
            raise InputError(f'"{path}" is missing') from error
        if not listed:
            raise InputError(f'"{self.folder / MANIFEST}" is missing, so "{path}" is not trusted')
        if hashlib.sha256(data).hexdigest() not in listed.get(name, []):
            raise InputError(f'"{path}" is damaged: its checksum is not the one in {MANIFEST}')
        return data

    def verify(self) -> None:
        """Read every file there should be.

        Raises:
            InputError: naming the first that is missing or damaged.
        """
        for name in sorted(self.names()):
            self.read(name)

    def tidy(self) -> None:
        """Remove what a process that was killed left beside files."""
        for path in self.folder.rglob(_beside("*")):
            if path.is_file():
                path.unlink()

    def write_json(self, name: str, data: Any) -> None:
        """Write a JSON file."""
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
        self.write(name, f"{text}\n".encode())

    def read_json(self, name: str) -> Any:
        """What a JSON file holds."""
        return json.loads(self.read(name))

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Write a safetensors file; layers that share their weights have them there twice."""
        own: dict[str, Tensor] = {}
        places: set[int] = set()
        for key, value in tensors.items():
            whole = value.contiguous()
            place = whole.data_ptr()
            own[key] = whole.clone() if place in places else whole
            places.add(place)
        self.write(name, save_tensors(own))

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """What a safetensors file holds."""
        try:
            return load_tensors(self.read(name))
        except SafetensorError as error:
            raise InputError(f'"{self.folder / name}" holds no tensors: {error}') from error

    def _manifest(self) -> dict[str, list[str]]:
        path = self.folder / MANIFEST
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            files: dict[str, list[str]] = data["files"]
            if data["sha256"] != _digest_of(files):
                raise ValueError("its own checksum is wrong")
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise InputError(f'"{path}" is damaged: {error}') from error
        return files

    def _write_manifest(self, files: dict[str, list[str]]) -> None:
        data = {"files": dict(sorted(files.items())), "sha256": _digest_of(files)}
        path = self.folder / MANIFEST
        beside = path.with_name(_beside(MANIFEST))
        _write_to_disk(beside, (json.dumps(data, indent=2) + "\n").encode())
        beside.replace(path)
        _sync_folder(self.folder)


def _beside(name: str) -> str:
    """What a file is called until it takes its place."""
    return f".{name}.new"


def _digest_of(files: dict[str, list[str]]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _write_to_disk(path: Path, data: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # Half a file helps nobody, and on a full disk it is in the way.
        path.unlink(missing_ok=True)
        raise InputError(f'cannot write "{path.parent}": {error.strerror}') from error


def _sync_folder(folder: Path) -> None:
    """Make renames last; without this a power cut may undo them."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

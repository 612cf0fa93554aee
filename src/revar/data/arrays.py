"""Archives of arrays, without tensors: light enough to count what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz``; nothing in it is unpickled.

    Raises:
        InputError: not an archive of plain arrays.
    """
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise TypeError("it is one array; save it with numpy.savez")
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # a damaged file fails in zipfile, zlib, tokenize and elsewhere
        reason = (str(error) or type(error).__name__).splitlines()[0]
        # Of what is no archive at all numpy says that it might be Python objects.
        if "allow_pickle" in reason and not is_zipfile(path):
            reason = "it is another kind of file; save arrays with numpy.savez"
        elif "allow_pickle" in reason:
            reason = "it holds Python objects; save plain numbers or text"
        raise InputError(f'"{path}" is no .npz of plain arrays: {reason}') from error


def one_array(path: Path, name: str) -> NDArray[Any]:
    """One array of an ``.npz``, or the only one of an ``.npy``.

    Raises:
        InputError: it cannot be read, or is not there.
    """
    if path.suffix == ".npy":
        try:
            array: NDArray[Any] = np.load(path, allow_pickle=False)
        except (OSError, EOFError, ValueError) as error:
            raise InputError(f'"{path}" is no array of numbers: {error}') from error
        return array
    arrays = read_arrays(path)
    if name not in arrays:
        raise InputError(f'"{path}" has no array "{name}" (it has {", ".join(arrays)})')
    return arrays[name]

"""The one format of others that is a pickle: batches of CIFAR, read without running code.

A pickle may call anything. Here it may build arrays of numbers and nothing else.
"""

from __future__ import annotations

import pickle  # noqa: TID251  (the files are published so; what they may call is limited below)
from pathlib import Path
from typing import Any

import numpy as np

from revar.errors import InputError

_BUILDS_ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _BUILDS_ARRAYS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _BUILDS_ARRAYS[module, name]


def read_batch(path: Path) -> dict[str, Any]:
    """The dictionary of a batch, its keys as text.

    Raises:
        InputError: it is missing, damaged, or would do more than build arrays.
    """
    if not path.is_file():
        raise InputError(f'"{path}" is missing')
    try:
        with path.open("rb") as file:
            batch = _ArraysOnly(file, encoding="bytes").load()
    except Exception as error:  # a damaged pickle fails in many ways
        raise InputError(f'"{path}" is no batch of CIFAR: {error}') from error
    if not isinstance(batch, dict):
        raise InputError(f'"{path}" is no batch of CIFAR: it holds no dictionary')
    return {k.decode() if isinstance(k, bytes) else str(k): v for k, v in batch.items()}

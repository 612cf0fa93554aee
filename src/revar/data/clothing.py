"""Clothing1M (Xiao et al. 2015): a million photos whose labels come from the text around them.

Key lists name the images of each part, two tables of key and label give noisy and clean labels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from revar.data.source import Part, Source
from revar.data.stored import ImageFiles
from revar.errors import InputError
from revar.library.specs import Found

_NOISY, _CLEAN = "noisy_label_kv.txt", "clean_label_kv.txt"
_PARTS = {
    "train": ("noisy_train_key_list.txt", _NOISY),
    "meta": ("clean_val_key_list.txt", _CLEAN),
    "clean_train": ("clean_train_key_list.txt", _CLEAN),
    "test": ("clean_test_key_list.txt", _CLEAN),
}


def clothing1m(found: Found) -> Source:
    """Noisy labels to train on, the clean validation images as meta set, clean ones to test on.

    The clean training images are the split ``clean_train``.
    """
    folder = found.path.parent
    labels = {name: _labels(folder / name) for name in (_NOISY, _CLEAN)}
    parts = {}
    for name, (keys, table) in _PARTS.items():
        listed = _lines(folder / keys)
        missing = next((key for key in listed if key not in labels[table]), None)
        if missing is not None:
            raise InputError(f'"{folder / table}" has no label for "{missing}"')
        parts[name] = Part(
            ImageFiles(tuple(folder / key for key in listed), found.shape),
            np.array([labels[table][key] for key in listed], dtype=np.int64),
            names=tuple(listed),
        )
    return Source(
        parts["train"],
        parts["meta"],
        {"test": parts["test"]},
        splits={"clean_train": parts["clean_train"]},
    )


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise InputError(f'"{path}" cannot be read: {error.strerror}') from error
    return [line.strip() for line in lines if line.strip()]


def _labels(path: Path) -> dict[str, int]:
    labels = {}
    for line in _lines(path):
        key, _, number = line.rpartition(" ")
        if not key or not number.isdigit():
            raise InputError(f'"{path}": "{line}" is not a key and a class number')
        labels[key] = int(number)
    return labels

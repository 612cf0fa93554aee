"""Lists of keys and tables of key and label, as Clothing1M has them."""

from __future__ import annotations

from pathlib import Path

from revar.errors import InputError

_NOISY, _CLEAN = "noisy_label_kv.txt", "clean_label_kv.txt"
_PARTS = {
    "train": ("noisy_train_key_list.txt", _NOISY),
    "meta": ("clean_val_key_list.txt", _CLEAN),
    "clean_train": ("clean_train_key_list.txt", _CLEAN),
    "test": ("clean_test_key_list.txt", _CLEAN),
}
"""Part to its list of keys and the table of its labels."""


def listed(folder: Path) -> dict[str, tuple[list[str], list[int]]]:
    """Part to its keys and their labels, in the order of its list.

    Raises:
        InputError: a file is missing or is something else, or a key has no label.
    """
    labels = {name: _labels(folder / name) for name in (_NOISY, _CLEAN)}
    parts = {}
    for part, (keys, table) in _PARTS.items():
        names = _lines(folder / keys)
        missing = next((key for key in names if key not in labels[table]), None)
        if missing is not None:
            raise InputError(f'"{folder / table}" has no label for "{missing}"')
        parts[part] = (names, [labels[table][key] for key in names])
    return parts


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise InputError(f'"{path}" cannot be read: {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise InputError(f'"{path}" cannot be read: it is not UTF-8') from error
    return [line.strip() for line in lines if line.strip()]


def _labels(path: Path) -> dict[str, int]:
    labels = {}
    for line in _lines(path):
        key, _, number = line.rpartition(" ")
        if not key or not number.isdigit():
            raise InputError(f'"{path}": "{line}" is not a key and a class number')
        labels[key] = int(number)
    return labels

"""Kinds of files, by how their names end. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

_OTHERS = (".tsv", ".parquet", ".feather", ".xlsx", ".xls", ".ods", ".csv.gz", ".csv.zip")
_WITH = {".parquet": "read_parquet", ".feather": "read_feather"}


def is_csv(spec: str | Path) -> bool:
    """Whether this is the name of a CSV file."""
    return Path(spec).suffix.lower() == ".csv"


def is_npz(spec: str | Path) -> bool:
    """Whether this is the name of an archive of arrays."""
    return Path(spec).suffix.lower() == ".npz"


def conversion(spec: str | Path) -> str:
    """How to make a CSV file of a table of another kind, after a colon; nothing for the rest."""
    name = str(spec).lower()
    kind = next((ending for ending in _OTHERS if name.endswith(ending)), None)
    if kind is None:
        return ""
    if kind in (".csv.gz", ".csv.zip"):
        return ": unpack it first"
    reader = _WITH.get(kind, "read_excel")
    read = f'read_csv("{spec}", sep="\\t")' if kind == ".tsv" else f'{reader}("{spec}")'
    made = Path(spec).with_suffix(".csv").name
    return f': convert it first, such as by pandas.{read}.to_csv("{made}", index=False)'

"""The scripts under benchmarks/, which are no package: imported, or run beside one's own."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@contextmanager
def scripts(prefix: str, *names: str, **more: str) -> Iterator[Any]:
    """Their modules, by what follows the prefix or by other names, while they can be imported."""
    wanted = {**{name: f"{prefix}_{name}" for name in names}, **more}
    sys.path.append(str(BENCHMARKS))
    try:
        yield SimpleNamespace(**{n: importlib.import_module(m) for n, m in wanted.items()})
    finally:
        sys.path.remove(str(BENCHMARKS))


def driven(folder: Path, text: str) -> str:
    """What a program printed that imports them; in a process of its own, for it starts others."""
    (folder / "drive.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "drive.py"], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout

"""Where and from what a benchmark was run."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def commit() -> str:
    """Of this checkout, marked where something is not committed; nothing where git cannot tell."""
    try:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"],
            capture_output=True, text=True, check=False,
        ).stdout.strip()  # fmt: skip
    except OSError:
        return ""


def told(command: Sequence[str]) -> list[str]:
    """A command as it may be published: of a path on this machine only its name.

    >>> told(["uscore.py", "/somewhere/out", "--seeds", "5"])
    ['uscore.py', 'out', '--seeds', '5']
    """
    return [Path(word).name if Path(word).is_absolute() else word for word in command]


def processor() -> str:
    """Its model, and how many cores there are."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {models[0] if models else platform.processor()}"


def made_here(script: str, arguments: Sequence[str], code: str | None = None) -> dict[str, Any]:
    """How something was made, to be kept with it.

    Args:
        script: its file.
        arguments: it was called with.
        code: its commit, where git cannot tell.
    """
    return {
        "command": told([Path(script).name, *arguments]), "commit": code or commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "processor": processor(),
    }  # fmt: skip

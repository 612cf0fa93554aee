"""Where and from what a benchmark was run."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch


def commit() -> str:
    """Of this checkout, marked where something is not committed; nothing where git cannot tell.

    A copy without its history is told by ``REVAR_COMMIT``.
    """
    if "REVAR_COMMIT" in os.environ:
        return os.environ["REVAR_COMMIT"]
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


def here(device: torch.device | str = "cpu") -> dict[str, Any]:
    """What a reader needs to run this script again and to know what its figures are of."""
    cuda = torch.device(device).type == "cuda"
    return {
        "command": shlex.join(["python", *told(sys.argv)]), "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(), "torch": torch.__version__,
        "processor": processor(), "gpu": torch.cuda.get_device_name(device) if cuda else None,
        "threads": torch.get_num_threads(), "load": round(os.getloadavg()[0], 2),
    }  # fmt: skip


def keep(file: Path | None, figures: Mapping[str, Any]) -> None:
    """Write figures, if they are wanted."""
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


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

"""What made a run: versions, hardware, date, command."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from revar import __version__


def provenance() -> dict[str, Any]:
    """As plain JSON values."""
    cuda = torch.cuda.is_available()
    return {
        "revar": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": torch.cuda.get_device_name() if cuda else platform.processor(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

# Two test processes on two cores: more threads each would only get in each other's way.
torch.set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a GPU")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data. Unset, the test is skipped; set to no folder, it fails."""
    folder = os.environ.get("REVAR_DATA")
    if folder is None:
        pytest.skip("REVAR_DATA is not set")
    path = Path(folder)
    assert path.is_dir(), f"REVAR_DATA={folder} is no folder"
    return path

"""Tests that only a GPU can run: ``pytest -m gpu``. Elsewhere they are skipped (conftest.py)."""

from __future__ import annotations

import pytest
import torch

GPU = torch.device("cuda")
needs_gpu = pytest.mark.gpu

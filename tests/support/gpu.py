"""Tests that only a GPU can run; elsewhere they are skipped."""

from __future__ import annotations

import pytest
import torch

GPU = torch.device("cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

"""Where to compute."""

from __future__ import annotations

import torch

from revar.errors import InputError


def choose(name: str = "auto") -> torch.device:
    """``auto`` is the GPU where there is one.

    Raises:
        InputError: no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f'device "{name}" is not here: use auto or cpu') from error
    return device

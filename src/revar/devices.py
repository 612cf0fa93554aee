"""Where to compute."""

from __future__ import annotations

import torch

from revar.errors import InputError

_LARGE = 1 << 24
"""Bytes; the most that the library learns from is twice as large."""


def choose(name: str = "auto") -> torch.device:
    """``auto`` is the GPU where there is one.

    Raises:
        InputError: no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        # Of what holds no values, such as "meta", nothing can be read.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise InputError(f'device "{name}" is not here: use auto or cpu') from error
    return device


def keep_memory(device: torch.device) -> None:
    """Let the host keep the memory that a step frees for the next one.

    The C library of Linux gives freed memory back to the system, and asks for it anew, unless it
    has seen a larger block freed: then it keeps twice as much as that. A page that comes from the
    system takes longer than what a small net writes into it. Elsewhere this does nothing.
    """
    if device.type == "cpu":
        torch.empty(_LARGE, dtype=torch.uint8, device="cpu")

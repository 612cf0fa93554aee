"""Weights from a file of the user's, into a network that may have another head."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from revar.errors import InputError


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file or of a torch checkpoint.

    A torch checkpoint is read with ``weights_only=True``, which unpickles tensors and nothing
    else. A dictionary with ``state_dict`` or ``model`` inside and the prefix ``module.`` (left by
    data parallel training) are seen through.

    Raises:
        InputError: no such file, or no tensors in it.
    """
    if not path.is_file():
        raise InputError(f'no weights file at "{path}"')
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            found: object = load_file(path)
        except SafetensorError as error:
            raise InputError(f'"{path}" is not a safetensors file: {error}') from error
    else:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            msg = f'"{path}" cannot be read as plain tensors: save its state_dict() as .safetensors'
            raise InputError(msg) from error
    for key in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict):
        raise InputError(f'"{path}" holds {type(found).__name__}, not named tensors')
    tensors = {str(k).removeprefix("module."): v for k, v in found.items() if isinstance(v, Tensor)}
    if not tensors:
        raise InputError(f'"{path}" holds no tensors')
    return tensors


def load_pretrained(net: nn.Module, path: Path) -> None:
    """Copy every tensor of the file that fits the network; a head of another size is left new.

    Raises:
        InputError: fewer than half of the network's values are in the file.
    """
    tensors, own = read_weights(path), net.state_dict()
    fitting = {k: v for k, v in tensors.items() if k in own and own[k].shape == v.shape}
    found, total = (sum(own[k].numel() for k in names) for names in (fitting, own))
    if found < total / 2:
        msg = (
            f'"{path}" fits {found:,} of the {total:,} values of {type(net).__name__}: '
            "it belongs to another network"
        )
        raise InputError(msg)
    net.load_state_dict(fitting, strict=False)

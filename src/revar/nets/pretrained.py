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

    Tensors are matched by their names. A torch checkpoint under other names fits too if it holds
    tensors of the same kinds and shapes in the same order, as published weights of our own
    networks do. (A ``.safetensors`` file does not keep the order.)

    Raises:
        InputError: fewer than half of the network's values are in the file.
    """
    tensors, own = read_weights(path), net.state_dict()
    fitting = {k: v for k, v in tensors.items() if k in own and own[k].shape == v.shape}
    total = _values(own)
    if _values(fitting) < total / 2:
        fitting = _by_order(tensors, own) or fitting
    found = _values(fitting)
    if found < total / 2:
        msg = (
            f'"{path}" fits {found:,} of the {total:,} values of {type(net).__name__}: '
            "it belongs to another network"
        )
        raise InputError(msg)
    net.load_state_dict(fitting, strict=False)


def _values(tensors: dict[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


def _by_order(tensors: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under our names, if all but those of the last layer fit in their order."""
    # Older files lack these counters, which nothing depends on.
    theirs, ours = (
        [name for name in names if not name.endswith("num_batches_tracked")]
        for names in (tensors, own)
    )
    if not ours or [_kind(name) for name in theirs] != [_kind(name) for name in ours]:
        return {}
    head = ours[-1].rpartition(".")[0]
    pairs = dict(zip(ours, theirs, strict=True))
    fitting = {k: tensors[v] for k, v in pairs.items() if tensors[v].shape == own[k].shape}
    trunk = (name for name in ours if name.rpartition(".")[0] != head)
    return fitting if all(name in fitting for name in trunk) else {}


def _kind(name: str) -> str:
    """weight, bias, running_mean, ..."""
    return name.rpartition(".")[2]

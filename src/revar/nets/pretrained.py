"""Weights from a file of the user's, into a network that may have another head."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from revar.errors import InputError

Tensors = dict[str, Tensor]
_COUNTER = "num_batches_tracked"
"""Of batch norm; no layer of ours reads it, and older files lack it."""
_NORMALISE = "normalise."
_WRAPPERS = ("net.", "trunk.")
"""How our classifiers name the network inside them."""


def read_weights(path: Path) -> Tensors:
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


def load_pretrained(net: nn.Module, path: Path) -> set[str]:
    """Copy every tensor of the file that fits the network; a head of another size is left new.

    Tensors are matched by their names and shapes. What wraps a network (``net.``, ``trunk.``,
    ``model.``, the ``classifier.`` of a run of ours) may be there on one side only. Where names do
    not fit, the order does if kinds and shapes agree all along: published weights of the same
    network under other names. (A ``.safetensors`` file does not keep the order.)

    Returns:
        The names of the network's tensors that are not in the file; counters are not named.

    Raises:
        InputError: fewer than half of the network's values are in the file.
    """
    tensors, own = _of_classifier(read_weights(path)), net.state_dict()
    fitting = _by_name(tensors, own)
    found, total = (sum(own[k].numel() for k in names) for names in (fitting, own))
    if found < total / 2:
        ordered = _by_order(tensors, own)
        if ordered is None:
            msg = (
                f'"{path}" fits {found:,} of the {total:,} values of {type(net).__name__}: '
                "it belongs to another network"
            )
            raise InputError(msg)
        fitting = ordered
    net.load_state_dict(fitting, strict=False)
    return {name for name in own if name not in fitting and not name.endswith(_COUNTER)}


def run_statistics(path: Path) -> Tensors:
    """``mean`` and ``deviation`` of the inputs, where the file is the weights of a run of ours."""
    tensors = read_weights(path)
    if not _is_run(tensors):
        return {}
    return {
        name.removeprefix(_NORMALISE): value
        for name, value in tensors.items()
        if name.startswith(_NORMALISE)
    }


def _is_run(tensors: Tensors) -> bool:
    return f"{_NORMALISE}mean" in tensors


def _of_classifier(tensors: Tensors) -> Tensors:
    """Of a run of ours its classifier alone: a scorer may have the same layers."""
    if not _is_run(tensors):
        return tensors
    return {k: v for k, v in tensors.items() if k.startswith("classifier.")}


def _by_name(tensors: Tensors, own: Tensors) -> Tensors:
    """The tensors that fit by name and shape, without the wrapping that fits the most values."""
    outer = ["", *sorted({name for key in tensors for name in _prefixes(key)}, key=len)]
    best: Tensors = {}
    size = 0
    for inner in ("", *_WRAPPERS):
        for prefix in outer:
            named = {
                inner + key.removeprefix(prefix): value
                for key, value in tensors.items()
                if key.startswith(prefix)
            }
            fitting = {k: v for k, v in named.items() if k in own and own[k].shape == v.shape}
            values = sum(v.numel() for v in fitting.values())
            # The shortest prefix of those that do as well.
            if values > size:
                best, size = fitting, values
    return best


def _prefixes(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:n]) + "." for n in (1, 2) if n < len(parts)]


def _by_order(tensors: Tensors, own: Tensors) -> Tensors | None:
    """The tensors by their place, or nothing where the place does not tell."""
    theirs = {k: v for k, v in tensors.items() if not k.endswith(_COUNTER)}
    ours = [k for k in own if not k.endswith(_COUNTER)]
    if list(theirs) == sorted(theirs):
        # Written by name, as safetensors does: layer 10 comes before layer 2.
        return None
    # The last layer may be of another size, or not there.
    head = 2 if ours and _kind(ours[-1]) == "bias" else 1
    trunk = ours[:-head]
    if len(theirs) not in (len(trunk), len(ours)):
        return None
    pairs = list(zip(ours, theirs.items(), strict=False))
    if any(_kind(name) != _kind(key) for name, (key, _) in pairs):
        return None
    if any(own[name].shape != value.shape for name, (_, value) in pairs[: len(trunk)]):
        return None
    return {name: value for name, (_, value) in pairs if own[name].shape == value.shape}


def _kind(name: str) -> str:
    """``weight``, ``bias``, ``running_mean``, ...: shapes alone do not tell these apart."""
    return name.rpartition(".")[2]

"""Starting from a trained network: what is loaded, what is frozen, how fast each layer learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from revar.errors import InputError
from revar.nets.base import Classifier, SplitClassifier
from revar.nets.external import TimmClassifier
from revar.nets.pretrained import load_pretrained, run_statistics

TIMM = "timm"
"""Instead of a file: the weights that timm has for the network."""
SAMPLE = 256
"""Images that are looked at to tell the range of their values."""


def head_of(classifier: Classifier) -> nn.Module | None:
    """The last layer, where it is known."""
    if isinstance(classifier, SplitClassifier):
        return classifier.head
    if isinstance(classifier, TimmClassifier) and hasattr(classifier.net, "get_classifier"):
        head = classifier.net.get_classifier()
        return head if isinstance(head, nn.Module) else None
    return None


def load_start(classifier: Classifier, path: Path) -> None:
    """Put the weights of a file into a new classifier; a head of another size starts at zero.

    Raises:
        InputError: no such file, or it lacks some tensor of the trunk.
    """
    missing = load_pretrained(classifier, path)
    head = head_of(classifier)
    of_head = set() if head is None else set(head.parameters())
    named = dict(classifier.named_parameters())
    if any(named.get(name) in of_head for name in missing):
        zero_head(classifier)
        missing = {name for name in missing if named.get(name) not in of_head}
    if missing:
        first = min(missing)
        shape = tuple(classifier.state_dict()[first].shape)
        msg = f'"{path}" has no "{first}" of shape {shape}: it belongs to another network'
        raise InputError(msg)


def has_new_head(classifier: Classifier, n_outputs: int) -> bool:
    """Whether timm's weights are for another number of classes than these."""
    known: dict[str, Any] = getattr(getattr(classifier, "net", None), "pretrained_cfg", None) or {}
    return bool(known.get("num_classes") != n_outputs)


def zero_head(classifier: Classifier) -> None:
    """Let a new last layer give logits of zero.

    Random ones would send large and meaningless gradients into a trunk that has learned
    something (Dosovitskiy et al. 2021 fine-tune in this way).
    """
    head = head_of(classifier)
    for parameter in () if head is None else head.parameters():
        nn.init.zeros_(parameter)


def freeze_trunk(classifier: Classifier) -> None:
    """Let only the last layer be trained.

    Raises:
        InputError: which layer that is cannot be known.
    """
    head = head_of(classifier)
    if head is None or not any(True for _ in head.parameters()):
        msg = (
            f"{type(classifier).__name__} has no last layer of its own, so that frozen=true would "
            "leave nothing to train: give a module that ends in nn.Linear"
        )
        raise InputError(msg)
    trained = set(head.parameters())
    for parameter in classifier.parameters():
        parameter.requires_grad_(parameter in trained)


def input_statistics(classifier: Classifier, path: Path | None, x: Tensor) -> dict[str, Tensor]:
    """What the pretrained network takes its inputs to be: ``mean`` and ``deviation``, or nothing.

    A run of ours says it in its file. timm says it for its models, about images from 0 to 1;
    values from 0 to 255 are told by looking. Nobody knows it for other networks, for values of
    another range and for other channels.

    Args:
        classifier: the network.
        path: the file of its weights; ``None`` for timm's own.
        x: [n, ...] some stored training inputs.
    """
    shape = (x.shape[1],) + (1,) * (x.ndim - 2)
    if path is not None:
        found = run_statistics(path)
        if found:
            return {k: v for k, v in found.items() if v.shape == shape}
    if not isinstance(classifier, TimmClassifier) or x.ndim != 4:
        return {}
    known: dict[str, Any] = getattr(classifier.net, "pretrained_cfg", None) or {}
    values = {"mean": known.get("mean"), "deviation": known.get("std")}
    lowest, highest = x.min().item(), x.max().item()
    if lowest < 0 or highest > 255 or None in values.values():
        return {}
    factor = 1.0 if highest <= 1 else 255.0
    statistics = {name: torch.tensor(value) * factor for name, value in values.items()}
    if x.shape[1] == 1:
        # timm adds up the first layer's weights over the colours.
        statistics = {name: value.mean().reshape(1) for name, value in statistics.items()}
    return {k: v.reshape(shape) for k, v in statistics.items() if len(v) == x.shape[1]}


def layer_rates(classifier: Classifier, decay: float) -> dict[nn.Parameter, float]:
    """Factors on the learning rate: 1 for the head, ``decay`` to the power of how far below it.

    timm knows the layers of its models. Elsewhere each block of the trunk is one, in the order of
    definition; a norm of its own counts with the block before it.
    """
    if isinstance(classifier, TimmClassifier) and hasattr(classifier.net, "group_matcher"):
        from timm.optim import param_groups_layer_decay

        groups = param_groups_layer_decay(classifier.net, layer_decay=decay)
        return {p: float(group["lr_scale"]) for group in groups for p in group["params"]}
    head = head_of(classifier)
    last = [] if head is None else list(head.parameters())
    layers = [*_layers(classifier, set(last)), *([last] if last else [])]
    top = len(layers) - 1
    return {p: decay ** (top - depth) for depth, layer in enumerate(layers) for p in layer}


def upper_layers(classifier: Classifier) -> frozenset[str]:
    """Names of the parameters of the head and of the upper quarter of the layers below it."""
    depths = layer_rates(classifier, 0.5)
    rates = sorted(set(depths.values()), reverse=True)
    # The first is the head's, or that of the last layer where no head is known.
    lowest = rates[-(-(len(rates) - 1) // 4)]
    return frozenset(
        name
        for name, p in classifier.named_parameters()
        if p.requires_grad and depths.get(p, 0.0) >= lowest
    )


def _layers(net: nn.Module, without: set[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters of a network by its blocks, the lowest first."""
    blocks: dict[str, list[nn.Parameter]] = {}
    for name, parameter in net.named_parameters():
        if parameter not in without:
            blocks.setdefault(_block(name), []).append(parameter)
    layers: list[list[nn.Parameter]] = []
    loose: list[nn.Parameter] = []
    for name, block in blocks.items():
        if any(other.startswith(f"{name}.") for other in blocks):
            # What holds other blocks, such as a trunk with positions: used with the first of them.
            loose += block
        elif layers and all(p.ndim <= 1 for p in block):
            layers[-1] += block
        else:
            layers.append(loose + block)
            loose = []
    return layers


def _block(name: str) -> str:
    """The block a parameter belongs to: its path up to the first number.

    >>> _block("trunk.3.first.0.weight"), _block("trunk.layers.2.norm.bias"), _block("trunk.first")
    ('trunk.3', 'trunk.layers.2', 'trunk')
    """
    parts = name.split(".")[:-1]
    numbered = [position for position, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbered[0] + 1] if numbered else parts)

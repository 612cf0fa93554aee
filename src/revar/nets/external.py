"""Classifiers that are not ours: timm models by name, and any ``nn.Module`` of the user's."""

from __future__ import annotations

import copy
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedBuffer

from revar.errors import InputError, unknown
from revar.functional import mode
from revar.nets.base import Classifier, Dropout, SplitClassifier
from revar.randomness import preserved
from revar.stochastic import placement


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        msg = 'timm backbones need the extra "vision": pip install "revar[vision]"'
        raise InputError(msg) from error
    return timm


def timm_names(pattern: str = "*") -> list[str]:
    """The names of timm's models that match a shell pattern."""
    names: list[str] = _timm().list_models(pattern)
    return names


class TimmClassifier(Classifier):
    """A timm model, through its own ``forward_features`` and ``forward_head``."""

    def __init__(self, net: nn.Module, example: Tensor) -> None:
        super().__init__()
        self.net: Any = net
        head: Any = self.net.forward_head
        self.pools = "pre_logits" in signature(head).parameters
        with torch.no_grad(), mode(net, dropout=False, statistics=True):
            self.n_features = self.embed(self.forward_features(example)).shape[1]

    def forward_features(self, x: Tensor) -> Tensor:
        """[n, channels, h, w] to timm's unpooled features."""
        features: Tensor = self.net.forward_features(x)
        return features

    def forward_head(self, features: Tensor) -> Tensor:
        """Pooling, dropout and the last layer."""
        logits: Tensor = self.net.forward_head(features)
        return logits

    def embed(self, features: Tensor) -> Tensor:
        """Pooled features, without dropout."""
        if not self.pools:
            return features.flatten(2).mean(-1) if features.ndim > 2 else features
        with mode(self.net, dropout=False, statistics=True):
            pooled: Tensor = self.net.forward_head(features, pre_logits=True)
        return pooled


def from_timm(
    name: str,
    input_shape: tuple[int, ...],
    n_outputs: int,
    dropout: Dropout,
    *,
    pretrained: bool = False,
) -> TimmClassifier:
    """Build a timm model by name, for this many channels and outputs.

    Raises:
        InputError: timm is not installed or has no such model, the input is not an image, the
            model cannot place dropout as asked, or its weights cannot be had.
    """
    timm = _timm()
    if not timm.is_model(name):
        from revar.registry import BACKBONES

        raise unknown("backbone", name, [entry.name for entry in BACKBONES])
    if len(input_shape) != 3:
        msg = f'backbone "{name}" reads images, the data are rows of {input_shape}: use "mlp"'
        raise InputError(msg)
    options: dict[str, Any] = {"drop_rate": dropout.rate, "in_chans": input_shape[0]}
    if dropout.placement == "everywhere" and dropout.rate:
        if not name.startswith(("vit", "deit", "mixer")):
            msg = (
                f'timm\'s "{name}" has dropout before its last layer only: use '
                "dropout_placement=head, or a backbone of our own"
            )
            raise InputError(msg)
        options["proj_drop_rate"] = dropout.rate
    if name.startswith(("vit", "deit")):
        options["img_size"] = input_shape[1:]
    try:
        net = timm.create_model(name, pretrained=pretrained, num_classes=n_outputs, **options)
        return TimmClassifier(net, torch.zeros(2, *input_shape))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if pretrained:
            # Where the network itself is the reason, this says so.
            from_timm(name, input_shape, n_outputs, dropout)
            msg = f'timm\'s weights of "{name}" cannot be had, a file would do: {reason}'
            raise InputError(msg) from error
        raise InputError(f'timm\'s "{name}" cannot read images {input_shape}: {reason}') from error


class OpaqueClassifier(Classifier):
    """A module that cannot be taken apart: its logits are all there is to read."""

    def __init__(self, net: nn.Module, n_outputs: int) -> None:
        super().__init__()
        self.net = net
        self.n_features = n_outputs

    def forward_features(self, x: Tensor) -> Tensor:
        """[n, ...] to [n, C]: the whole module."""
        logits: Tensor = self.net(x)
        return logits

    def forward_head(self, features: Tensor) -> Tensor:
        """The logits as they are."""
        return features


def from_module(module: nn.Module, example: Tensor, n_outputs: int, dropout: Dropout) -> Classifier:
    """A classifier that is a copy of any module, see `_classifier_of`."""
    classifier = _classifier_of(module, example, n_outputs, dropout)
    classifier.is_ours = False
    return classifier


def _classifier_of(
    module: nn.Module, example: Tensor, n_outputs: int, dropout: Dropout
) -> Classifier:
    """Make a classifier of a copy of any module.

    * A module with dropout and timm's ``forward_features`` and ``forward_head`` keeps its halves.
    * A module that returns ``n_outputs`` values is a classifier. Where its last linear layer can
      be taken off without changing what it computes, that layer becomes the head.
    * A module that returns any other width is a trunk; a linear head is added.

    A module whose outputs for a row depend on the other rows, or on chance, is refused.

    Dropout before the head is added only to a module that draws no random numbers of its own.

    Args:
        module: maps ``example`` to [n, d].
        example: [n, ...] normalised inputs.
        n_outputs: C.
        dropout: used where the module has none.
    """
    name = type(module).__name__
    net = _copy(module).to(example.device)
    try:
        with mode(net, dropout=False, statistics=True), torch.no_grad():
            output = net(example.clone())
    except Exception as error:
        msg = f"backbone {name} fails on inputs of shape {tuple(example.shape)}: {_line(error)}"
        raise InputError(msg) from error
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != len(example):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(f"backbone {name} returns {shape}: it must return [n, width]")
    _check_rows(net, name, example, output)
    width = output.shape[1]
    own_dropout = placement(net, example) != "none"
    halves = hasattr(net, "forward_features") and hasattr(net, "forward_head")
    if width == n_outputs and own_dropout and halves:
        return TimmClassifier(net, example)
    if width != n_outputs:
        return SplitClassifier(net, width, n_outputs, 0.0 if own_dropout else dropout.rate)
    split = _take_off_head(net, example, 0.0 if own_dropout else dropout.rate)
    return OpaqueClassifier(net, n_outputs) if split is None else split


def _copy(module: nn.Module) -> nn.Module:
    """A copy of a module, of which torch has one that can be trained.

    Raises:
        InputError: it has none.
    """
    name = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        msg = f"backbone {name} is compiled by torch.jit: give the nn.Module that it was made of"
        raise InputError(msg)
    if any(isinstance(buffer, UninitializedBuffer) for buffer in module.buffers()):
        msg = (
            f"backbone {name} has lazy layers whose buffers have no shape yet, which torch cannot "
            "copy: run it on a batch first, or use layers of a known width"
        )
        raise InputError(msg)
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise InputError(f"backbone {name} cannot be copied: {_line(error)}") from error


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


_APART = 0.01
"""Of the largest output: how far apart outputs may be that kernels of other sizes round."""


def _check_rows(net: nn.Module, name: str, example: Tensor, together: Tensor) -> None:
    """Refuse a module whose outputs for a row are others where it comes alone.

    Raises:
        InputError: it mixes rows, or draws random numbers where dropout is off.
    """
    if not together.numel():
        raise InputError(f"backbone {name} returns {tuple(together.shape)}, which holds nothing")
    mixes = (
        f"backbone {name} gives a row other outputs where other rows come with it, also in "
        "evaluation mode: a score must depend on its own input alone (batch norm needs "
        "track_running_stats=True)"
    )

    def alike(*parts: Tensor) -> bool:
        # Copies: some layers write into their input.
        outputs = torch.cat([net(part.clone()) for part in parts])
        return not bool((outputs - together).abs().max() > _APART * together.abs().max())

    off = mode(net, dropout=False, statistics=True)
    with preserved(example.device), off, torch.no_grad():
        try:
            if len(example) == 1 or alike(*example.split(1)):
                return
        except Exception as error:
            if any(isinstance(m, _BatchNorm) and m.running_mean is None for m in net.modules()):
                raise InputError(mixes) from error
            raise InputError(f"backbone {name} fails on one row alone: {_line(error)}") from error
        if not alike(example):
            mixes = (
                f"backbone {name} gives other outputs each time, also in evaluation mode: let it "
                "draw random numbers in training mode only"
            )
    raise InputError(mixes)


def _take_off_head(net: nn.Module, example: Tensor, rate: float) -> SplitClassifier | None:
    """Split a classifier at its last linear layer; ``None`` where that changes its outputs."""
    linear = [(name, m) for name, m in net.named_modules() if isinstance(m, nn.Linear)]
    if not linear:
        return None
    name, last = linear[-1]
    trunk = copy.deepcopy(net)
    if name == "":
        trunk = nn.Identity()
    else:
        parent, _, attribute = name.rpartition(".")
        setattr(trunk.get_submodule(parent), attribute, nn.Identity())
    with mode(net, dropout=False, statistics=True), torch.no_grad():
        expected = net(example)
    with mode(trunk, dropout=False, statistics=True), torch.no_grad():
        try:
            features = trunk(example)
            if features.ndim != 2 or not torch.equal(last(features), expected):
                return None
        except (RuntimeError, TypeError, AttributeError):
            # Something after the last linear layer (in definition order) needs its width.
            return None
    split = SplitClassifier(trunk, last.in_features, last.out_features, rate)
    split.head[1] = last
    return split

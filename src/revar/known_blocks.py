"""Residual blocks whose code is known: which convolutions they have, and in which order.

Known by the name of their class, so that no library is loaded to ask. A block of another class, or
with a part that these do not always have, is not known, and neither is one whose layers somebody
watches or has changed. What stands in place of a method and can do the same `around` another, as
`revar.recomputed` has it, is no change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn


class Layer(NamedTuple):
    """A convolution and its batch norm."""

    convolution: nn.Conv2d
    norm: nn.BatchNorm2d


class Residual(NamedTuple):
    """A block: layers with a ReLU after each, what is added before the last of these.

    Attributes:
        block: as it is.
        layers: of the residual.
        drop: after the last of them, before the shortcut is added.
        projection: of the shortcut, if it is a layer.
        shortcut: of the input, if it is none.
    """

    block: nn.Module
    layers: tuple[Layer, ...]
    drop: nn.Module | None
    projection: Layer | None
    shortcut: Callable[[Tensor], Tensor]


class Row(NamedTuple):
    """Modules in a row, some of which are a layer with a ReLU after it.

    Attributes:
        row: as it is.
        layers: by the place of what they begin with; the ReLU has the place after it.
    """

    row: nn.Sequential
    layers: dict[int, Layer]


class Stem(NamedTuple):
    """A whole network that begins with a layer and a ReLU.

    Attributes:
        net: as it is.
        layer: the first.
        part: the method that calls it.
        others: what that method calls after the ReLU, one after the other.
    """

    net: nn.Module
    layer: Layer
    part: str
    others: tuple[Callable[[Tensor], Tensor], ...]


Known = Residual | Row | Stem


class _Own:
    """A module's own method, with nothing around it, and nothing put together."""

    pieces: tuple[nn.Module, ...] | None = None

    def around(self, run: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """Another instead."""
        return run


_OWN = _Own()


def around(module: nn.Module, run: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A pass in place of a module's own, with whatever stands around that."""
    made: Callable[[Tensor], Tensor] = vars(module).get("forward", _OWN).around(run)
    return made


_OURS = ("revar.nets.residual.ResidualBlock", "revar.nets.residual.Bottleneck")
_TORCHVISION = ("torchvision.models.resnet.BasicBlock", "torchvision.models.resnet.Bottleneck")
_TIMM = ("timm.models.resnet.BasicBlock", "timm.models.resnet.Bottleneck")
_NETS = {
    "timm.models.resnet.ResNet": ("forward_features", "act1"),
    "torchvision.models.resnet.ResNet": ("_forward_impl", "relu"),
}
"""The method that does all of it, and the name of its ReLU."""


def known(module: nn.Module) -> Known | None:
    """What is known of a module; ``None`` if it is not."""
    if not _is_itself(module):
        return None
    if type(module) is nn.Sequential:
        return _row_of(module)
    return _stem_of(module) if _kind(module) in _NETS else _residual_of(module)


def within(module: nn.Module) -> list[nn.Module]:
    """What a module calls, where it is known to do no more than that.

    Code that is not known may compute a part again later, or in another precision.
    """
    kind, own = _kind(module), vars(module)
    # Layers put together are still what it calls; a trunk in parts (`revar.in_parts`) comes again.
    changed = not hasattr(own.get("forward", _OWN), "pieces") or "forward_features" in own
    if changed or _is_compiled(module) or getattr(module, "grad_checkpointing", False):
        return []
    plain = type(module) is nn.Sequential or kind in _NETS or kind.startswith("revar.nets.")
    return list(module.children()) if plain else []


def _residual_of(block: nn.Module) -> Residual | None:
    kind = _kind(block)
    if kind in _OURS:
        return _ours(block)
    if kind not in (*_TORCHVISION, *_TIMM):
        return None
    found: Any = block
    pairs = [(found.conv1, found.bn1), (found.conv2, found.bn2)]
    if kind.endswith("Bottleneck"):
        pairs.append((found.conv3, found.bn3))
    layers = [_layer(*pair) for pair in pairs]
    if kind in _TIMM and not _is_bare(found):
        return None
    if kind in _TORCHVISION and not _is_relu(found.relu):
        return None
    return _residual(block, layers, None, found.downsample, _itself)


def _ours(block: Any) -> Residual | None:
    changed = any(name in vars(block) for name in ("_residual", "_shortcut"))
    if changed or type(block.drop) not in (nn.Dropout2d, nn.Identity):
        return None
    parts = [block.first, block.second, *([block.third] if hasattr(block, "third") else [])]
    layers = [_pair(part) for part in parts]
    return _residual(block, layers, block.drop, block.projection, block._shortcut)


def _residual(
    block: nn.Module, layers: list[Layer | None], drop: nn.Module | None,
    projection: nn.Module | None, shortcut: Callable[[Tensor], Tensor],
) -> Residual | None:  # fmt: skip
    known = tuple(layer for layer in layers if layer is not None)
    if len(known) < len(layers) or (drop is not None and _is_changed(drop)):
        return None
    if projection is None:
        return Residual(block, known, drop, None, shortcut)
    layer = _pair(projection)
    # One that is more than that, as where it averages first, runs as it is.
    return Residual(block, known, drop, layer, shortcut if layer else projection)


def _is_bare(block: Any) -> bool:
    """Whether a block of timm has none of its extras."""
    acts = [block.act1, block.act2, *([block.act3] if hasattr(block, "act3") else [])]
    still = (block.drop_block, block.aa)
    gone = block.se is None and (block.drop_path is None or _is_identity(block.drop_path))
    return gone and all(map(_is_identity, still)) and all(map(_is_relu, acts))


def _row_of(row: nn.Sequential) -> Row | None:
    children = list(row)
    put_together = getattr(vars(row).get("forward", _OWN), "pieces", None)
    if any(piece not in children for piece in put_together or ()):
        return None
    pairs = [(place, _pair(child)) for place, child in enumerate(children[:-1])]
    layers = {p: layer for p, layer in pairs if layer is not None and _is_relu(children[p + 1])}
    return Row(row, layers) if layers else None


def _stem_of(module: nn.Module) -> Stem | None:
    net: Any = module
    kind = _kind(module)
    part, relu = _NETS[kind]
    layer = _layer(net.conv1, net.bn1)
    if layer is None or part in vars(net) or not _is_relu(getattr(net, relu)):
        return None
    others = [net.maxpool, net.layer1, net.layer2, net.layer3, net.layer4]
    if part == "_forward_impl":
        others += [net.avgpool, nn.Flatten(), net.fc]
    elif net.grad_checkpointing:
        return None
    return Stem(module, layer, part, tuple(others))


def _pair(module: nn.Module) -> Layer | None:
    """Of a convolution and a norm in a row."""
    if type(module) is not nn.Sequential or not _is_itself(module) or len(module) != 2:
        return None
    return _layer(*module)


def _layer(convolution: nn.Module, norm: nn.Module) -> Layer | None:
    """Of a convolution as most are, and a norm that keeps statistics."""
    if type(convolution) is not nn.Conv2d or type(norm) is not nn.BatchNorm2d:
        return None
    if _is_changed(convolution) or _is_changed(norm):
        return None
    plain = convolution.groups == 1 and convolution.padding_mode == "zeros"
    if not plain or convolution.bias is not None or isinstance(convolution.padding, str):
        return None
    parts = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return None if any(part is None for part in parts) else Layer(convolution, norm)


def _is_changed(module: nn.Module) -> bool:
    """Whether somebody has a hook on its passes, or has put another in place of its own."""
    return "forward" in vars(module) or _is_watched(module)


def _is_compiled(module: nn.Module) -> bool:
    """By its own ``compile``: it would be compiled anew for whatever stands in it."""
    return vars(module).get("_compiled_call_impl") is not None


def _is_watched(module: nn.Module) -> bool:
    if _is_compiled(module):
        return True
    own = vars(module)
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(own[name] for name in hooks)


def _is_itself(module: nn.Module) -> bool:
    """Whether it does what its class does, around which something else may stand."""
    return not _is_watched(module) and hasattr(vars(module).get("forward", _OWN), "around")


def _kind(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _is_relu(module: nn.Module) -> bool:
    return type(module) is nn.ReLU and not _is_changed(module)


def _is_identity(module: nn.Module) -> bool:
    return type(module) is nn.Identity and not _is_changed(module)


def _itself(x: Tensor) -> Tensor:
    return x

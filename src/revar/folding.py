"""Passes with batch norm by fixed statistics, in one kernel for each convolution.

There batch norm is a factor and a shift for every channel. The factor goes into the weight of the
convolution before it, and the shift, what a residual block adds, and ReLU are done by the kernel
that convolves, where it has the numbers at hand: by themselves each reads and writes all of them
once more, which takes a GPU longer than to convolve. What a pass keeps for its gradient is half.

The gradient of factor and shift comes from that of the weight they went into,

    <grad l, d(factor W)/d factor> = sum over a channel of W * grad l(factor W),

so that backward passes lose the reductions of batch norm, too. Weights are folded once for all
passes at the same parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.modules.module as modules
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from revar.known_blocks import Known, Layer, Residual, Row, Stem, around, known, within
from revar.parallel import world

_TYPES = (torch.bfloat16, torch.float16, torch.float32)
"""That the kernels know."""
Pass = Callable[[Tensor], Tensor]
_Folds = dict[Layer, tuple[Tensor, Tensor]]
_Place = tuple[nn.Module, str, Pass]
"""A module, a method of it, and what stands in its place for a while."""


def folded(net: nn.Module, part: str = "forward") -> Pass:
    """A pass of a network at the parameters that stand in it now, dropout as it is set.

    Differentiable once by its parameters. Where nothing can be folded it is the network's own: on a
    CPU, for blocks that are not known, or where what it does was changed. It may run at any later
    time if flags are then as they are now.

    Args:
        net: in a mode in which batch norm goes by its statistics.
        part: method of it.
    """
    own: Pass = net if part == "forward" else getattr(net, part)
    instead = _all_instead(net)
    if not instead:
        return own

    def run(x: Tensor) -> Tensor:
        with _replaced(instead):
            return own(x)

    return run


def folding(net: nn.Module) -> AbstractContextManager[None]:
    """A block in which a network runs so, at the parameters that stand in it now."""
    instead = _all_instead(net)
    return _replaced(instead) if instead else nullcontext()


def _all_instead(net: nn.Module) -> list[_Place]:
    """What is to stand in its place; nothing where nothing can be folded."""
    found = _found(net) if _can_fold(net) else []
    folds = _folds([layer for one in found for layer in _layers(one)])
    return [_instead(one, folds) for one in found]


def on_gpu(net: nn.Module) -> bool:
    """Whether a network lies where there are such kernels."""
    first = next(net.parameters(), None)
    fused = torch.version.cuda is not None and torch.backends.cudnn.enabled
    return first is not None and first.is_cuda and first.dtype in _TYPES and fused


def _can_fold(net: nn.Module) -> bool:
    return world().size == 1 and on_gpu(net) and not any(_HOOKS_OF_ALL)


_HOOKS_OF_ALL: list[dict[int, Any]] = [
    getattr(modules, f"_global_{kind}_hooks", {})
    for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
"""On the passes of every module there is."""


def _found(net: nn.Module) -> list[Known]:
    """All that is known of a network and whose layers can be folded together."""
    found: list[Known] = []
    eps: float | None = None
    seen: set[nn.Module] = set()
    open_modules = [net]
    while open_modules:
        module = open_modules.pop()
        if module in seen:
            continue
        seen.add(module)
        open_modules += reversed(within(module))
        one = known(module)
        if one is None:
            continue
        norms = [layer.norm for layer in _layers(one)]
        eps = norms[0].eps if eps is None else eps
        if not any(norm.training or norm.eps != eps for norm in norms):
            found.append(one)
    return found


def _layers(one: Known) -> list[Layer]:
    if isinstance(one, Residual):
        return [*one.layers, *([] if one.projection is None else [one.projection])]
    return list(one.layers.values()) if isinstance(one, Row) else [one.layer]


def _instead(one: Known, folds: _Folds) -> _Place:
    if isinstance(one, Residual):
        return one.block, "forward", around(one.block, _Block(one, folds))
    if isinstance(one, Stem):
        return one.net, one.part, _InTurn([_Step(one.layer, *folds[one.layer]), *one.others])
    steps: list[Pass] = []
    for place, module in enumerate(one.row):
        if place in one.layers:
            layer = one.layers[place]
            steps.append(around(module, _Step(layer, *folds[layer])))
        elif place - 1 not in one.layers:
            steps.append(module)
    return one.row, "forward", around(one.row, _InTurn(steps))


class _InTurn:
    """One after the other."""

    def __init__(self, steps: Sequence[Pass]) -> None:
        self._steps = steps

    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002  (as in torch)
        """The last one's output."""
        for step in self._steps:
            input = step(input)  # noqa: A001
        return input


class _Step:
    """A layer with its ReLU."""

    def __init__(self, layer: Layer, weight: Tensor, shift: Tensor) -> None:
        self._layer, self._fold = layer.convolution, (weight, shift)

    def __call__(self, x: Tensor, added: Tensor | None = None, *, relu: bool = True) -> Tensor:
        """With something added before the ReLU, or without one."""
        conv, (weight, shift) = self._layer, self._fold
        result: Tensor = _Convolved.apply(
            x.to(weight.dtype), weight, shift, added, relu, conv.stride, conv.padding, conv.dilation
        )
        return result


class _Block:
    """A residual block."""

    def __init__(self, residual: Residual, folds: _Folds) -> None:
        *first, last = residual.layers
        self._drop, self._shortcut = residual.drop, residual.shortcut
        self._first = [_Step(layer, *folds[layer]) for layer in first]
        self._last, self._projection = last, residual.projection
        self._fold = folds[last]
        self._projected = None if self._projection is None else folds[self._projection]

    def __call__(self, x: Tensor) -> Tensor:
        """As the block does."""
        inner = x
        for step in self._first:
            inner = step(inner)
        weight, shift = self._fold
        if self._projection is None or self._projected is None:
            added = self._shortcut(x)
        else:
            conv, (of_it, by_it) = self._projection.convolution, self._projected
            added = torch.conv2d(
                x.to(of_it.dtype), of_it, None, conv.stride, conv.padding, conv.dilation
            )
            shift = shift + by_it
        last = _Step(self._last, weight, shift)
        drop = self._drop
        if drop is None or not (drop.training and getattr(drop, "p", 1.0) > 0):
            return last(inner, added)
        if self._projected is not None:
            # Only the residual is dropped: the shift of the shortcut goes its own way.
            last = _Step(self._last, *self._fold)
            added = added + self._projected[1].view(1, -1, 1, 1)
        return torch.relu(drop(last(inner, relu=False)) + added)


def _folds(layers: Sequence[Layer]) -> _Folds:
    """Weight and shift of every layer; those that need no gradient apart, so that they get none."""
    made: _Folds = {}
    for trained in (True, False):
        alike = [layer for layer in layers if _is_trained(layer) is trained]
        if alike:
            made.update(zip(alike, zip(*_fold(alike), strict=True), strict=True))
    return made


def _is_trained(layer: Layer) -> bool:
    own = (layer.convolution.weight, layer.norm.weight, layer.norm.bias)
    return any(parameter.requires_grad for parameter in own)


def _fold(layers: Sequence[Layer]) -> tuple[list[Tensor], list[Tensor]]:
    """In the type that autocast computes in."""
    device = layers[0].convolution.weight.device.type
    low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    norms = [layer.norm for layer in layers]
    statistics = [torch.cat([getattr(n, name) for n in norms]) for name in _STATISTICS]
    made = _Fold.apply(
        low, norms[0].eps, *statistics, len(layers),
        *(layer.convolution.weight for layer in layers),
        *(norm.weight for norm in norms), *(norm.bias for norm in norms),
    )  # fmt: skip
    *weights, flat = made
    return weights, list(flat.split([norm.num_features for norm in norms]))


_STATISTICS = ("running_mean", "running_var")


class _Fold(torch.autograd.Function):
    """``factor W`` of every layer, and ``bias - mean * factor`` of all of them end to end.

    With ``factor = weight / sqrt(variance + eps)``. Channels of all layers lie in one vector: a net
    has hundreds of small ones, and each takes as long as it takes to begin.
    """

    @staticmethod
    def forward(
        ctx: Any, low: torch.dtype | None, eps: float, mean: Tensor, variance: Tensor, count: int,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        weights, scales, biases = (tensors[k * count : (k + 1) * count] for k in range(3))
        inverse = (variance + eps).rsqrt_()
        factor = torch.cat(scales) * inverse
        shift = torch.addcmul(torch.cat(biases), mean, factor, value=-1)
        ctx.save_for_backward(mean, inverse, factor, *weights)
        ctx.types = scales[0].dtype, biases[0].dtype
        made = [
            torch.mul(w, by, out=torch.empty_like(w, dtype=low or w.dtype))
            for w, by in zip(weights, _by_layer(factor, weights), strict=True)
        ]
        return (*made, shift.to(low or shift.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        mean, inverse, factor, *weights = ctx.saved_tensors
        *of_folded, of_shift = gradients
        count = len(weights)
        wanted = ctx.needs_input_grad[5:]
        parts = zip(of_folded, _by_layer(factor, weights), weights, wanted, strict=False)
        of_weights = [
            torch.mul(g, by, out=torch.empty_like(w)) if asked else None
            for g, by, w, asked in parts
        ]
        of_scales: Sequence[Tensor | None] = [None] * count
        of_biases: Sequence[Tensor | None] = [None] * count
        sizes = [len(weight) for weight in weights]
        if any(wanted[count:]):
            of_shift = of_shift.to(mean.dtype)
            of_factor = torch.cat([
                (g * w).sum((1, 2, 3), dtype=mean.dtype)
                for g, w in zip(of_folded, weights, strict=True)
            ])  # fmt: skip
            of_scale = torch.addcmul(of_factor, mean, of_shift, value=-1).mul_(inverse)
            of_scales = of_scale.to(ctx.types[0]).split(sizes)
            of_biases = of_shift.to(ctx.types[1]).split(sizes)
        return (None, None, None, None, None, *of_weights, *of_scales, *of_biases)


def _by_layer(channels: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Parts of a vector of all channels, in shapes that multiply weights."""
    return [part.view(-1, 1, 1, 1) for part in channels.split([len(weight) for weight in weights])]


def _absent(*_: object) -> Tensor:
    """In place of a kernel that some torch may not have."""
    raise RuntimeError("no such kernel")


_RELU: Callable[..., Tensor] = getattr(torch, "cudnn_convolution_relu", _absent)
_ADD_RELU: Callable[..., Tensor] = getattr(torch, "cudnn_convolution_add_relu", _absent)
_CONVOLVE: Callable[..., Tensor] = torch.conv2d


class _Convolved(torch.autograd.Function):
    """``relu(conv(x) + shift + added)``, what is added and the ReLU if wanted."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, shift: Tensor, added: Tensor | None, relu: bool,
        *how: tuple[int, ...],
    ) -> Tensor:  # fmt: skip
        y = _convolve(x, weight, shift, added, relu, how)
        ctx.save_for_backward(x, weight, *([y] if relu else []))
        ctx.how, ctx.added = how, None if added is None else added.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *y = ctx.saved_tensors
        if y:
            gradient = torch.ops.aten.threshold_backward(gradient, y[0], 0)
        wanted = ctx.needs_input_grad
        of_x, of_weight, _ = torch.ops.aten.convolution_backward(
            gradient, x, weight, None, *ctx.how, False, (0, 0), 1, (wanted[0], wanted[1], False)
        )
        of_shift = gradient.sum((0, 2, 3)) if wanted[2] else None
        of_added = gradient.to(ctx.added) if wanted[3] else None
        return of_x, of_weight, of_shift, of_added, None, None, None, None


def _convolve(
    x: Tensor, weight: Tensor, shift: Tensor, added: Tensor | None, relu: bool,
    how: tuple[tuple[int, ...], ...],
) -> Tensor:  # fmt: skip
    if x.is_cuda and relu:
        try:
            if added is None:
                return _RELU(x, weight, shift, *how, 1)
            added = added.to(weight.dtype).contiguous(memory_format=_layout(x))
            return _ADD_RELU(x, weight, added, 1.0, shift, *how, 1)
        except RuntimeError:
            # A device or a shape for which the library has no such kernel.
            pass
    y = _CONVOLVE(x, weight, shift, *how)
    y = y if added is None else y.add_(added)
    return y.relu_() if relu else y


def _layout(x: Tensor) -> torch.memory_format:
    last = x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


@contextmanager
def _replaced(instead: Sequence[_Place]) -> Iterator[None]:
    """A block in which modules run otherwise; what they have of their own comes back."""
    before = [(vars(module), part, vars(module).get(part)) for module, part, _ in instead]
    try:
        for module, part, run in instead:
            vars(module)[part] = run
        yield
    finally:
        for attributes, part, own in before:
            attributes.pop(part, None)
            if own is not None:
                attributes[part] = own

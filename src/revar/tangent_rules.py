"""How a tangent goes through an operation, by what the operation kept for its gradient.

By the names that operations have in a graph of torch. Each has two functions: one reads what was
kept, before a backward pass frees it; the other makes of that and of tangents of the inputs, in
their order, the tangent of the output. ``None`` is a tangent of zero; not all of them are.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from revar.dual_norm import tangent_by_batch, tangent_by_statistics

Tangent = Tensor | None
"""``None`` where it is zero."""
Read = Callable[[Any], tuple[Any, ...]]
Rule = Callable[..., Tangent]
_aten = torch.ops.aten


class NoRuleError(Exception):
    """An operation that no rule is there for."""


def _tensors(*names: str) -> Read:
    """Reads those that an operation kept; what its gradient does not need is ``None``."""
    read = attrgetter(*(f"_saved_{name}" for name in names))
    hooks = attrgetter(*(f"_raw_saved_{name}.unpack_hook" for name in names))
    single = len(names) == 1
    none = None if single else (None,) * len(names)

    def kept(node: Any) -> tuple[Any, ...]:
        if hooks(node) != none:
            # It is not there, but made again when asked for.
            raise NoRuleError
        return (read(node),) if single else read(node)

    return kept


def _numbers(*names: str) -> Read:
    """Reads those that an operation was given."""
    read = attrgetter(*(f"_saved_{name}" for name in names))
    single = len(names) == 1

    def given(node: Any) -> tuple[Any, ...]:
        found = read(node)
        return (_signed(found),) if single else tuple(map(_signed, found))

    return given


def _signed(value: Any) -> Any:
    """Torch gives axes counted from the last as they lie in memory.

    >>> _signed((2, 2**64 - 1))
    (2, -1)
    """
    if isinstance(value, tuple):
        return tuple(_signed(one) for one in value)
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value


def _both(first: Read, second: Read) -> Read:
    return lambda node: (*first(node), *second(node))


def _nothing(_: Any) -> tuple[Any, ...]:
    return ()


def _shape(node: Any) -> tuple[Any, ...]:
    """Of the output."""
    return (torch.Size(node._input_metadata[0].shape),)


def _kind(node: Any) -> tuple[Any, ...]:
    """Device and type of the output."""
    output = node._input_metadata[0]
    return output.device, output.dtype


# --- products

_FACTORS = _tensors("mat1", "mat2")


def _of_affine(node: Any) -> tuple[Any, ...]:
    if node._saved_alpha != 1 or node._saved_beta != 1:
        raise NoRuleError
    return (node._saved_mat1_sym_sizes[0], *_FACTORS(node))


def _affine(
    n: int, x: Tensor, weight: Tensor,
    bias_tangent: Tangent, x_tangent: Tangent, weight_tangent: Tangent,
) -> Tangent:  # fmt: skip
    """``bias + x @ weight``, of n rows, summed in the order of torch's own rule."""
    found = _product(x, weight, x_tangent, None)
    if bias_tangent is not None and found is not None:
        found = found.add_(bias_tangent)
    elif bias_tangent is not None and weight_tangent is None:
        # A copy for each row: sums over them go another way where all are one.
        return bias_tangent.repeat(n, 1)
    elif bias_tangent is not None:
        found = bias_tangent
    if weight_tangent is None:
        return found
    moved = x.mm(weight_tangent)
    return moved if found is None else moved.add_(found)


def _product_by(times: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    """``a @ b``, of one or of many."""

    def product(a: Tensor, b: Tensor, a_tangent: Tangent, b_tangent: Tangent) -> Tangent:
        found = None if a_tangent is None else times(a_tangent, b)
        if b_tangent is None:
            return found
        moved = times(a, b_tangent)
        return moved if found is None else moved.add_(found)

    return product


_product, _products = _product_by(torch.mm), _product_by(torch.bmm)


def _times(a: Tensor, b: Tensor, a_tangent: Tangent, b_tangent: Tangent = None) -> Tangent:
    """``a * b``"""
    found = None if a_tangent is None else a_tangent * b
    if b_tangent is None:
        return found
    return b_tangent * a if found is None else found + b_tangent * a


def _convolution(
    shape: torch.Size, x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
    x_tangent: Tangent, weight_tangent: Tangent, bias_tangent: Tangent,
) -> Tangent:  # fmt: skip
    """``x * weight + bias``"""
    how = (stride, padding, dilation, transposed, output_padding, groups)

    def convolve(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.convolution(x, weight, bias, *how)

    tangents = (x_tangent, weight_tangent, bias_tangent)
    return moved_convolution(convolve, shape, x, weight, *tangents)


def moved_convolution(
    convolve: Callable[[Tensor, Tensor, Tensor | None], Tensor], shape: torch.Size, x: Tensor,
    weight: Tensor, x_tangent: Tangent, weight_tangent: Tangent, bias_tangent: Tangent,
) -> Tangent:  # fmt: skip
    """``x * dw + db + dx * w``: what there is of it.

    Torch's own rule multiplies by the missing tangent of images, too, as if it were zeros.

    Args:
        convolve: x, weight and bias.
        shape: of the output.
        x: its input.
        weight: of the layer.
        x_tangent: of the input.
        weight_tangent: of the weight.
        bias_tangent: of the bias.
    """
    found: Tangent = None
    if weight_tangent is not None:
        found = convolve(x, weight_tangent, bias_tangent)
    elif bias_tangent is not None:
        found = bias_tangent.view(-1, *[1] * (len(shape) - 2)).expand(shape)
    if x_tangent is None:
        return found
    moved = convolve(x_tangent, weight, None)
    return moved if found is None else moved.add_(found)


_of_convolution = _both(
    _both(_shape, _tensors("input", "weight")),
    _numbers("stride", "padding", "dilation", "transposed", "output_padding", "groups"),
)

# --- batch norm

_STATISTICS = _tensors("input", "weight", "running_mean", "running_var")


def _of_norm(eps: str) -> Read:
    moments = _tensors("input", "weight", "result1", "result2")

    def read(node: Any) -> tuple[Any, ...]:
        small = getattr(node, f"_saved_{eps}")
        if node._saved_training:
            return (*moments(node), small, True)
        x, weight, mean, variance = _STATISTICS(node)
        return x, weight, mean, (variance + small).rsqrt(), small, False

    return read


def _norm(
    x: Tensor, weight: Tensor | None, mean: Tensor, inverse: Tensor, eps: float, by_batch: bool,
    x_tangent: Tangent, weight_tangent: Tangent = None, bias_tangent: Tangent = None,
) -> Tensor:  # fmt: skip
    weight = torch.ones_like(mean) if weight is None else weight
    tangents = (x_tangent, weight_tangent, bias_tangent)
    if by_batch:
        return tangent_by_batch(x, weight, mean, inverse, eps, *tangents)
    return tangent_by_statistics(x, weight, mean, inverse, *tangents)


# --- one number of the output by one of the input: as for a gradient


def _relu(result: Tensor, tangent: Tensor) -> Tensor:
    moved: Tensor = _aten.threshold_backward(tangent, result, 0)
    return moved


def _by(backward: Callable[..., Tensor]) -> Rule:
    return lambda kept, tangent: backward(tangent, kept)


def _dropout(mask: Tensor, p: float, tangent: Tensor) -> Tensor:
    dropped: Tensor = _aten.native_dropout_backward(tangent, mask, 1 / (1 - p))
    return dropped


# --- sums, and what only moves numbers about


def _sum(shape: torch.Size, alpha: float, a: Tangent, b: Tangent = None) -> Tangent:
    """``a + alpha b``"""
    if a is None or b is None:
        found = a if b is None else b if alpha == 1 else alpha * b
        return None if found is None else found.expand(shape)
    return torch.add(a, b, alpha=alpha)


def _difference(shape: torch.Size, alpha: float, a: Tangent, b: Tangent = None) -> Tangent:
    """``a - alpha b``"""
    return _sum(shape, -alpha, a, b)


def _reshaped(shape: torch.Size, tangent: Tensor) -> Tensor:
    return tangent.reshape(shape)


def _of_strides(node: Any) -> tuple[Any, ...]:
    """Of a mean over images, whose axes of one number torch lays out with channels last."""
    ((before, _),) = node.next_functions
    (shape,), strides = _shape(node), node._saved_stride
    plain = torch.empty(shape, device="meta").stride()
    same = all(a == b for a, b, n in zip(strides, plain, shape, strict=True) if n > 1)
    if type(before).__name__ != "MeanBackward1" or _shape(before) != (shape,) or not same:
        raise NoRuleError
    return (shape,)


def _largest(where: Tensor, tangent: Tensor) -> Tensor:
    """[n, c, h, w] those of the largest numbers of squares, by their places in an image."""
    if not where.is_contiguous(memory_format=torch.channels_last) or where.ndim != 4:
        return tangent.flatten(-2).gather(-1, where.flatten(-2)).view_as(where)
    # Without another order in memory, in which there are channels last.
    places = where.permute(0, 2, 3, 1).flatten(1, 2)
    taken = tangent.permute(0, 2, 3, 1).flatten(1, 2).gather(1, places)
    return taken.view(where.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)


def _slice(axis: int, start: int, end: int, step: int, tangent: Tensor) -> Tensor:
    part: Tensor = _aten.slice(tangent, axis, start, end, step)
    return part


def _of_parts(node: Any) -> tuple[Any, ...]:
    """Of a concatenation, which does not tell how large a part is that needs no gradient."""
    axis, (shape,) = _signed(node._saved_dim), _shape(node)
    shapes = [None if before is None else _shape(before)[0] for before, _ in node.next_functions]
    told = [one for one in shapes if one is not None]
    left = shape[axis] - sum(one[axis] for one in told if len(one) == len(shape))
    odd = any(len(one) != len(shape) for one in told)
    if odd or len(told) < len(shapes) - 1 or (len(told) == len(shapes) and left != 0):
        raise NoRuleError
    rest = list(shape)
    rest[axis] = left
    return axis, [rest if one is None else one for one in shapes], _kind(node)


def _joined(
    axis: int, shapes: list[Any], kind: tuple[torch.device, torch.dtype], *tangents: Tangent
) -> Tensor:
    device, dtype = kind
    parts = [
        torch.zeros(shape, device=device, dtype=dtype) if tangent is None else tangent
        for shape, tangent in zip(shapes, tangents, strict=True)
    ]
    return torch.cat(parts, axis)


RULES: dict[str, tuple[Read, Rule]] = {
    "AddmmBackward0": (_of_affine, _affine),
    "MmBackward0": (_tensors("self", "mat2"), _product),
    "BmmBackward0": (_tensors("self", "mat2"), _products),
    "TBackward0": (_nothing, torch.t),
    "MulBackward0": (_tensors("self", "other"), _times),
    "ConvolutionBackward0": (_of_convolution, _convolution),
    "NativeBatchNormBackward0": (_of_norm("eps"), _norm),
    "CudnnBatchNormBackward0": (_of_norm("epsilon"), _norm),
    "ReluBackward0": (_tensors("result"), _relu),
    "SiluBackward0": (_tensors("self"), _by(_aten.silu_backward)),
    "HardswishBackward0": (_tensors("self"), _by(_aten.hardswish_backward)),
    "HardsigmoidBackward0": (_tensors("self"), _by(_aten.hardsigmoid_backward)),
    "SigmoidBackward0": (_tensors("result"), _by(_aten.sigmoid_backward)),
    "TanhBackward0": (_tensors("result"), _by(_aten.tanh_backward)),
    "SinBackward0": (_tensors("self"), lambda x, tangent: tangent * x.cos()),
    "CosBackward0": (_tensors("self"), lambda x, tangent: tangent * x.sin().neg_()),
    "NativeDropoutBackward0": (_both(_tensors("result1"), _numbers("p")), _dropout),
    "AddBackward0": (_both(_shape, _numbers("alpha")), _sum),
    "SubBackward0": (_both(_shape, _numbers("alpha")), _difference),
    "MeanBackward1": (_numbers("dim", "keepdim"), lambda axes, keep, t: t.mean(axes, keep)),
    "AdaptiveAvgPool2DBackward0": (_shape, lambda s, t: F.adaptive_avg_pool2d(t, s[-2:])),
    "MaxPool2DWithIndicesBackward0": (_tensors("result1"), _largest),
    "ToCopyBackward0": (_kind, lambda device, dtype, tangent: tangent.to(device, dtype)),
    "AsStridedBackward1": (_of_strides, _reshaped),
    "ViewBackward0": (_shape, _reshaped),
    "UnsafeViewBackward0": (_shape, _reshaped),
    "ReshapeAliasBackward0": (_shape, _reshaped),
    "CloneBackward0": (_nothing, lambda tangent: tangent),
    "PermuteBackward0": (_numbers("dims"), lambda axes, tangent: tangent.permute(axes)),
    "UnsqueezeBackward0": (_numbers("dim"), lambda axis, tangent: tangent.unsqueeze(axis)),
    "CatBackward0": (_of_parts, _joined),
    "ConstantPadNdBackward0": (_numbers("pad"), lambda pad, tangent: F.pad(tangent, pad)),
    "SliceBackward0": (_numbers("dim", "start", "end", "step"), _slice),
}

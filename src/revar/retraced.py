"""Forward mode along a pass that was taken already, by what it kept for its backward pass.

A forward-mode pass computes every value once more, only to carry a tangent beside it, and draws the
masks of the first pass again. But what a pass keeps for its gradient is what tangents need, too:
factors of products, masks, and moments of batch norm. So the graph that a training step leaves is
walked the other way round, and a small net, for which the host takes longer than its arithmetic,
is done in a quarter of the time, to the same bits.

The graph is what was computed, whoever computed it: nothing is known of modules, and nothing is
remembered from one step to the next. Where an operation has no rule here, or where what it kept is
not simply there but made again by a hook (`torch.utils.checkpoint`), there is no trace, and whoever
asks has to take a pass of his own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from revar.dual_norm import tangent_by_batch, tangent_by_statistics
from revar.functional import Params

Tangent = Tensor | None
"""``None`` where it is zero."""
_DEEPEST = 200
"""Operations one after the other, beyond which Python would not follow either."""


class _NoRuleError(Exception):
    """The graph has something that cannot be followed."""


class _Operation(NamedTuple):
    """Of a pass.

    Attributes:
        rule: what it kept and tangents of its inputs to the tangent of its output.
        kept: for its gradient.
        inputs: which operations gave its inputs; ``None`` for what needs no gradient.
    """

    rule: Callable[..., Tangent]
    kept: tuple[Any, ...]
    inputs: list[int | None]


_Operations = list[_Operation | str | None]
"""In an order in which inputs come first; a name stands for a parameter."""


class Trace:
    """Of a pass.

    Args:
        operations: all of them.
    """

    def __init__(self, operations: _Operations) -> None:
        self._operations = operations

    @torch.no_grad()
    def tangent(self, direction: Params) -> Tangent:
        """Of the output, where parameters move in a direction; those not in it stand still."""
        found: list[Tangent] = []
        for one in self._operations:
            if isinstance(one, _Operation):
                inputs = [None if number is None else found[number] for number in one.inputs]
                still = all(tangent is None for tangent in inputs)
                found.append(None if still else one.rule(*one.kept, *inputs))
            else:
                found.append(None if one is None else direction.get(one))
        return found[-1]


def traced(output: Tensor, trained: Mapping[str, nn.Parameter]) -> Trace | None:
    """The pass that gave an output, if all of it can be followed.

    To be called before the backward pass, which frees what it needs.

    Args:
        output: with its graph.
        trained: parameters that directions are given in, by name.
    """
    if output.grad_fn is None or output.device.type != "cpu":
        return None
    names = {id(parameter): name for name, parameter in trained.items()}
    found: _Operations = []
    try:
        _follow(output.grad_fn, names, found, {}, _DEEPEST)
    except _NoRuleError:
        return None
    return Trace(found)


def _follow(
    node: Any, names: dict[int, str], found: _Operations, places: dict[Any, int], depth: int
) -> int:
    """Add an operation, after those that gave its inputs; its place among them."""
    place = places.get(node)
    if place is not None:
        return place
    kind = type(node).__name__
    if kind == "AccumulateGrad":
        found.append(names.get(id(node.variable)))
    else:
        if kind not in _RULES or depth == 0:
            raise _NoRuleError
        read, rule = _RULES[kind]
        inputs: list[int | None] = []
        for before, output in node.next_functions:
            if output:
                # Not the first of several.
                raise _NoRuleError
            known = None if before is None else _follow(before, names, found, places, depth - 1)
            inputs.append(known)
        found.append(_Operation(rule, read(node), inputs))
    places[node] = len(found) - 1
    return len(found) - 1


def _keeping(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    """Reads what an operation kept; what its gradient does not need is ``None``."""
    read = attrgetter(*(f"_saved_{name}" for name in names))
    hooks = attrgetter(*(f"_raw_saved_{name}.unpack_hook" for name in names))
    single = len(names) == 1
    none = None if single else (None,) * len(names)

    def kept(node: Any) -> tuple[Any, ...]:
        try:
            hooked = hooks(node) != none
        except AttributeError as error:
            # Another version of torch, that does not tell.
            raise _NoRuleError from error
        if hooked:
            raise _NoRuleError
        return (read(node),) if single else read(node)

    return kept


_FACTORS = _keeping("mat1", "mat2")
_MOMENTS = _keeping("input", "weight", "result1", "result2")
_STATISTICS = _keeping("input", "weight", "running_mean", "running_var")


def _of_affine(node: Any) -> tuple[Any, ...]:
    if node._saved_alpha != 1 or node._saved_beta != 1:
        raise _NoRuleError
    return (node._saved_mat1_sym_sizes[0], *_FACTORS(node))


def _affine(
    n: int, x: Tensor, weight: Tensor,
    bias_tangent: Tangent, x_tangent: Tangent, weight_tangent: Tangent,
) -> Tangent:  # fmt: skip
    """``bias + x @ weight``, of n rows, summed in the order of torch's own rule."""
    found = _product(x, weight, x_tangent, None)
    if bias_tangent is not None:
        # A copy for each row: sums over them go another way where all are one.
        found = bias_tangent.repeat(n, 1) if found is None else found.add_(bias_tangent)
    if weight_tangent is None:
        return found
    moved = x.mm(weight_tangent)
    return moved if found is None else moved.add_(found)


def _product(a: Tensor, b: Tensor, a_tangent: Tangent, b_tangent: Tangent) -> Tangent:
    """``a @ b``"""
    found = None if a_tangent is None else a_tangent.mm(b)
    if b_tangent is None:
        return found
    moved = a.mm(b_tangent)
    return moved if found is None else moved.add_(found)


def _of_norm(node: Any) -> tuple[Any, ...]:
    if node._saved_training:
        return (*_MOMENTS(node), node._saved_eps, True)
    x, weight, mean, variance = _STATISTICS(node)
    return x, weight, mean, (variance + node._saved_eps).rsqrt(), node._saved_eps, False


def _norm(
    x: Tensor, weight: Tensor | None, mean: Tensor, inverse: Tensor, eps: float, by_batch: bool,
    x_tangent: Tangent, weight_tangent: Tangent = None, bias_tangent: Tangent = None,
) -> Tensor:  # fmt: skip
    weight = torch.ones_like(mean) if weight is None else weight
    tangents = (x_tangent, weight_tangent, bias_tangent)
    if by_batch:
        return tangent_by_batch(x, weight, mean, inverse, eps, *tangents)
    return tangent_by_statistics(x, weight, mean, inverse, *tangents)


def _times(a: Tensor, b: Tensor, a_tangent: Tangent, b_tangent: Tangent) -> Tangent:
    """``a * b``"""
    found = None if a_tangent is None else a_tangent * b
    if b_tangent is None:
        return found
    return b_tangent * a if found is None else found + b_tangent * a


def _relu(result: Tensor, tangent: Tensor) -> Tensor:
    moved: Tensor = torch.ops.aten.threshold_backward(tangent, result, 0)
    return moved


_RULES: dict[str, tuple[Callable[[Any], tuple[Any, ...]], Callable[..., Tangent]]] = {
    "AddmmBackward0": (_of_affine, _affine),
    "MmBackward0": (_keeping("self", "mat2"), _product),
    "TBackward0": (lambda _: (), torch.t),
    "NativeBatchNormBackward0": (_of_norm, _norm),
    "ReluBackward0": (_keeping("result"), _relu),
    "MulBackward0": (_keeping("self", "other"), _times),
}
"""By the name of an operation in the graph: what it kept, and its rule."""

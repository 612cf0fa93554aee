"""Forward mode along a pass that was taken already, by what it kept for its backward pass.

A forward-mode pass computes every value once more, only to carry a tangent beside it, and draws the
masks of the first pass again. But what a pass keeps for its gradient is what tangents need, too:
factors of products, masks, and moments of batch norm. So the graph that a training step leaves is
walked the other way round: two products of a layer instead of three, and far fewer calls, which is
what counts for a small net. The numbers are those of forward mode, to rounding.

The graph is what was computed, whoever computed it: nothing is known of modules, and nothing is
remembered from one step to the next. Where an operation has no rule here, or where what it kept is
not simply there but made again by a hook (`torch.utils.checkpoint`), there is no trace, and whoever
asks has to take a pass of his own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from revar.functional import Params
from revar.tangent_rules import RULES, NoRuleError, Rule, Tangent


class _Operation(NamedTuple):
    """Of a pass.

    Attributes:
        rule: what it kept and tangents of its inputs to the tangent of its output.
        kept: for its gradient.
        inputs: which operations gave its inputs; ``None`` for what needs no gradient.
    """

    rule: Rule
    kept: tuple[Any, ...]
    inputs: list[int | None]


_Operations = list[_Operation | str | None]
"""In an order in which inputs come first; a name stands for a parameter."""
_Sources = tuple[tuple[Any, int], ...]
"""What gave the inputs of an operation, and which of its outputs they are."""


class Trace:
    """Of a pass, to be followed once: what is done with is let go.

    Args:
        operations: all of them.
    """

    def __init__(self, operations: _Operations) -> None:
        readers = {
            number: place
            for place, one in enumerate(operations)
            if isinstance(one, _Operation)
            for number in one.inputs
        }
        self._last_reader = [readers.get(number) for number in range(len(operations))]
        self._operations = deque(operations)

    @torch.no_grad()
    def tangent(self, direction: Params) -> Tangent:
        """Of the output, where parameters move in a direction; those not in it stand still."""
        found: list[Tangent] = []
        while self._operations:
            one = self._operations.popleft()
            if not isinstance(one, _Operation):
                found.append(None if one is None else direction.get(one))
                continue
            inputs = [None if number is None else found[number] for number in one.inputs]
            still = all(tangent is None for tangent in inputs)
            found.append(None if still else one.rule(*one.kept, *inputs))
            for number in one.inputs:
                if number is not None and self._last_reader[number] == len(found) - 1:
                    found[number] = None
        return found[-1]


def traced(output: Tensor, trained: Mapping[str, nn.Parameter]) -> Trace | None:
    """The pass that gave an output, if all of it can be followed.

    To be called before the backward pass, which frees what it needs.

    Args:
        output: with its graph.
        trained: parameters that directions are given in, by name.
    """
    if output.grad_fn is None:
        return None
    names = {id(parameter): name for name, parameter in trained.items()}
    try:
        return Trace(_followed(output.grad_fn, names))
    except NoRuleError:
        return None


def _followed(last: Any, names: dict[int, str]) -> _Operations:
    """All operations up to the last, each after those that gave its inputs."""
    found: _Operations = []
    places: dict[Any, int] = {}
    # Asked for once: torch makes them anew each time, which takes as long as a small operation.
    sources: dict[Any, _Sources] = {}
    # Not by calls in calls: a deep network has more layers than Python follows.
    open_nodes = [last]
    while open_nodes:
        node = open_nodes[-1]
        if node not in sources:
            sources[node] = node.next_functions
            if type(node).__name__ in RULES:
                open_nodes += [one for one, _ in reversed(sources[node]) if one is not None]
                continue
        open_nodes.pop()
        if node not in places:
            found.append(_operation(node, sources[node], names, places))
            places[node] = len(found) - 1
    return found


def _operation(
    node: Any, sources: _Sources, names: dict[int, str], places: dict[Any, int]
) -> _Operation | str | None:
    kind = type(node).__name__
    if kind == "AccumulateGrad":
        return names.get(id(node.variable))
    if kind not in RULES:
        raise NoRuleError
    if any(output for _, output in sources):
        # Not the first of several.
        raise NoRuleError
    read, rule = RULES[kind]
    inputs = [None if before is None else places[before] for before, _ in sources]
    try:
        return _Operation(rule, read(node), inputs)
    except AttributeError as error:
        # Another version of torch, that has other names or does not tell.
        raise NoRuleError from error

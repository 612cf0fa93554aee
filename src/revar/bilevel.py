"""The one-step hypergradient, by three strategies that agree.

A training step moves the classifier from ``theta`` to ``theta_hat = theta - lr * grad mean_i w_i
l_i(theta)``; the meta-loss is taken at ``theta_hat`` and asks how each weight should change
(appendix A of the paper):

    d meta / d w_i = -(lr / n) <grad l_i(theta), v>,    v = grad meta(theta_hat).

So all that is ever needed is one number per example, the *alignment* ``<grad l_i, v>``. Losses
and meta-loss are functions of a parameter dictionary; nothing here touches ``.grad``, optimisers
or modules, and torch's generators come back as they were.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from revar.dual_norm import MetaBatchNorm
from revar.forward_rules import ForwardRules
from revar.functional import Params, Rate, average
from revar.parallel import world
from revar.randomness import RandomState, preserved

Losses = Callable[[Params], Tensor]
"""Parameters to the [n] losses of n examples."""
Objective = Callable[[Params], Tensor]
"""Parameters to a scalar."""
Strategy = Literal["forward_mode", "double_backward", "finite_difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStep:
    """One look-ahead step and the meta-loss after it.

    Attributes:
        losses: per-example training losses l_i.
        weights: [n] current weights w_i, no gradient needed; ``None`` stands for zeros, where the
            look-ahead goes nowhere and costs nothing.
        lr: size of the plain gradient step.
        meta_loss: what the outer level minimises.
        candidates: per-example losses to align when they are not the training ones (examples
            that take no part in the step); ``None`` aligns the training examples themselves.
        aligned: names of the parameters that gradients are compared in; ``None`` takes all. Fewer
            are cheaper, and an approximation: the look-ahead moves all the same.
        taken: the training step, where its gradient is known; else a pass of its own finds it.
        halved: names of parameters that autocast rounds wherever they are used: they are rounded
            once, all together, instead of one by one in every pass.
    """

    losses: Losses
    weights: Tensor | None
    lr: Rate
    meta_loss: Objective
    candidates: Losses | None = None
    aligned: frozenset[str] | None = None
    taken: Taken | None = None
    halved: frozenset[str] = frozenset()

    def part(self, params: Params) -> Params:
        """Those parameters that gradients are compared in."""
        if self.aligned is None:
            return params
        return {name: p for name, p in params.items() if name in self.aligned}


@dataclass(frozen=True, slots=True)
class Taken:
    """A training step that has its gradient and was not yet made.

    Attributes:
        gradient: of its weighted loss, by the name of the parameter.
        start: of the generators before its pass.
        along: ``<grad l_i, direction>`` for every example, by what its pass left; ``None`` where
            that takes a pass of its own.
    """

    gradient: Params
    start: RandomState
    along: Callable[[Params], Tensor] | None = None


@dataclass(frozen=True, slots=True)
class Alignments:
    """What the meta-loss says about each example.

    Attributes:
        values: [n] ``<grad l_i(theta), grad meta(theta_hat)>`` of the candidates; positive where
            more weight would lower the meta-loss.
        meta_loss: the meta-loss at ``theta_hat``.
    """

    values: Tensor
    meta_loss: Tensor


_ATTENTION: tuple[tuple[Callable[[], bool], Callable[[bool], None]], ...] = (
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
)
"""Kernels of attention: whether one is allowed, and how to say so."""
_PLAIN = (False, False, False, False, True)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Run attention on the kernel that has forward mode and a second derivative.

    The fused ones lack both, and would drop other entries than this one does.
    """
    # Not `sdpa_kernel`: to find out what was set takes it as long as a small net takes for a layer.
    before = [asked() for asked, _ in _ATTENTION]
    try:
        for (_, choose), wanted in zip(_ATTENTION, _PLAIN, strict=True):
            choose(wanted)
        yield
    finally:
        for (_, choose), enabled in zip(_ATTENTION, before, strict=True):
            choose(enabled)


def full_precision(params: Params) -> torch.autocast:
    """Switch autocast off on the device of these parameters."""
    return torch.autocast(next(iter(params.values())).device.type, enabled=False)


def lookahead(losses: Losses, params: Params, weights: Tensor | None, lr: Rate) -> Params:
    """``theta - lr * grad (1/n) sum_i w_i l_i(theta)``, detached."""
    if weights is None:
        return params
    _, gradient = value_and_gradient(lambda at: average(weights * losses(at)), params)
    return _stepped(params, gradient, lr)


def _stepped(params: Params, gradient: Params, lr: Rate) -> Params:
    """``theta - lr * gradient``, all of them at once: there are many small ones."""
    steps = torch._foreach_mul([gradient[name] for name in params], lr)
    return dict(zip(params, torch._foreach_sub(list(params.values()), steps), strict=True))


def value_and_gradient(objective: Objective, params: Params) -> tuple[Tensor, Params]:
    """The value of a scalar function of parameters and its gradient, both detached."""
    at = {name: p.detach().requires_grad_() for name, p in params.items()}
    with torch.enable_grad():
        value = objective(at)
        # A parameter the objective does not reach has a gradient of zero.
        gradients = torch.autograd.grad(value, list(at.values()), materialize_grads=True)
    # Of the rows of all processes, where they are split: before anything is aligned with it.
    gradient = dict(zip(at, world().average(gradients), strict=True))
    return value.detach(), gradient


def _forward_norm() -> AbstractContextManager[Any]:
    """What forward mode needs; processes that split the rows have joint layers already."""
    return ForwardRules() if world().size == 1 else nullcontext()


def _backward_norm(params: Params) -> AbstractContextManager[Any]:
    """Batch norm by fixed statistics, quick in a backward pass; on the CPU torch's own is that."""
    on_gpu = next(iter(params.values())).is_cuda
    return MetaBatchNorm(by_batch=False) if on_gpu and world().size == 1 else nullcontext()


@cache
def _load_forward_mode() -> None:
    """Let torch load its forward-mode rules once, without its own deprecation warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit.script`")
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(()), torch.zeros(()))


def directional_derivative(losses: Losses, params: Params, direction: Params) -> Tensor:
    """``<grad l_i, direction>`` for every example at once: one forward-mode pass.

    In the precision of the caller: under autocast to bfloat16 it has the relative error of a
    gradient taken there. Several processes take it in full precision: rules of their joint layers
    would mix types.
    """
    _load_forward_mode()
    precision = nullcontext() if world().size == 1 else full_precision(params)
    with torch.no_grad(), precision, plain_attention(), forward_ad.dual_level():
        dual = {name: forward_ad.make_dual(p, direction[name]) for name, p in params.items()}
        with _forward_norm():
            values = losses(dual)
        primal, tangent = forward_ad.unpack_dual(values)
        return torch.zeros_like(primal) if tangent is None else tangent.clone()


def central_difference(
    losses: Losses, params: Params, direction: Params, radius: float | None = None
) -> Tensor:
    """The same by two evaluations at ``theta ± radius * direction / |direction|``; O(radius²).

    The default radius, the cube root of the machine epsilon, balances truncation and rounding.
    """
    if radius is None:
        radius = float(torch.finfo(next(iter(params.values())).dtype).eps ** (1 / 3))
    squares = [d.double().square().sum() for d in direction.values()]
    norm = torch.stack(squares).sum().sqrt().clamp_min(torch.finfo(torch.float32).tiny)
    device = next(iter(params.values())).device

    def at(sign: float) -> Tensor:
        # Same dropout masks on both sides, or their noise swamps the difference.
        with preserved(device):
            step = (sign * radius / norm).item()
            return losses({name: p + step * direction[name] for name, p in params.items()})

    with torch.no_grad(), full_precision(params):
        ahead, behind = at(+1.0), at(-1.0)
    return (ahead - behind) * (norm / (2 * radius)).to(ahead.dtype)


def alignments(problem: OneStep, params: Params, strategy: Strategy = "forward_mode") -> Alignments:
    """Align every candidate with the meta-gradient after one look-ahead step.

    The losses see the same random numbers in the look-ahead and in the alignment, and they are
    the numbers that the caller's next step will draw: the generators come back untouched.
    """
    device = next(iter(params.values())).device
    if problem.taken is not None:
        return _after(problem, problem.taken, params, strategy)
    with preserved(device) as start, plain_attention():
        if strategy == "double_backward":
            return _double_backward(problem, params, start)
        ahead = lookahead(problem.losses, params, problem.weights, problem.lr)
        meta_loss, direction = _meta_gradient(problem, ahead)
        start.restore()
        values = _along(problem, params, direction, strategy)
    return Alignments(values, meta_loss)


def _after(problem: OneStep, taken: Taken, params: Params, strategy: Strategy) -> Alignments:
    """The same with the gradient of the training step itself; the generators go on from it."""
    ahead = _stepped(params, taken.gradient, problem.lr)
    with plain_attention():
        meta_loss, direction = _meta_gradient(problem, ahead)
        if taken.along is not None and problem.candidates is None and strategy == "forward_mode":
            return Alignments(taken.along(rounded(direction, problem.halved)), meta_loss)
        with taken.start.again():
            values = _along(problem, params, direction, strategy)
    return Alignments(values, meta_loss)


def rounded(params: Params, names: frozenset[str]) -> Params:
    """Those of these names as autocast would have them, by one kernel; without it, as they are.

    Not where several processes split the rows: they take the forward-mode pass precisely.
    """
    device = next(iter(params.values())).device.type
    if world().size > 1 or not torch.is_autocast_enabled(device):
        return params
    low = torch.get_autocast_dtype(device)
    chosen = [name for name in params if name in names and params[name].dtype != low]
    if not chosen:
        return params
    made = [torch.empty_like(params[name], dtype=low) for name in chosen]
    torch._foreach_copy_(made, [params[name].detach() for name in chosen])
    return {**params, **dict(zip(chosen, made, strict=True))}


def _meta_gradient(problem: OneStep, ahead: Params) -> tuple[Tensor, Params]:
    ahead = rounded(ahead, problem.halved)
    with _backward_norm(ahead):
        return value_and_gradient(
            lambda part: problem.meta_loss({**ahead, **part}), problem.part(ahead)
        )


def _along(problem: OneStep, params: Params, direction: Params, strategy: Strategy) -> Tensor:
    losses, at = problem.candidates or problem.losses, problem.part(params)
    if strategy == "forward_mode":
        at, direction = (rounded(part, problem.halved) for part in (at, direction))
        return directional_derivative(losses, at, direction)
    return central_difference(losses, at, direction)


def losses_after(problem: OneStep, params: Params) -> Tensor:
    """[n] losses of the candidates at ``theta_hat``; at ``theta`` for weights of ``None``.

    In full precision even under autocast, so that losses before and after can be compared: they
    see the same random numbers, those of the caller's next step.
    """
    device = next(iter(params.values())).device
    with preserved(device) as start, full_precision(params):
        ahead = lookahead(problem.losses, params, problem.weights, problem.lr)
        start.restore()
        with torch.no_grad():
            return (problem.candidates or problem.losses)(ahead)


def _double_backward(problem: OneStep, params: Params, start: RandomState) -> Alignments:
    """The reference: differentiate the meta-loss through the look-ahead, graph kept.

    Each candidate enters the inner loss with an extra weight of zero; the meta-loss is
    differentiated with respect to it. Costs a second-order graph of the whole network.
    """
    device = next(iter(params.values())).device
    at = {name: p.detach().requires_grad_() for name, p in params.items()}
    with torch.enable_grad():
        with preserved(device):
            if problem.candidates is not None:
                aligned = problem.candidates(at)
        losses = problem.losses(at)
        if problem.candidates is None:
            aligned = losses
        extra = torch.zeros_like(aligned, requires_grad=True)
        inner = average(extra * aligned)
        if problem.weights is not None:
            inner = inner + average(problem.weights * losses)
        gradients = torch.autograd.grad(
            inner, list(at.values()), create_graph=True, materialize_grads=True
        )
        named = zip(at.items(), gradients, strict=True)
        ahead = {name: p - problem.lr * gradient for (name, p), gradient in named}
        if problem.weights is None:
            # Where the others look ahead nowhere, the meta-loss is the first to draw.
            start.restore()
        meta_loss = problem.meta_loss(ahead)
        (slope,) = torch.autograd.grad(meta_loss, extra)
    return Alignments(slope * (-len(slope) / problem.lr), meta_loss.detach())

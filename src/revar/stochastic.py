"""Monte-Carlo dropout: T passes, what they cost, and what they say about an input.

Gal and Ghahramani (2016) read the spread of a network's outputs under random dropout masks as
its posterior uncertainty; ReVaR penalises that spread on the meta set (equation 5).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.again import computed_again
from revar.dropouts import InsteadOfDropout, quick_dropout
from revar.errors import InputError
from revar.folding import folded
from revar.functional import Params, call, mode, placed
from revar.randomness import RandomState, derive, preserved, seed_generators
from revar.sharded import current, repeated
from revar.thinned import can_thin, last_layers, thinned

Placement = Literal["none", "head", "everywhere"]
Space = Literal["softmax", "logits"]


def draws_random_numbers(function: Callable[[], object], device: torch.device) -> bool:
    """Whether a computation advances torch's default generators."""
    with preserved(device) as before, torch.no_grad():
        function()
        return not before.equals(RandomState.capture(device))


def placement(net: nn.Module, example: Tensor) -> Placement:
    """Where the dropout of a network sits, found by watching which part draws random numbers.

    This sees functional dropout too (timm's ResNets call ``F.dropout``), which a search for
    ``nn.Dropout`` modules would miss.

    Args:
        net: a classifier; ``forward_features`` and ``forward_head`` are used where it has both.
        example: [n, ...] any valid input.
    """
    with mode(net, dropout=True, statistics=True):
        if not draws_random_numbers(lambda: net(example), example.device):
            return "none"
        if not (hasattr(net, "forward_features") and hasattr(net, "forward_head")):
            return "everywhere"
        trunk = partial(call, net, None, example, part="forward_features")
        random_trunk = draws_random_numbers(trunk, example.device)
    return "everywhere" if random_trunk else "head"


def variance(samples: Tensor, space: Space = "softmax") -> Tensor:
    """Dropout variance of each input, equation 5.

    ``leps(x) = (1/T) sum_k || q_k(x) - mean_k q_k(x) ||^2``, the population variance summed over
    the outputs, with ``q`` the class probabilities or the raw outputs.

    Args:
        samples: [T, n, C] outputs (logits) of the T passes.
        space: ``softmax`` compares probabilities, ``logits`` the outputs as they are (also the
            form for regression).

    Returns:
        [n]
    """
    # Classes first, where they lie so (`revar.thinned`): sums over the last axis of few are slow.
    axes, passes = (0, 1) if samples.movedim(-1, 0).is_contiguous() else (-1, 0)
    outputs = samples.movedim(-1, axes)
    if space == "softmax":
        outputs = outputs.softmax(axes)
    away = outputs - outputs.mean(passes, keepdim=True)
    # Not `square`, whose gradient takes twice as many operations.
    return (away * away).sum(axes).mean(0)


@dataclass(frozen=True)
class DropoutPasses:
    """T passes of one network under random dropout masks.

    When the dropout sits only in the head the trunk is computed once for all passes. Otherwise
    each pass is a full one, recomputed with its own masks in the backward pass, so that the
    memory stays that of a single pass.

    Attributes:
        net: the network.
        shared_trunk: whether the passes share ``forward_features``.
    """

    net: nn.Module
    shared_trunk: bool

    @classmethod
    def of(cls, net: nn.Module, example: Tensor) -> Self:
        """Find out how the network can be sampled.

        Raises:
            InputError: the network has no dropout.
        """
        where = placement(net, example)
        if where == "none":
            msg = (
                f"{type(net).__name__} has no dropout, so its T passes would all be equal: build "
                "it with dropout_rate > 0 (timm: drop_rate=0.3), or add nn.Dropout before its "
                "last layer"
            )
            raise InputError(msg)
        return cls(net, shared_trunk=where == "head")

    def run(self, x: Tensor, passes: int, params: Params | None = None) -> tuple[Tensor, Tensor]:
        """One deterministic pass and T random ones, batch norm by its running statistics.

        Args:
            x: [n, ...] inputs.
            passes: T.
            params: evaluate at these parameters instead of the network's own.

        Returns:
            ``(logits [n, C], samples [T, n, C])``, differentiable.
        """
        if self.shared_trunk:
            return self._run_heads(x, passes, params)
        net = self.net
        with mode(net, dropout=True, statistics=True), placed(net, params):
            whole = folded(net)
            if torch.is_grad_enabled():
                samples = [computed_again(net, whole, x) for _ in range(passes)]
            else:
                samples = [whole(x) for _ in range(passes)]
            # Last, so that the backward pass takes it first: what it keeps is gone before another
            # pass is computed again.
            with mode(net, dropout=False, statistics=True):
                logits = whole(x)
        return logits, torch.stack(samples)

    def _run_heads(self, x: Tensor, passes: int, params: Params | None) -> tuple[Tensor, Tensor]:
        net = self.net
        with mode(net, dropout=False, statistics=True), placed(net, params):
            features = folded(net, "forward_features")(x)
            logits = call(net, None, features, part="forward_head")
            # Processes that split the rows look for theirs along the first axis.
            split = current() is not None
            last = None if split else last_layers(net)
            if last is not None and can_thin(features, *last):
                return logits, thinned(features, *last, passes)
            quick = nullcontext() if split else quick_dropout(features.device)
            with mode(net, dropout=True, statistics=True), quick:
                if features.ndim == 2 or hasattr(net, "runs"):
                    copies = features.repeat(passes, *(1 for _ in features.shape[1:]))
                    with repeated(passes):
                        stacked = call(net, None, copies, part="forward_head")
                    return logits, stacked.unflatten(0, (passes, len(logits)))
                each = [call(net, params, features, part="forward_head") for _ in range(passes)]
        return logits, torch.stack(each)


class FixedMasks(InsteadOfDropout):
    """Dropout with one mask for the whole batch, drawn from a seed.

    At test time this makes pass ``k`` the same thinned network for every input, so the score of
    a row depends on that row alone: not on its neighbours, the batch size or the device. Rows
    are compared under common random numbers, which also takes noise out of their ranking.

    Element-wise and channel-wise dropout are covered. Dropout inside fused attention, where no
    mask is visible, still draws from the default generator.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        # On the CPU whatever the device, so that a GPU draws the same masks.
        self.generator = torch.Generator().manual_seed(seed)

    def drop(
        self,
        func: Callable[..., Tensor],
        input: Tensor,  # noqa: A002  (named as in torch.nn.functional, it may come by keyword)
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        """The same mask for every row; whole channels where the function drops those."""
        if not training or p == 0.0:
            return input
        shape = list(input.shape[1:])
        if func is not F.dropout:
            shape[1:] = [1] * (len(shape) - 1)
        keep = torch.rand(shape, generator=self.generator) >= p
        mask = (keep / (1.0 - p)).to(input.device, input.dtype)
        return input.mul_(mask) if inplace else input * mask


@dataclass(frozen=True, slots=True)
class DropoutStatistics:
    """What T passes say about each input, without the passes themselves; all in float64.

    Attributes:
        mean: [n, C] average class probabilities of the passes.
        variance: [n] equation 5 on the probabilities.
        entropy: [n] entropy of the average, nats.
        expected_entropy: [n] average entropy of the passes, nats.
    """

    mean: Tensor
    variance: Tensor
    entropy: Tensor
    expected_entropy: Tensor


@torch.no_grad()
def statistics(
    sampler: DropoutPasses, x: Tensor, passes: int, seed: int, features: Tensor | None = None
) -> DropoutStatistics:
    """Sufficient statistics of T passes under masks fixed by ``seed``.

    Memory is O(n C), not O(T n C). Variances are accumulated by Welford's update, so nearly
    constant outputs keep their digits.

    Args:
        sampler: the network.
        x: [n, ...] inputs.
        passes: T.
        seed: of the masks.
        features: of the trunk, where they are known and the passes share it.
    """
    net, part, inputs = sampler.net, "forward", x
    if sampler.shared_trunk:
        part = "forward_head"
        if features is None:
            with mode(net, dropout=False, statistics=True):
                features = call(net, None, x, part="forward_features")
        inputs = features
    mean = deviation = expected = torch.zeros((), dtype=torch.float64, device=x.device)
    with preserved(x.device), mode(net, dropout=True, statistics=True):
        for k in range(passes):
            pass_seed = derive(seed, "dropout pass", k)
            # For random layers whose masks FixedMasks cannot see.
            seed_generators(pass_seed, x.device)
            with FixedMasks(pass_seed):
                z = call(net, None, inputs, part=part)
            log_p = z.double().log_softmax(-1)
            p = log_p.exp()
            step = p - mean
            mean = mean + step / (k + 1)
            deviation = deviation + step * (p - mean)
            expected = expected - torch.special.xlogy(p, p).sum(-1) / passes
    entropy = -torch.special.xlogy(mean, mean).sum(-1)
    return DropoutStatistics(mean, deviation.sum(-1) / passes, entropy, expected)

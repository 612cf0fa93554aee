"""T dropout passes of a last linear layer on the CPU, in few operations.

Layer by layer, a mask as large as T copies of the features is drawn, scaled and multiplied by, and
the gradient goes back through each of these. Here it is a product of 0 and 1, the factor of dropout
goes into the weight, and outputs lie with classes first, over which softmax is quick.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from revar.dropouts import kept


def last_layers(net: nn.Module) -> tuple[nn.Dropout, nn.Linear] | None:
    """Dropout and the linear layer of a head that is these two and runs as it was built."""
    layers: tuple[nn.Dropout, nn.Linear] | None = getattr(net, "last_layers", None)
    return layers


def can_thin(features: Tensor, dropout: nn.Dropout, layer: nn.Linear) -> bool:
    """Whether `thinned` gives what the layers would: flat features, in the layer's precision."""
    plain = features.ndim == 2 and features.dtype == layer.weight.dtype
    if not plain or features.device.type != "cpu" or not 0 < dropout.p < 1:
        return False
    return not torch.is_autocast_enabled("cpu")


def thinned(features: Tensor, dropout: nn.Dropout, layer: nn.Linear, passes: int) -> Tensor:
    """Outputs of the layer on features with T masks, as layers would draw them for T copies.

    Differentiable once.

    Args:
        features: [n, d]
        dropout: before the layer; on, whatever its mode.
        layer: with the parameters that stand there now.
        passes: T.

    Returns:
        [T, n, C], laid out with classes first.
    """
    left = kept((passes, *features.shape), dropout.p, features.dtype)
    bias: Tensor | None = layer._parameters["bias"]
    if bias is None:
        bias = features.new_zeros(len(layer.weight))
    outputs: Tensor = _Thinned.apply(features, layer.weight, bias, left, 1 / (1 - dropout.p))
    return outputs.permute(1, 2, 0)


class _Thinned(torch.autograd.Function):
    """``z[c, t, n] = b[c] + factor * sum_d W[c, d] left[t, n, d] h[n, d]``"""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, left: Tensor, factor: float
    ) -> Tensor:
        thin = (features * left).flatten(0, 1)
        scaled = weight * factor
        ctx.save_for_backward(left, thin, scaled)
        ctx.factor = factor
        outputs = torch.addmm(bias.unsqueeze(1), scaled, thin.t())
        return outputs.view(-1, *left.shape[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        left, thin, scaled = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        of_outputs = gradient.flatten(1)
        of_features = None
        if wanted[0]:
            of_features = of_outputs.t().mm(scaled).view_as(left).mul_(left).sum(0)
        of_weight = of_outputs.mm(thin).mul_(ctx.factor) if wanted[1] else None
        return of_features, of_weight, of_outputs.sum(1) if wanted[2] else None, None, None

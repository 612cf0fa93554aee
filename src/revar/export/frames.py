"""A table with named columns as one tensor, and its encoding inside the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from revar.data.frames import FrameInputs


class FrameEncoder(nn.Module):
    """[n, columns] numbers to what the network was trained on, as `FrameInputs.encode`.

    A number that is missing is NaN. A category is its place in the list of the column; anything
    else, such as -1, is a rare, unseen or missing one.
    """

    def __init__(self, inputs: FrameInputs) -> None:
        super().__init__()
        self.columns = inputs.columns

    def forward(self, x: Tensor) -> Tensor:
        """[n, columns] to [n, numbers per row] float32."""
        parts = []
        for j, column in enumerate(self.columns):
            values = x[:, j : j + 1]
            if column.median is None:
                places = torch.arange(len(column.categories), device=x.device, dtype=x.dtype)
                one_hot = (values == places).to(x.dtype)
                parts += [one_hot, 1.0 - one_hot.sum(1, keepdim=True)]
                continue
            gap = torch.isnan(values)
            # As tensors: a plain number goes into an ONNX graph in single precision.
            median, offset = (
                torch.tensor(value, dtype=x.dtype, device=x.device)
                for value in (column.median, column.offset)
            )
            parts.append(torch.where(gap, median, values) - offset)
            if column.indicator:
                parts.append(gap.to(x.dtype))
        return torch.cat(parts, 1).to(torch.float32)


def precision(inputs: FrameInputs) -> torch.dtype:
    """Of the tensor: double where a column has numbers that single precision cannot tell apart."""
    far = any(column.offset != 0.0 for column in inputs.columns)
    return torch.float64 if far else torch.float32


def describe(inputs: FrameInputs) -> list[dict[str, Any]]:
    """What each column of the tensor holds, for whoever fills it."""
    return [
        {"name": column.name, "type": "number"}
        if column.median is not None
        else {"name": column.name, "type": "category", "categories": list(column.categories)}
        for column in inputs.columns
    ]

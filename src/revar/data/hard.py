"""CIFAR-10 test images that a good classifier gets wrong, as ImageNet-A was made.

Hendrycks et al. 2021 keep the photographs that a ResNet-50 gets wrong. Here the classifier is the
published ResNet-56 of Idelbayev (93.6 % right), and what it gets wrong stays.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.data.published import published
from revar.data.source import Part
from revar.nets.base import Dropout
from revar.nets.pretrained import load_pretrained
from revar.nets.residual import resnet56

WEIGHTS = "weights_cifar10_resnet/resnet56-4bfd9763.th"
_WAY = "get resnet56-4bfd9763.th from github.com/akamaster/pytorch_resnet_cifar10"
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""The inputs that network was trained on, as values from 0 to 1."""
_BATCH = 500


@dataclass
class _Known:
    """What was found in this process, by the pixels: runs of one table ask again and again."""

    rows: dict[bytes, NDArray[np.int64]] = field(default_factory=dict)


_KNOWN = _Known()


def mistaken(part: Part) -> Part:
    """The images of CIFAR-10 that the published ResNet-56 gets wrong.

    Args:
        part: images [n, 32, 32, 3] of bytes, with labels.

    Raises:
        InputError: its weights are not there.
    """
    images, labels = np.ascontiguousarray(part.x), np.asarray(part.y)
    key = hashlib.blake2b(images.tobytes() + labels.tobytes()).digest()
    if key not in _KNOWN.rows:
        _KNOWN.rows[key] = np.flatnonzero(_predicted(images) != labels)
    return part.take(_KNOWN.rows[key])


def _predicted(images: NDArray[Any]) -> NDArray[np.int64]:
    path = published("resnet56", WEIGHTS, way=_WAY)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = resnet56((3, 32, 32), 10, Dropout(rate=0.0))
    load_pretrained(net, path)
    net.to(device).eval()
    mean, deviation = (torch.tensor(v, device=device).view(3, 1, 1) for v in (_MEAN, _DEVIATION))
    found: list[Tensor] = []
    with torch.inference_mode():
        for rows in torch.from_numpy(images).split(_BATCH):
            x = rows.to(device).permute(0, 3, 1, 2).float() / 255
            found.append(net((x - mean) / deviation).argmax(dim=1).cpu())
    return torch.cat(found).numpy()

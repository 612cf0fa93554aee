"""Augmentation of resident images, on the device they live on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from revar.sharded import Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Augment:
    """Random shifts and mirror images.

    Attributes:
        pad: furthest shift in pixels; what moves in is black.
        flip: whether left and right may be swapped.
    """

    pad: int = 0
    flip: bool = False

    def __call__(self, x: Tensor, share: Share | None = None) -> Tensor:
        """[n, channels, h, w] to the same, each image with its own shift and mirror.

        Args:
            x: images.
            share: of a batch that these are; shifts and mirrors are then drawn for all of it, so
                that an image gets the same ones whichever process has it.
        """
        if not (self.pad or self.flip):
            return x
        n, _, height, width = x.shape
        drawn = n if share is None else share.total
        if self.flip:
            mirrored = torch.rand(drawn, device=x.device) < 0.5
            if share is not None:
                mirrored = share.own(mirrored)
            x = torch.where(mirrored.view(-1, 1, 1, 1), x.flip(-1), x)
        if self.pad:
            padded = F.pad(x, (self.pad,) * 4)
            shifts = torch.randint(2 * self.pad + 1, (2, drawn), device=x.device)
            top, left = shifts if share is None else (share.own(axis) for axis in shifts)
            rows = top[:, None] + torch.arange(height, device=x.device)
            columns = left[:, None] + torch.arange(width, device=x.device)
            each = torch.arange(n, device=x.device)[:, None, None]
            # Advanced indexing puts channels last; they come back to where they were.
            x = padded[each, :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)
        return x


def resolve(name: str, input_shape: tuple[int, ...]) -> Augment:
    """What ``auto``, ``none``, ``shift`` or ``shift+flip`` mean for inputs of this shape.

    ``auto`` shifts images of 16 px and more by up to an eighth of their side, and mirrors colour
    images only: a mirrored digit or letter is another one.
    """
    if name == "none" or len(input_shape) != 3:
        return Augment()
    channels, height, width = input_shape
    side = min(height, width)
    if name == "auto":
        return Augment(pad=side // 8 if side >= 16 else 0, flip=channels == 3)
    return Augment(pad=max(1, side // 8), flip="flip" in name)

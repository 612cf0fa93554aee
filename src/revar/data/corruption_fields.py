"""What corruptions are made of: plasma, frost and displaced pixels.

Everything is one image at a time or the same for every image, so that a picture comes out the
same whatever it is corrupted together with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.floating[Any]]
Generators = Sequence[np.random.Generator]
_SHEET, _WINDOW, _SHEETS = 768, 256, 4
"""Side of a sheet of frost, how much of it one picture sees, and how many there are."""
_FERNS, _TWIGS = 420, 14


def plasma(size: int, decay: float, generators: Generators) -> Images:
    """[n, size, size] in [0, 1], periodic, by diamonds and squares (Fournier et al. 1982).

    Args:
        size: a power of two.
        decay: heights shrink by its square from one octave to the next.
        generators: one for each map.
    """
    draws = np.stack([g.random((size, size), dtype=np.float32) for g in generators]) * 2 - 1
    heights = np.zeros_like(draws)
    step, amplitude = size, 1.0
    while step > 1:
        half = step // 2
        on, between = slice(None, None, step), slice(half, None, step)
        corners = heights[:, on, on]
        pairs = corners + np.roll(corners, -1, 1)
        centres = (pairs + np.roll(pairs, -1, 2)) / 4 + amplitude * draws[:, between, between]
        heights[:, between, between] = centres
        down = pairs + centres + np.roll(centres, 1, 2)
        across = corners + np.roll(corners, -1, 2) + centres + np.roll(centres, 1, 1)
        heights[:, between, on] = down / 4 + amplitude * draws[:, between, on]
        heights[:, on, between] = across / 4 + amplitude * draws[:, on, between]
        step, amplitude = half, amplitude / decay**2
    heights -= heights.min((1, 2), keepdims=True)
    top = heights.max((1, 2), keepdims=True)
    return heights / np.where(top > 0, top, 1)


@lru_cache(maxsize=1)
def _sheets() -> Images:
    """[sheets, side, side] frost on a window: ferns of ice over a haze, always the same."""
    from scipy.ndimage import gaussian_filter

    generators = [np.random.default_rng(number) for number in range(_SHEETS)]
    grown = 1 << (_SHEET - 1).bit_length()
    haze, lie = (plasma(grown, 1.5, generators)[:, :_SHEET, :_SHEET] for _ in range(2))
    sheets = np.zeros((_SHEETS, _SHEET, _SHEET), dtype=np.float32)
    for sheet, angles, generator in zip(sheets, lie, generators, strict=True):
        for _ in range(_FERNS):
            root = generator.integers(0, _SHEET, 2)
            angle = 4 * np.pi * angles[*root] + generator.normal(0, 0.3)
            length = generator.uniform(0.15, 0.6) * _WINDOW
            points, brightness = _fern(angle, length, generator)
            rows, columns = np.rint(root[:, None] + points).astype(np.intp) % _SHEET
            np.maximum.at(sheet, (rows, columns), brightness * generator.uniform(0.5, 1))
    fine = gaussian_filter(sheets, (0, 0.8, 0.8), mode="wrap")
    glow = gaussian_filter(sheets, (0, 6, 6), mode="wrap")
    # Ice lies in patches, which are still seen where a picture is too small for its ferns.
    patches = np.clip(2.4 * haze - 0.7, 0, 1)
    ice: Images = np.clip(0.1 + 0.5 * patches + (0.6 + 0.6 * patches) * (fine + glow), 0, 1)
    return ice


def _fern(angle: float, length: float, generator: np.random.Generator) -> tuple[Images, Images]:
    """[2, points] of a stem with twigs at sixty degrees, and how bright they are."""
    along = np.linspace(0, 1, int(length) + 2)
    points = [length * along * _towards(angle)]
    brightness = [1 - along]
    for turn in (-np.pi / 3, np.pi / 3):
        for start in np.sort(generator.random(_TWIGS)):
            reach = generator.uniform(0.1, 0.4) * length * (1 - start)
            root = length * start * _towards(angle)
            points.append(root + reach * along * _towards(angle + turn))
            brightness.append((1 - start) * (1 - along))
    return np.concatenate(points, 1), np.concatenate(brightness)


def _towards(angle: float) -> Images:
    return np.array([[np.sin(angle)], [np.cos(angle)]])


@lru_cache(maxsize=1)
def frost_sheets(longest: int) -> Images:
    """[sheets, side, side] of generated frost for images whose longer side is this."""
    from PIL import Image

    side = max(round(_SHEET * longest / _WINDOW), longest)
    resized = [
        np.asarray(Image.fromarray(sheet).resize((side, side), Image.Resampling.BICUBIC))
        for sheet in _sheets()
    ]
    # The resampling overshoots.
    sheets: Images = np.clip(np.stack(resized), 0, 1)
    return sheets


def sampled(images: Images, y: Images, x: Images) -> Images:
    """Images [n, h, w, c] at places [n, h, w], bilinear, mirrored outside."""
    n, height, width, channels = images.shape
    y, x = _mirrored(y, height), _mirrored(x, width)
    top = np.minimum(y.astype(np.intp), max(height - 2, 0))
    left = np.minimum(x.astype(np.intp), max(width - 2, 0))
    down, right = (y - top)[..., None], (x - left)[..., None]
    pixels = images.reshape(-1, channels)
    corner = np.arange(n)[:, None, None] * (height * width) + top * width + left
    below, beside = width * (height > 1), int(width > 1)
    upper = pixels[corner] * (1 - right) + pixels[corner + beside] * right
    lower = pixels[corner + below] * (1 - right) + pixels[corner + below + beside] * right
    result: Images = upper * (1 - down) + lower * down
    return result


def _mirrored(places: Images, side: int) -> Images:
    """Places brought into [0, side - 1] by mirrors at both ends."""
    if side == 1:
        return np.zeros_like(places)
    folded: Images = np.abs((places + side - 1) % (2 * side - 2) - (side - 1))
    return folded

"""The four blurs of Hendrycks and Dietterich (2019), and the blur of falling snow.

Images are [n, h, w, channels] in [0, 1]. Everything is one image at a time or the same for every
image, so that a picture comes out the same whatever it is corrupted together with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from revar.data.corruption_fields import Generators, Images
from revar.data.corruption_tables import Row

_NEGLIGIBLE = 1e-3
"""Of the largest weight, below which a step of a blur is left out."""


def defocus_blur(images: Images, numbers: Row) -> Images:
    """Convolution with a disc, the picture mirrored at its borders."""
    kernel = disc(*numbers)
    half = len(kernel) // 2
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (half, half), (half, half), (0, 0)), mode="reflect")
    result = np.zeros_like(images)
    for dy, dx in np.argwhere(kernel > 0):
        result += kernel[dy, dx] * padded[:, dy : dy + height, dx : dx + width]
    return result


def glass_blur(images: Images, numbers: Row, generators: Generators) -> Images:
    """Blur, let every pixel show one near it, blur.

    The near ones are d to the left and above to d - 1 to the right and below, as published; one
    outside is the one on the border.
    """
    from scipy.ndimage import gaussian_filter

    deviation, furthest, rounds = numbers[0], round(numbers[1]), round(numbers[2])
    sigma = (0, deviation, deviation, 0)
    height, width = images.shape[1:3]
    grid = np.mgrid[:height, :width]
    last = np.array([height - 1, width - 1])[:, None, None]
    pixels: Images = gaussian_filter(images, sigma)
    for number, generator in enumerate(generators):
        for _ in range(rounds):
            moves = generator.integers(-furthest, furthest, grid.shape)
            rows, columns = np.clip(grid + moves, 0, last)
            pixels[number] = pixels[number, rows, columns]
    blurred: Images = gaussian_filter(pixels, sigma)
    return blurred


def motion_blur(images: Images, numbers: Row, generators: Generators) -> Images:
    """Blur along a line at up to 45 degrees from the horizontal."""
    radius, deviation = numbers
    return moved(images, radius, deviation, angles(-45, 45, generators))


def zoom_blur(images: Images, numbers: Row) -> Images:
    """Mean of the picture and of enlarged ones about its middle."""
    largest, step = numbers
    planes = np.ascontiguousarray(np.moveaxis(images, -1, 1))
    # The largest is a whole number of steps in the tables, but not exactly so in floats.
    steps = int(largest / step + 1e-6) + 1
    total = planes.copy()
    for number in range(steps):
        total += enlarged(planes, 1 + number * step)
    return np.moveaxis(total / (steps + 1), 1, -1)


def angles(least: float, most: float, generators: Generators) -> NDArray[np.float64]:
    """[n] directions in radians, uniform between two in degrees."""
    return np.radians([g.uniform(least, most) for g in generators])


def disc(radius: float, rim: float) -> Images:
    """[k, k] a disc whose rim is blurred a little; sums to one."""
    from scipy.ndimage import gaussian_filter

    reach = 1 if radius <= 8 else 2
    half = int(radius) + reach
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    inside = (x**2 + y**2 <= radius**2).astype(np.float32)
    blurred = gaussian_filter(inside, rim, mode="constant", radius=reach)
    kernel: Images = blurred / blurred.sum()
    return kernel


def moved(images: Images, radius: float, deviation: float, angles: NDArray[np.float64]) -> Images:
    """Images [n, h, w, c] blurred along a line, each in its own direction.

    The weight of a step of i pixels is ``exp(-i^2 / 2 deviation^2)``, up to twice the radius; the
    border goes on outside.
    """
    steps = np.arange(2 * round(radius) + 1)
    weights = np.exp(-(steps**2) / (2 * deviation**2))
    steps = steps[weights > _NEGLIGIBLE]
    weights = (weights[steps] / weights[steps].sum()).astype(np.float32)
    reach = int(steps[-1])
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge")
    result = np.zeros_like(images)
    for blurred, image, angle in zip(result, padded, angles, strict=True):
        rows = reach + np.rint(steps * np.sin(angle)).astype(int)
        columns = reach + np.rint(steps * np.cos(angle)).astype(int)
        for weight, top, left in zip(weights, rows, columns, strict=True):
            blurred += weight * image[top : top + height, left : left + width]
    return result


def enlarging(side: int, factor: float) -> Images:
    """[side, side] the matrix that enlarges a line about its middle, by linear interpolation."""
    middle = (side - 1) / 2
    places = np.clip(middle + (np.arange(side) - middle) / factor, 0, side - 1)
    distance = np.abs(places[:, None] - np.arange(side)[None])
    weights: Images = np.maximum(1 - distance, 0).astype(np.float32)
    return weights


def enlarged(images: Images, factor: float) -> Images:
    """Images [n, c, h, w] enlarged about their middle, cut to the same size."""
    height, width = images.shape[2:]
    result: Images = enlarging(height, factor) @ images @ enlarging(width, factor).T
    return result

"""The fifteen corruptions of Hendrycks and Dietterich (2019), on batches.

Each takes images [n, h, w, channels] in [0, 1], its numbers (`revar.data.corruption_tables`) and a
generator for each image, and gives images that may leave [0, 1] and are clipped later.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.data.corruption_blurs import (
    angles,
    defocus_blur,
    enlarged,
    glass_blur,
    motion_blur,
    moved,
    zoom_blur,
)
from revar.data.corruption_fields import Generators, Images, frost_sheets, plasma, sampled
from revar.data.corruption_tables import Row

Law = Callable[[Images, Row, Generators], Images]
_LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)
_ICE = np.array([0.86, 0.94, 1.0], dtype=np.float32)
"""The colour of frost."""


def to_bytes(images: Images) -> NDArray[np.uint8]:
    """[0, 1] to the nearest of 0..255; what lies outside is clipped."""
    return np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)


def gaussian_noise(images: Images, numbers: Row, generators: Generators) -> Images:
    """``x + s e``, e standard normal."""
    (deviation,) = numbers
    return images + deviation * _normal(images.shape[1:], generators)


def shot_noise(images: Images, numbers: Row, generators: Generators) -> Images:
    """``Poisson(c x) / c``: few photons."""
    (photons,) = numbers
    drawn = [g.poisson(image * photons) for image, g in zip(images, generators, strict=True)]
    return (np.stack(drawn) / photons).astype(np.float32)


def impulse_noise(images: Images, numbers: Row, generators: Generators) -> Images:
    """A share of the values is black or white, half of them each; channels by themselves."""
    (share,) = numbers
    draws = np.stack([g.random(images.shape[1:], dtype=np.float32) for g in generators])
    return np.where(draws < share / 2, 0, np.where(draws > 1 - share / 2, 1, images))


def snow(images: Images, numbers: Row, generators: Generators) -> Images:
    """Falling flakes over a whitened picture."""
    mean, deviation, factor, threshold, radius, length, kept = numbers
    flakes = mean + deviation * _normal((1, *images.shape[1:3]), generators)
    flakes = np.clip(enlarged(flakes, factor), 0, 1)
    flakes[flakes < threshold] = 0
    flakes = moved(np.moveaxis(flakes, 1, -1), radius, length, angles(-135, -45, generators))
    grey = (images * _LUMINANCE).sum(-1, keepdims=True) if images.shape[-1] == 3 else images
    white = np.maximum(images, 1.5 * grey + 0.5)
    snowed: Images = kept * images + (1 - kept) * white + flakes + flakes[:, ::-1, ::-1]
    return snowed


def frost(images: Images, numbers: Row, generators: Generators) -> Images:
    """``a x + b frost``, a window of generated frost: not the published photographs."""
    height, width, channels = images.shape[1:]
    sheets = frost_sheets(max(height, width))
    ice = _ICE if channels == 3 else (_ICE @ _LUMINANCE)[None]
    share, amount = numbers
    result = np.empty_like(images)
    for image, covered, generator in zip(images, result, generators, strict=True):
        sheet = sheets[generator.integers(len(sheets))]
        top = generator.integers(sheet.shape[0] - height + 1)
        left = generator.integers(sheet.shape[1] - width + 1)
        window = sheet[top : top + height, left : left + width]
        if generator.random() < 0.5:
            window = window[:, ::-1]
        covered[:] = share * image + amount * window[..., None] * ice
    return result


def fog(images: Images, numbers: Row, generators: Generators) -> Images:
    """``(x + c plasma) m / (m + c)``, m the largest value of the picture."""
    amount, decay = numbers
    height, width = images.shape[1:3]
    size = 1 << (max(height, width) - 1).bit_length()
    mist = plasma(size, decay, generators)[:, :height, :width, None]
    top = images.max((1, 2, 3), keepdims=True)
    fogged: Images = (images + amount * mist) * top / (top + amount)
    return fogged


def brightness(images: Images, numbers: Row) -> Images:
    """The value of HSV raised, hue and saturation kept: ``x v' / v``; black becomes grey."""
    value = images.max(-1, keepdims=True)
    raised = np.clip(value + numbers[0], 0, 1)
    factor = raised / np.where(value > 0, value, 1)
    brighter: Images = np.where(value > 0, images * factor, raised)
    return brighter


def contrast(images: Images, numbers: Row) -> Images:
    """``c (x - m) + m``, m the mean of each channel of the picture."""
    # Whole numbers are summed, so that the mean does not depend on the order.
    total = to_bytes(images).sum((1, 2), keepdims=True, dtype=np.int64)
    mean: Images = (total / (255 * images.shape[1] * images.shape[2])).astype(np.float32)
    flatter: Images = numbers[0] * (images - mean) + mean
    return flatter


def elastic_transform(images: Images, numbers: Row, generators: Generators) -> Images:
    """A random affine map and a smooth random displacement, in one resampling."""
    from scipy.ndimage import gaussian_filter

    n, height, width, _ = images.shape
    strength, smoothness, furthest = (min(height, width) * number for number in numbers)
    middle, arm = np.array([height, width]) / 2, min(height, width) / 3
    corners = np.stack([middle + arm, middle + np.array([-arm, arm]), middle - arm])
    moves = np.stack([g.uniform(-furthest, furthest, (3, 2)) for g in generators])
    ones = np.ones((n, 3, 1))
    affine = np.linalg.solve(np.concatenate([corners + moves, ones], 2), corners)
    draws = np.stack([g.random((2, height, width), dtype=np.float32) for g in generators]) * 2 - 1
    smooth = gaussian_filter(draws, (0, 0, smoothness, smoothness), truncate=3)
    grid = np.mgrid[:height, :width].astype(np.float32) + strength * smooth
    a = affine.astype(np.float32)[:, :, :, None, None]
    y, x = (grid[:, 0] * a[:, 0, k] + grid[:, 1] * a[:, 1, k] + a[:, 2, k] for k in range(2))
    return sampled(images, y, x)


def pixelate(images: Images, numbers: Row) -> Images:
    """Box means on a coarser grid, enlarged again."""
    from PIL import Image

    height, width = images.shape[1:3]
    (block,) = numbers
    coarse = (max(int(width / block), 1), max(int(height / block), 1))
    box = Image.Resampling.BOX
    return _through_pillow(images, lambda p: p.resize(coarse, box).resize((width, height), box))


def jpeg_compression(images: Images, numbers: Row) -> Images:
    """Written as JPEG of some quality and read back."""
    from PIL import Image

    quality = round(numbers[0])

    def again(picture: Image.Image) -> Image.Image:
        file = BytesIO()
        picture.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _through_pillow(images, again)


def _through_pillow(images: Images, change: Callable[[Any], Any]) -> Images:
    from PIL import Image

    pixels = to_bytes(images)
    grey = images.shape[-1] == 1
    changed = [
        np.asarray(change(Image.fromarray(image[..., 0] if grey else image))) for image in pixels
    ]
    return np.stack(changed).reshape(images.shape).astype(np.float32) / 255


def _normal(shape: tuple[int, ...], generators: Generators) -> Images:
    return np.stack([g.standard_normal(shape, dtype=np.float32) for g in generators])


def _drawless(law: Callable[[Images, Row], Images]) -> Law:
    """A law without chance in the form of the others."""
    return lambda images, numbers, _: law(images, numbers)


LAWS: dict[str, Law] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": _drawless(defocus_blur),
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": _drawless(zoom_blur),
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "brightness": _drawless(brightness),
    "contrast": _drawless(contrast),
    "elastic_transform": elastic_transform,
    "pixelate": _drawless(pixelate),
    "jpeg_compression": _drawless(jpeg_compression),
}
"""By name, in the order of the paper."""

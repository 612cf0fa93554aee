"""One image file to pixels: any mode and size, or one line that names the file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "I;16N", "F")
_ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held; 5 to 8 lie on their side."""


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        msg = 'image files need the extra "vision": pip install "revar[vision]"'
        raise InputError(msg) from error
    return Image


def _open(path: Path) -> Any:
    """An image whose header was read; a decompression bomb is refused here."""
    image_module = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            return image_module.open(path)
    except (image_module.DecompressionBombWarning, image_module.DecompressionBombError) as error:
        raise InputError(f'"{path}" has too many pixels to be opened safely: shrink it') from error
    except Exception as error:  # each format fails in its own way
        raise InputError(f'"{path}" cannot be read as an image: {_reason(error)}') from error


def _reason(error: Exception) -> str:
    text = str(error).replace("\n", " ")
    return "it is empty or of an unknown kind" if "cannot identify" in text or not text else text


def header(path: Path) -> tuple[int, int, bool]:
    """(width, height, greyscale?) as the image is to be seen, without decoding it.

    Raises:
        InputError: the file is no image, or far too large.
    """
    with _open(path) as image:
        width, height = image.size
        try:
            sideways = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
        except Exception:  # damaged EXIF is no reason to refuse a picture
            sideways = False
        return (
            (height, width, image.mode in _GREY)
            if sideways
            else (width, height, image.mode in _GREY)
        )


def decode(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """[channels, height, width] of 8 bits, upright, resized where needed.

    Alpha is dropped, palettes and CMYK become RGB, sixteen bits are scaled to eight.

    Raises:
        InputError: damaged, truncated, or of a depth with no agreed scale.
    """
    image_module = _pillow()
    channels, height, width = shape
    with _open(path) as image:
        try:
            image.load()
            from PIL import ImageOps

            upright = ImageOps.exif_transpose(image)
        except Exception as error:  # as above
            raise InputError(f'"{path}" cannot be read as an image: {_reason(error)}') from error
        if upright.mode.startswith("I;16"):
            # Pillow would clip at 255; sixteen bits are to be scaled.
            upright = image_module.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
        elif upright.mode in ("I", "F"):
            low, high = np.asarray(upright).min(), np.asarray(upright).max()
            if low < 0 or high > 255:
                msg = f'"{path}" has values from {low:g} to {high:g}: save it with 8 or 16 bits'
                raise InputError(msg)
        converted = upright.convert("L" if channels == 1 else "RGB")
        if converted.size != (width, height):
            converted = converted.resize((width, height), image_module.Resampling.BILINEAR)
        pixels = np.asarray(converted)
    return pixels[None] if channels == 1 else np.ascontiguousarray(np.moveaxis(pixels, -1, 0))

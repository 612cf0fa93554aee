"""One image file to pixels: any mode and size, or one line that names the file."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "I;16N", "F")
_SIXTEEN_AS_I = ("PNG", "PPM")
"""Formats of at most sixteen bits, for which some versions of Pillow use mode I."""
_WIDTH, _HEIGHT = 0x0100, 0x0101
"""The tags of a TIFF that hold its size as stored."""
_ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held; 5 to 8 lie on their side."""
_PNG_EXIF = {"exif", "Raw profile type exif", "XML:com.adobe.xmp"}
"""Where a PNG keeps it; to look for it behind the pixels, Pillow would decode them all."""


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        msg = 'image files need the extra "vision": pip install "revar[vision]"'
        raise InputError(msg) from error
    return Image


def _open(path: Path, content: bytes | None = None) -> Any:
    """An image whose header was read; a decompression bomb is refused here."""
    image_module = _pillow()
    too_large = f'"{path}" has too many pixels to be opened safely: shrink it'
    try:
        if content is None and path.suffix.lower() in (".tif", ".tiff"):
            # From a file that is turned Pillow maps the pixels as if it were not.
            content = path.read_bytes()
        image = image_module.open(path if content is None else BytesIO(content))
    except (image_module.DecompressionBombWarning, image_module.DecompressionBombError) as error:
        raise InputError(too_large) from error
    except Exception as error:  # each format fails in its own way
        raise _unreadable(path, error) from error
    # Pillow only warns of some; filters of warnings are not for threads to change.
    most = image_module.MAX_IMAGE_PIXELS
    if most is not None and image.width * image.height > most:
        image.close()
        raise InputError(too_large)
    return image


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f'"{path}" cannot be read as an image: {_reason(path, error)}')


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return f'it is a link to "{path.readlink()}", which is not there'
    if isinstance(error, OSError) and error.strerror:
        # Without the number and the name, which was said.
        return error.strerror
    text = str(error).replace("\n", " ")
    return "it is empty or of an unknown kind" if "cannot identify" in text or not text else text


def header(path: Path) -> tuple[int, int, bool]:
    """(width, height, greyscale?) as the image is to be seen, without decoding it.

    Raises:
        InputError: the file is no image, or far too large.
    """
    with _open(path) as image:
        width, height = image.size
        if image.format == "TIFF":
            # Its size may be the upright one already: that depends on the version of Pillow.
            width, height = image.tag_v2[_WIDTH], image.tag_v2[_HEIGHT]
        if _sideways(image):
            width, height = height, width
        return width, height, image.mode in _GREY


def largest_of_sixteen(path: Path) -> int | None:
    """The largest value of an image of sixteen bits; of others nothing.

    Raises:
        InputError: the file is no image, or damaged.
    """
    with _open(path) as image:
        if not _is_sixteen(image):
            return None
        try:
            return int(np.asarray(image).max())
        except Exception as error:  # as in decode
            raise _unreadable(path, error) from error


def pages(path: Path) -> int:
    """How many pictures a TIFF holds; of these the first is read.

    Raises:
        InputError: the file is no TIFF.
    """
    _pillow()
    from PIL.TiffImagePlugin import TiffImageFile

    try:
        # Not by `Image.open`, which warns of large ones.
        with TiffImageFile(path) as image:
            return int(image.n_frames)
    except Exception as error:  # as in decode
        raise _unreadable(path, error) from error


def _is_sixteen(image: Any) -> bool:
    """Whether an image has sixteen bits, in whatever mode this version of Pillow has it."""
    mode: str = image.mode
    return mode.startswith("I;16") or (mode == "I" and image.format in _SIXTEEN_AS_I)


def _sideways(image: Any) -> bool:
    if image.format == "PNG" and not image.info.keys() & _PNG_EXIF:
        return False
    try:
        return image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
    except Exception:  # damaged EXIF is no reason to refuse a picture
        return False


def _upright(image: Any) -> Any:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # as above
        return image


def decode(path: Path, shape: tuple[int, ...], content: bytes | None = None) -> NDArray[np.uint8]:
    """[channels, height, width] of 8 bits, upright, resized where needed.

    Alpha is dropped, palettes and CMYK become RGB, sixteen bits are scaled to eight.

    Args:
        path: of the file, or of the archive that ``content`` was taken from.
        shape: (channels, height, width) wanted.
        content: the bytes of the image, where they are at hand.

    Raises:
        InputError: damaged, truncated, or of a depth with no agreed scale.
    """
    channels, height, width = shape
    with _open(path, content) as image:
        try:
            image.load()
            plain = _eight_bits(_upright(image), path, sixteen=_is_sixteen(image))
            converted = plain.convert("L" if channels == 1 else "RGB")
            if converted.size != (width, height):
                bilinear = _pillow().Resampling.BILINEAR
                converted = converted.resize((width, height), bilinear)
            pixels = np.asarray(converted)
        except InputError:
            raise
        except Exception as error:  # as above
            raise _unreadable(path, error) from error
    return pixels[None] if channels == 1 else np.ascontiguousarray(np.moveaxis(pixels, -1, 0))


def _eight_bits(image: Any, path: Path, *, sixteen: bool) -> Any:
    """An image that Pillow converts without loss or complaint."""
    if sixteen and image.mode.startswith("I"):
        # Pillow would clip at 255; sixteen bits are to be scaled.
        return _pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        values = np.asarray(image)
        low, high = values.min(), values.max()
        # NaN is neither; fractions would be cut off.
        if not (low >= 0 and high <= 255 and np.array_equal(values, np.rint(values))):
            msg = f'"{path}" has values from {low:g} to {high:g}: save it with 8 or 16 bits'
            raise InputError(msg)
    # Pillow warns of a palette with transparency unless that is read too.
    return image.convert("RGBA") if image.mode == "P" and "transparency" in image.info else image

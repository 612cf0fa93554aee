"""Small pictures as PNG files, by the standard library alone."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR = {1: 0, 3: 2}


def png(image: NDArray[np.uint8]) -> bytes:
    """The file of an image (ISO/IEC 15948), eight bits a channel.

    Args:
        image: [h, w, c], c 1 (grey) or 3 (red, green, blue).
    """
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR[channels], 0, 0, 0)
    # Each line begins with the number of its filter; 0 is none.
    lines = b"".join(b"\0" + np.ascontiguousarray(line).tobytes() for line in image)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

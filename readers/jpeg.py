"""decode_jpeg: JPEG files in colour by libjpeg-turbo's own interface, or by Pillow's decoder without Image.open.

The first is simplejpeg's, an extra; Pillow's wheels have the same library, and both give the same pixels.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from readers.arrow import pixels_of

try:
    import simplejpeg as found
except ImportError:
    found = None
simplejpeg: Any = found

START = b"\xff\xd8\xff"
FRAMES = 0xC0, 0xC1, 0xC2  # markers of a baseline, an extended and a progressive frame
BARE = 0x00, 0x01, 0xFF, *range(0xD0, 0xDA)  # markers without a length


def decode_jpeg(content: bytes) -> np.ndarray | None:
    """Return the pixels R G B and a fourth byte (H x W x 4, uint8) of an ordinary JPEG in colour.

    None for other content, damaged JPEGs included: Image.open, which the caller tries next, reports the error.
    """
    from PIL import Image  # here: only programs that read image files need it

    size = _size(content) if content.startswith(START) else None
    if size is None or size[0] * size[1] > (Image.MAX_IMAGE_PIXELS or 1 << 62):
        return None
    try:
        if simplejpeg is not None:
            return _by_simplejpeg(content, *size)
        return pixels_of(Image.frombytes("RGB", size, content, "jpeg", "RGB", ""))
    except Exception:
        return None


def _by_simplejpeg(content: bytes, width: int, height: int) -> np.ndarray:
    """Return the pixels of a JPEG of this size.

    They begin 16 bytes behind a multiple of 32: of rows that begin at one libjpeg-turbo writes past the cache, from
    which they are read next.
    """
    memory = np.empty(4 * width * height + 32, np.uint8)
    start = (16 - memory.__array_interface__["data"][0]) % 32
    pixels = np.frombuffer(memory.data[start : start + 4 * width * height], np.uint8).reshape(height, width, 4)
    simplejpeg.decode_jpeg(content, "RGBX", fastdct=False, fastupsample=False, buffer=pixels)
    return pixels


def _size(content: bytes) -> tuple[int, int] | None:
    """Return the width and height of a JPEG of 8 bits and three components; None for other content."""
    place = 2
    try:
        while True:
            start, marker, length = struct.unpack_from(">BBH", content, place)
            if start != 0xFF or marker in BARE:
                return None
            if marker in FRAMES:
                bits, height, width, components = struct.unpack_from(">BHHB", content, place + 4)
                return (width, height) if (bits, components) == (8, 3) and width and height else None
            place += 2 + length
    except struct.error:  # the content ends here
        return None

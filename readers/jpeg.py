"""decode_jpeg: JPEG files in colour by libjpeg-turbo's own interface, or by Pillow's decoder without Image.open.

The first is simplejpeg's, an extra; Pillow's wheels have the same library, and both give the same pixels.
"""

from __future__ import annotations

import struct
import threading
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
BLOCKS, WIDTHS, WIDEST = 64, 16, 4096  # what a thread takes from malloc for a width; for how many and which widths
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
        _rows.keep(size[0])
        return pixels_of(Image.frombytes("RGB", size, content, "jpeg", "RGB", ""))
    except Exception:
        return None


class _Rows(threading.local):
    """Memory that a thread keeps, so that malloc gives Pillow's decoder other memory for a row of pixels.

    libjpeg-turbo writes a row that begins at a multiple of 32 bytes past the cache, from which Pillow copies it next:
    JPEGs then take up to 1.4 times as long. Where rows begin is chance, but stays so from image to image.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[np.ndarray]] = {}

    def keep(self, width: int) -> None:
        """Take blocks for rows of `width` pixels, keep those that begin at multiples of 32, and give the others back.

        Between them lie blocks that are 16 bytes longer: with one of both the next begins elsewhere.
        """
        if width <= WIDEST and width not in self._kept and len(self._kept) < WIDTHS:
            blocks = [np.empty(4 * width + 16 * (k % 2), np.uint8) for k in range(BLOCKS)]
            self._kept[width] = [block for k, block in enumerate(blocks) if k % 2 or _address(block) % 32 == 0]


_rows = _Rows()


def _by_simplejpeg(content: bytes, width: int, height: int) -> np.ndarray:
    """Return the pixels of a JPEG of this size.

    They begin 16 bytes behind a multiple of 32: of rows that begin at one libjpeg-turbo writes past the cache, from
    which they are read next.
    """
    memory = np.empty(4 * width * height + 32, np.uint8)
    start = (16 - _address(memory)) % 32
    pixels = np.frombuffer(memory.data[start : start + 4 * width * height], np.uint8).reshape(height, width, 4)
    simplejpeg.decode_jpeg(content, "RGBX", fastdct=False, fastupsample=False, buffer=pixels)
    return pixels


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


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

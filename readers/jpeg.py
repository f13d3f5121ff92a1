"""decode_jpeg: JPEG files in colour by libjpeg-turbo's own interface, or by Pillow's decoder without Image.open.

The first is simplejpeg's, an extra; Pillow's wheels have the same library, and both give the same pixels.
"""

from __future__ import annotations

import struct
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from readers.arrow import four_bytes, pixels_of

if TYPE_CHECKING:
    from PIL import Image

try:
    import simplejpeg as found
except ImportError:
    found = None
simplejpeg: Any = found

START = b"\xff\xd8\xff"
FRAMES = 0xC0, 0xC1, 0xC2  # markers of a baseline, an extended and a progressive frame
BLOCKS, MOST = 64, 1024  # what a thread takes from malloc for a width; about the most that it keeps
NARROWEST, WIDEST = 150, 4096  # the pixels of such rows; CPython has its own memory for less than 512 bytes
EMPTY = sys.getsizeof(b"")  # bytes that Python takes beside those of a bytes object
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
        return _canvas.decode(content, size)
    except Exception:
        return None


class _Rows(threading.local):
    """Memory that a thread keeps, so that malloc gives Pillow's decoder other memory for a row of pixels.

    libjpeg-turbo writes a row that begins at a multiple of 32 bytes past the cache, from which Pillow copies it next:
    JPEGs then take up to 1.4 times as long. Where rows begin is chance, but stays so until other work moves the heap.
    """

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []

    def keep(self, width: int) -> None:
        """Where rows of `width` pixels would begin so, take blocks, keep those that do, and give the others back.

        Between them lie blocks that are 16 bytes longer: with one of both the next begins elsewhere.
        """
        if NARROWEST <= width <= WIDEST and len(self._kept) < MOST and _begin_so(width):
            blocks = [np.empty(4 * width + 16 * (k % 2), np.uint8) for k in range(BLOCKS)]
            self._kept += [block for k, block in enumerate(blocks) if k % 2 or _address(block) % 32 == 0]


def _begin_so(width: int) -> bool:
    """Return whether any of the next rows of `width` pixels would begin at a multiple of 32 bytes.

    Bytes of zeros are taken from calloc whole, as Pillow's rows are; numpy and malloc have caches of their own.
    """
    nbytes = 4 * width - EMPTY
    rows = bytes(nbytes), bytes(nbytes), bytes(nbytes)  # which one the decoder gets depends on what else it takes
    return 0 in [id(row) % 32 for row in rows]


_rows = _Rows()


class _Canvas(threading.local):
    """A thread's image, into which Pillow decodes JPEGs of its size once the pixels of the last one are released.

    A new image costs an allocation, a fill, a view through Arrow's interface, and memory that is not in the cache.
    """

    _image: Image.Image | None = None
    _memory: np.ndarray | None = None  # the image's pixels
    _given: Callable[[], object]  # returns the pixels that were returned last, None once they are released

    def decode(self, content: bytes, size: tuple[int, int]) -> np.ndarray:
        """Return the pixels of a JPEG of this size (width, height)."""
        from PIL import Image

        image, memory = self._image, self._memory
        if image is None or image.size != size or self._given() is not None:
            image = Image.new("RGB", size)
            memory = four_bytes(image)
        self._image = self._memory = None
        image.frombytes(content, "jpeg", "RGB", "")
        if memory is None:  # of a very large image, or in an old Pillow
            return pixels_of(image)
        self._image, self._memory = image, memory
        pixels = np.frombuffer(memory.data, np.uint8)  # lives as long as its views
        self._given = weakref.ref(pixels)
        return pixels.reshape(memory.shape)


_canvas = _Canvas()


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

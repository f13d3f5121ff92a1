"""Pillow's pixels, viewed through the Arrow C data interface, without a copy."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL import Image


class ArrowArray(ctypes.Structure):
    """The interface's `struct ArrowArray`; CAPSULE is the name of the capsule that holds one."""

    CAPSULE = b"arrow_array"


ArrowArray._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    *((name, ctypes.c_void_p) for name in ("dictionary", "release", "private_data")),
]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def pixels_of(image: Image.Image, mode: str = "RGB") -> np.ndarray:
    """Return an image's pixels R G B A, as Pillow stores them (H x W x 4, uint8): packing R G B takes twice as long."""
    image = image if image.mode == mode else image.convert(mode)
    image.load()
    pixels = four_bytes(image)
    if pixels is not None:
        return pixels
    content = image.tobytes("raw", "RGBX" if mode == "RGB" else mode)
    return np.frombuffer(content, np.uint8).reshape(image.height, image.width, 4)


def four_bytes(image: Image.Image) -> np.ndarray | None:
    """Return a view of the pixels of a loaded RGB or RGBA image (H x W x 4, uint8). It keeps Pillow's memory alive.

    Returns None where Pillow stores a very large image in several blocks, where the pixels are another array's or a
    mapped file's, over which Pillow before 13 crashes, or where it is older than 11.2, which has no such interface.
    """
    if image.readonly:
        return None
    try:
        capsule = image.__arrow_c_array__()[1]
    except (AttributeError, ValueError, MemoryError):
        return None
    [pixels] = _children(capsule)
    size = 4 * image.width * image.height
    if pixels.length != size or pixels.offset or not pixels.buffers[1]:
        return None
    content: Any = (ctypes.c_uint8 * size).from_address(pixels.buffers[1])
    content.owner = capsule
    return np.frombuffer(content, np.uint8).reshape(image.height, image.width, 4)


def _children(capsule: object) -> list[ArrowArray]:
    array = ArrowArray.from_address(_pointer(capsule, ArrowArray.CAPSULE))
    return [array.children[k].contents for k in range(array.n_children)]

"""The planes of a window of an image, as contiguous bytes, which numpy converts to floats fastest."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

WORD = np.dtype("<u4")  # a pixel of four bytes
WHOLE = (slice(None), slice(None))  # the window of the whole image


def planes(image: np.ndarray, cut: tuple[slice, slice], step: int = 1) -> Iterator[np.ndarray]:
    """Yield the window `cut` of each plane of an image (C x H x W), mirrored where `step` is -1.

    In a decoded JPEG pixels have four bytes. Then whole pixels are copied, and each plane is the lowest byte of words
    that begin at its bytes: numpy casts words with vector instructions, but copies every fourth byte one by one. A
    plane is valid until the thread's next one.
    """
    found = _words(image)
    if found is None:
        for plane in image:
            yield np.ascontiguousarray(plane[cut][:, ::step])
        return
    words, places = found
    window, shifted, plane = _scratch.arrays(words[cut].shape)
    np.copyto(window, words[cut][:, ::step])
    for place in places:
        np.copyto(plane, shifted[place], casting="unsafe")  # the lowest byte
        yield plane


class _Scratch(threading.local):
    """A thread's scratch arrays, which are reused: allocating them takes as long as the work on them."""

    def __init__(self) -> None:
        self._arrays = self._made((0, 0))

    def arrays(self, shape: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        """Return an array for a window's pixels, views of it from each byte of a pixel on, and one for a plane."""
        if self._arrays[0].shape != shape:
            self._arrays = self._made(shape)
        return self._arrays

    @staticmethod
    def _made(shape: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        size = WORD.itemsize * shape[0] * shape[1]
        memory = np.zeros(size + WORD.itemsize, np.uint8)  # the last view ends in these bytes
        words = [memory[byte : byte + size].view(WORD).reshape(shape) for byte in range(WORD.itemsize)]
        return words[0], words, np.empty(shape, np.uint8)


_scratch = _Scratch()


def _words(image: np.ndarray) -> tuple[np.ndarray, list[int]] | None:
    """Return an image's pixels (H x W) and the byte of each plane in them; None for another memory layout."""
    whole, (channels, height, width) = image.base, image.shape
    if not isinstance(whole, np.ndarray) or image.dtype != np.uint8 or whole.dtype != np.uint8:
        return None
    if whole.size != 4 * height * width or not whole.flags.c_contiguous or image.strides[1:] != (4 * width, 4):
        return None
    start = whole.__array_interface__["data"][0]
    first, step = image.__array_interface__["data"][0] - start, image.strides[0]
    if start % WORD.itemsize or abs(step) != 1:
        return None
    words = whole.reshape(-1).view(WORD).reshape(height, width)
    return words, [first + step * channel for channel in range(channels)]

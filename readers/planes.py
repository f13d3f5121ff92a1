"""The planes of an image's window, as bytes that lie side by side, which numpy turns to floats fastest."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

WORD = np.dtype("<u4")  # a pixel of four bytes
WHOLE = (slice(None), slice(None))  # a cut that leaves all


def planes(image: np.ndarray, cut: tuple[slice, slice], step: int = 1) -> Iterator[np.ndarray]:
    """Yield what `cut` leaves of each plane of an image (C x H x W), from right to left where `step` is -1.

    Where the planes are bytes of pixels of four, as in a decoded JPEG, whole pixels are cut out and seen as words that
    begin at a plane's bytes: numpy takes the lowest byte of words in vectors, but gathers every fourth byte one by one.
    A plane is valid until the thread asks for another.
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
    """A thread's arrays, used over and over: memory that is new each time takes as long as the work on it."""

    def __init__(self) -> None:
        self._arrays = self._made((0, 0))

    def arrays(self, shape: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        """Return room for a window's pixels, words there that begin at each byte of a pixel, and room for a plane."""
        if self._arrays[0].shape != shape:
            self._arrays = self._made(shape)
        return self._arrays

    @staticmethod
    def _made(shape: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        size = WORD.itemsize * shape[0] * shape[1]
        memory = np.zeros(size + WORD.itemsize, np.uint8)  # words that begin within the last pixel end here
        words = [memory[byte : byte + size].view(WORD).reshape(shape) for byte in range(WORD.itemsize)]
        return words[0], words, np.empty(shape, np.uint8)


_scratch = _Scratch()


def _words(image: np.ndarray) -> tuple[np.ndarray, list[int]] | None:
    """Return an image's pixels (H x W) and which byte of one each plane is; None where it isn't made of these."""
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

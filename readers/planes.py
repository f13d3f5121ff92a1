"""The planes of a window of an image, as contiguous bytes, which numpy converts to floats fastest."""

from __future__ import annotations

import threading

import numpy as np

WORD = np.dtype("<u4")  # a pixel of four bytes
WHOLE = (slice(None), slice(None))  # the window of the whole image


def planes(image: np.ndarray, cut: tuple[slice, slice], step: int = 1) -> np.ndarray:
    """Return the window `cut` of the planes of an image (C x h x w), mirrored where `step` is -1.

    In a decoded JPEG pixels have four bytes. Then whole pixels are copied, and each plane is the lowest byte of words
    that begin at its bytes: numpy casts words with vector instructions, but copies every fourth byte one by one. The
    planes are valid until the thread's next call. Few calls over all planes leave Python's lock to other threads.
    """
    found = _words(image)
    if found is None:
        return np.ascontiguousarray(image[:, cut[0], cut[1]][:, :, ::step])
    words, first, to_next = found
    window, memory, separate = _scratch.arrays((len(image), *words[cut].shape))
    np.copyto(window, words[cut][:, ::step])
    shifted: np.ndarray = np.ndarray(separate.shape, WORD, memory, first, (to_next, *window.strides))
    np.copyto(separate, shifted, casting="unsafe")  # the lowest byte
    return separate


class _Scratch(threading.local):
    """A thread's scratch arrays, which are reused: allocating them takes as long as the work on them."""

    def __init__(self) -> None:
        self._arrays = self._made((0, 0, 0))

    def arrays(self, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return arrays for planes of a shape (C x h x w): for a window's pixels, its memory, for the planes."""
        if self._arrays[2].shape != shape:
            self._arrays = self._made(shape)
        return self._arrays

    @staticmethod
    def _made(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = WORD.itemsize * shape[1] * shape[2]
        memory = np.zeros(size + WORD.itemsize, np.uint8)  # the last word of the last plane ends in these bytes
        return memory[:size].view(WORD).reshape(shape[1:]), memory, np.empty(shape, np.uint8)


_scratch = _Scratch()


def _words(image: np.ndarray) -> tuple[np.ndarray, int, int] | None:
    """Return an image's pixels (H x W), the first plane's byte in them, and the step to the next plane's.

    None for another memory layout.
    """
    whole, (height, width) = image.base, image.shape[1:]
    if not isinstance(whole, np.ndarray) or image.dtype != np.uint8 or whole.dtype != np.uint8:
        return None
    if whole.size != 4 * height * width or not whole.flags.c_contiguous or image.strides[1:] != (4 * width, 4):
        return None
    start = whole.__array_interface__["data"][0]
    first, step = image.__array_interface__["data"][0] - start, image.strides[0]
    if start % WORD.itemsize or abs(step) != 1:
        return None
    words = whole.reshape(-1).view(WORD).reshape(height, width)
    return words, first, step

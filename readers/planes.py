"""The planes of an image's window, as bytes that lie side by side, which numpy turns to floats fastest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

WORD = np.dtype("<u4")  # a pixel of four bytes
WHOLE = (slice(None), slice(None))  # a cut that leaves all


def planes(image: np.ndarray, cut: tuple[slice, slice], step: int = 1) -> Iterator[np.ndarray]:
    """Yield what `cut` leaves of each plane of an image (C x H x W), from right to left where `step` is -1.

    Where the planes are bytes of pixels of four, as in a decoded JPEG, whole pixels are cut out and shifted: numpy does
    that in vectors, but gathers every fourth byte one by one. A plane is valid until the next one is asked for.
    """
    found = _words(image)
    if found is None:
        for plane in image:
            yield np.ascontiguousarray(plane[cut][:, ::step])
        return
    words, shifts = found
    window = np.ascontiguousarray(words[cut][:, ::step])
    shifted, plane = np.empty_like(window), np.empty(window.shape, np.uint8)
    for shift in shifts:
        np.right_shift(window, np.uint32(shift), out=shifted)
        np.copyto(plane, shifted, casting="unsafe")  # the lowest byte
        yield plane


def _words(image: np.ndarray) -> tuple[np.ndarray, list[int]] | None:
    """Return an image's pixels (H x W) and how far to shift them for each plane; None where it isn't made of these."""
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
    return words, [8 * (first + step * channel) for channel in range(channels)]

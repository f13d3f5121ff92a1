"""The windows of a pooling layer along one axis."""

from __future__ import annotations

import numpy as np


class Axis:
    """The windows along one axis: `size` pixels, `out` windows of `kernel` elements.

    `places[i]` holds the windows whose element i is a pixel, not padding, and these pixels.
    """

    def __init__(self, size: int, kernel: int, stride: int, pad: int, out: int):
        self.size, self.kernel, self.stride, self.pad, self.out = size, kernel, stride, pad, out
        self.start = np.arange(out) * stride - pad  # first pixel of each window, negative in the padding
        self.length = np.minimum(self.start + kernel, size + pad) - self.start  # includes padding, not what is beyond
        self.places = [self._place(i) for i in range(kernel)]

    def _place(self, i: int) -> tuple[slice, slice]:
        """Return the windows whose element i is a pixel, and these pixels."""
        first = max(0, -(-(self.pad - i) // self.stride))
        last = min(self.out, (self.size - 1 + self.pad - i) // self.stride + 1)
        if last <= first:
            return slice(0, 0), slice(0, 0)
        pixel = first * self.stride - self.pad + i
        return slice(first, last), slice(pixel, pixel + (last - first - 1) * self.stride + 1, self.stride)
